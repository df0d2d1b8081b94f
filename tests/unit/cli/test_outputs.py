"""Where files go, what is said of a run that was stored, and names that commands share."""

import socket
from io import StringIO
from types import SimpleNamespace

import pytest

from inferometer.cli import COMMANDS, front_page
from inferometer.cli.commands import accuracy, compare, explain, load, profile
from inferometer.cli.run import run
from inferometer.cli.storing import print_run_link
from inferometer.core.errors import DomainError
from inferometer.serving.load.run import LoadProgress
from inferometer.store import open_store
from unit.store.profiles import profile as stored_profile


def test_a_file_that_can_be_written_again_makes_no_folders(tmp_path, capsys):
    assert run(["export", "last", "-o", str(tmp_path / "no" / "such" / "x.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_run_is_linked_where_a_hub_listens_and_else_it_is_said_how_to_see_it(listening, capsys):
    def told(link):
        print_run_link(SimpleNamespace(id="r1", link=link, skipped=None))
        return capsys.readouterr().err

    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    here, nobody, others = (
        f"http://{place}/runs/r1" for place in (f"127.0.0.1:{listening}", f"localhost:{free}", "hub")
    )
    assert told(here) == f"Run r1: {here}\n"
    assert told(nobody) == f"Run r1: `inferometer hub` shows it at {nobody}\n"
    assert told(others) == f"Run r1: {others}\n"  # of another machine it is believed


def test_a_measurement_takes_the_format_to_compute_in_by_the_name_that_a_prediction_has_for_it():
    asked = [option for option in profile.command.params if "--activations" in option.opts]
    assert [option.name for option in asked] == ["precision"]


def test_every_summary_of_the_front_page_begins_in_one_column_beside_the_longest_name():
    lines = [line for line in front_page().splitlines() if line.endswith(tuple(COMMANDS.values()))]
    assert [line.split()[0] for line in lines] == [*COMMANDS]
    starts = {line.index(COMMANDS[line.split()[0]]) for line in lines}
    assert starts == {2 + max(map(len, COMMANDS)) + 2}


@pytest.mark.parametrize(
    ("done", "count", "rounds", "shown"),
    [
        (0, 8, 1, "a load " + 24 * "·" + "   0%  0 answered"),
        (2, 8, 3, "a load round 2/3 " + 6 * "█" + 18 * "·" + "  25%  2 answered"),
        (1200, 8, 1, "a load " + 24 * "█" + " 100%  1,200 answered"),
        (5, 0, 1, "a load " + 24 * "·" + "   0%  5 answered"),
    ],
)
def test_a_load_says_how_far_it_is(done, count, rounds, shown):
    progress = LoadProgress(level="a load", round=2, rounds=rounds, done=done, count=count)
    assert load._progress_text(progress) == shown


def test_cases_are_those_of_the_device_and_the_runtime_that_were_asked_for():
    cases = [
        SimpleNamespace(device=device, runtime=runtime) for device, runtime in (("a", "x"), ("a", "y"), ("b", "z"))
    ]
    assert accuracy._select_cases(cases, None, None) == cases
    assert accuracy._select_cases(cases, "a", None) == cases[:2]
    assert accuracy._select_cases(cases, "a", "y") == cases[1:2]
    with pytest.raises(DomainError, match=r"no measured cases of z on a.*There are cases of x, y"):
        accuracy._select_cases(cases, "a", "z")
    with pytest.raises(DomainError, match="no measured cases in this folder"):
        accuracy._select_cases([], None, None)


def test_cases_that_cannot_be_judged_are_named_with_their_reason(monkeypatch, capsys):
    case = SimpleNamespace(device="a", runtime="x")
    asked = {}
    monkeypatch.setattr("inferometer.understand.accuracy.cases.read_cases", lambda _folder: [case])
    monkeypatch.setattr(
        "inferometer.understand.accuracy.judge.judge_cases",
        lambda cases, **more: asked.update(more, cases=cases) or ([], ("m1: it is gone", "m2: so is this")),
    )
    assert run(["accuracy", "--device", "a", "--priors", "--format", "json"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "inferometer: left out m1: it is gone", "inferometer: left out m2: so is this",
    ]  # fmt: skip
    assert (asked["cases"], asked["priors"]) == ([case], True)


def test_rows_of_a_table_that_were_not_predicted_are_counted_with_the_commonest_reasons_first(monkeypatch, capsys):
    left = {"no such device": 2, "no such model": 30, "too large": 7}
    file = SimpleNamespace(rows=100, groups=[], left=left)
    judged = SimpleNamespace(name="mine", file=file, asked=61, unmapped=5, set_aside=["a", "b"], aside={"no time": 2})
    plain = SimpleNamespace(
        name="b", file=SimpleNamespace(rows=61, groups=[], left={}), asked=61, unmapped=0, set_aside=[], aside={}
    )
    found = {"a.csv": judged, "b.csv": plain}
    monkeypatch.setattr("inferometer.understand.accuracy.atlas_file.judge_atlas", lambda path, **_: found[path.name])
    assert run(["accuracy", "--atlas", "a.csv", "b.csv"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "100 rows of mine, 2 lines set aside: 61 predicted, 39 not (5 with a name that nobody here knows):",
        "     30  no such model", "      7  too large", "      2  no such device",
        "Lines set aside, which state no such figure:", "      2  no time",
        "61 rows of b: 61 predicted, 0 not:",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [("--from-models", "3"), ("a.csv",)])
def test_a_table_to_judge_needs_to_be_named(words, capsys):
    assert run(["accuracy", *words]) == 2
    assert "need --atlas" in capsys.readouterr().err


def test_a_reference_model_needs_an_engine_to_run_it(capsys):
    assert run(["profile", "resnet18", "--reference", "resnet34"]) == 2
    assert "there is no runtime to run it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdict", "sure", "told"),
    [("undecided", True, True), ("undecided", False, True), ("slower", False, True), ("slower", True, False)],
)
def test_a_condition_that_nobody_can_check_is_told_where_there_is_one(verdict, sure, told, monkeypatch, capsys):
    monkeypatch.setattr("inferometer.measure.bench.gate.failed", lambda _gates, _comparison: [])
    comparison = SimpleNamespace(b="new", metric="latency", main=SimpleNamespace(verdict=verdict, sure=sure))
    compare.hold_gates(("a gate",), [comparison])
    assert ("new: not sure, so conditions on latency were not checked" in capsys.readouterr().err) == told
    compare.hold_gates((), [comparison])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_on_a_terminal_runs_are_deleted_where_the_answer_is_yes(answer, left, own_data, monkeypatch, capsys):
    with open_store(own_data / "runs.db") as store:
        store.add(stored_profile(1), name="mine")
    typed = StringIO(answer)
    typed.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", typed)
    code = run(["runs", "delete", "mine"])
    assert "(mine)?" in capsys.readouterr().err
    assert (code == 0) == (left == 0)
    with open_store(own_data / "runs.db") as store:
        assert len(store.list().rows) == left


def test_what_was_tried_is_not_suggested_again(monkeypatch):
    lines = ["inferometer explain r1 --try", "inferometer prepare net --for x", "--try what it says"]
    monkeypatch.setattr("inferometer.understand.explanation.explanation_document", lambda _: {"next": lines, "run": 1})
    monkeypatch.setattr("inferometer.understand.residual.residual_documents", lambda profile: [profile])
    monkeypatch.setattr("inferometer.understand.trying.trial_document", list)
    explanation = SimpleNamespace(profile="p")
    assert explain._document(explanation, ()) == {"next": lines, "run": 1, "residual": ["p"]}
    tried = {"next": lines[1:], "run": 1, "residual": ["p"], "tried": ["a trial"]}
    assert explain._document(explanation, ("a trial",)) == tried
