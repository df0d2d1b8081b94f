"""`inferometer runs` and `inferometer runs projects` as a user runs them."""

import csv
import io
import json
import sys

import click
import pytest

from inferometer.cli import COMMANDS
from inferometer.cli.options import command_line
from inferometer.cli.run import run as run_command
from inferometer.cli.storing import print_run_link, recording_from, storing_options
from inferometer.core.codec import decode
from inferometer.core.profile import Run
from inferometer.store import Attachment, open_store
from unit.store.profiles import profile


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store" / "runs.db"


@pytest.fixture
def say(monkeypatch, capsys, tmp_path, place):
    """Run one command line on the store; gives the exit code, stdout and stderr."""
    for name in ("runs",):
        monkeypatch.setitem(COMMANDS, name, COMMANDS.get(name, ""))
    monkeypatch.chdir(tmp_path)

    def command(*words, store=place):
        code = run_command([*words, "--store", str(store)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return command


@pytest.fixture
def ids(place):
    with open_store(place) as store:
        found = [
            store.add(profile(3, model="resnet50"), "phones", name="first", tags=["nightly"]),
            store.add(profile(1, model="llama-3.2-1b"), "servers", name="second", tags=["nightly", "good"]),
        ]
        run = store.begin("phones", name="third", parameters={"threads": "4"}, kind="bench")
        store.add_metrics(run, {"loss": 0.5})
        store.fail(run, "It broke.", attachments=[Attachment(name="trace.json", source=b"{}")])
    return [*found, run]


@pytest.mark.parametrize("words", [["runs"], ["runs", "list"], ["runs", "projects"], ["runs", "projects", "list"]])
def test_an_empty_store_teaches(say, words, place):
    open_store(place).close()
    code, out, err = say(*words)
    assert (code, out) == (0, "")
    assert "yet" in err
    assert "`inferometer " in err
    assert say(*words, "--format", "json")[1].strip() == "[]"


def test_the_list_shows_what_is_there_newest_first(say, ids):
    code, out, _ = say("runs")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ids[::-1]
    assert "30 ms" in out
    assert "TTFT" not in out  # no run has one


@pytest.mark.parametrize("form", ["json", "csv", "md"])
def test_every_form_has_every_run(say, ids, form):
    code, out, _ = say("runs", "list", "--sort", "latency", "--format", form)
    assert code == 0
    if form == "json":
        rows = json.loads(out)
        assert [row["name"] for row in rows] == ["second", "first", "third"]
        assert rows[0]["latency_s"] == 0.01
        assert rows[0]["tags"] == ["good", "nightly"]
        assert rows[2]["reason"] == "It broke."
        assert rows[0]["created"].endswith("+00:00")
    elif form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [(row["name"], row["latency_s"]) for row in rows] == [
            ("second", "0.01"),
            ("first", "0.03"),
            ("third", ""),
        ]
    else:
        assert out.startswith("| run | created |")
        assert len(out.splitlines()) == 5


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--project", "phones"], ["third", "first"]),
        (["--tag", "nightly", "--tag", "good"], ["second"]),
        (["--model", "resnet50"], ["first"]),
        (["--status", "failed", "--status", "killed"], ["third"]),
        (["--search", "LLAMA good"], ["second"]),
        (["--since", "1h"], ["third", "second", "first"]),
        (["--since", "2999-01-01"], []),
        (["--until", "2020-01-01T10:00"], []),
        (["--sort", "-latency", "--limit", "1"], ["first"]),
    ],
)
def test_the_filters_narrow(say, ids, options, names):
    code, out, err = say("runs", *options, "--format", "json")
    assert (code, [row["name"] for row in json.loads(out)]) == (0, names)
    if not names:
        assert "No run matches." in err


def test_a_long_list_is_leafed_through(say, ids):
    found, mark = [], []
    for _ in range(3):
        _, out, err = say("runs", "--limit", "1", "--format", "json", *mark)
        found += [row["id"] for row in json.loads(out)]
        mark = ["--after", err.split()[-1]] if "There are more" in err else []
    assert found == ids[::-1]
    assert mark == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "--model", "resnet5"], "Did you mean resnet50?"),
        (["runs", "--tag", "nightli"], "Did you mean nightly?"),
        (["runs", "--project", "phone"], "Did you mean phones?"),
        (["runs", "--sort", "latencie"], "Did you mean latency?"),
        (["runs", "--since", "soon"], "is not a time"),
        (["runs", "--status", "done"], "'done' is not one of"),
        (["runs", "show", "secnd"], "Did you mean second?"),
        (["runs", "shwo", "first"], "Did you mean show?"),
        (["runs", "tag", "first", "good"], "Write +good"),
        (["runs", "tag", "first", "+two words"], "one word"),
        (["runs", "delete", "first", "nowhere"], "no run named 'nowhere'"),
        (["runs", "import", "nowhere.zip"], "cannot be read"),
        (["runs", "--after", "???"], "mark of"),
        (["runs", "projects", "delete", "phones"], "has 2 runs"),
        (["runs", "projects", "rename", "phones", "servers"], "already"),
        (["runs", "projects", "create", "a/b"], "'/'"),
        (["runs", "projects", "show"], "Known: create, rename, delete"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(say, ids, words, told):
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert told in err


def test_one_run_is_shown(say, ids):
    code, out, _ = say("runs", "show", "third")
    assert code == 0
    for part in ("third", ids[2], "failed", "It broke.", "threads", "trace.json", "loss", f"8077/runs/{ids[2]}"):
        assert part in out
    _, out, _ = say("runs", "show", "third", "--format", "json")
    document = json.loads(out)
    assert (document["schema"], document["id"], document["kind"]) == ("inferometer.run/1", ids[2], "bench")
    assert document["metrics"][0]["value"] == 0.5
    assert decode(out, Run).id == ids[2]
    assert "latency" in say("runs", "show", "first", "--format", "md")[1]


def test_tags_are_added_and_taken_off(say, ids):
    code, out, _ = say("runs", "tag", "first", "+hello", "-nightly", "--format", "json")
    assert (code, json.loads(out)[0]["tags"]) == (0, ["hello"])
    assert json.loads(say("runs", "tag", "first", "-hello", "--format", "json")[1])[0]["tags"] == []
    assert say("runs", "tag", "-h")[0] == 0


def test_a_run_is_renamed_and_deleted(say, ids):
    assert "other" in say("runs", "rename", "first", "other")[1]
    code, out, err = say("runs", "delete", "other", ids[1], "--format", "json")
    assert (code, [row["id"] for row in json.loads(out)]) == (0, ids[:2])
    assert "Deleted 2 runs." in err
    assert [row["id"] for row in json.loads(say("runs", "--format", "json")[1])] == ids[2:]


def test_a_run_goes_out_and_comes_in(say, ids, tmp_path):
    code, out, _ = say("runs", "export", "third", "-o", "out/run.zip", "--format", "json")
    assert code == 0
    assert json.loads(out)[0]["bytes"] == (tmp_path / "out" / "run.zip").stat().st_size
    assert say("runs", "export", "third", "-o", "out/run.zip")[0] == 2
    assert say("runs", "export", "third", "-o", "out/run.zip", "--force")[0] == 0
    assert say("runs", "export", "third", "-o", "out")[0] == 0
    assert (tmp_path / "out" / f"run-{ids[2]}.zip").exists()
    other = tmp_path / "other.db"
    code, out, _ = say("runs", "import", "out/run.zip", "--format", "json", store=other)
    assert (code, json.loads(out)[0]["id"]) == (0, ids[2])
    with open_store(other) as store:
        assert store.artifact(ids[2], "trace.json").read_bytes() == b"{}"


def test_a_profile_comes_in_under_the_name_and_tags_that_are_given(say, ids, tmp_path):
    saved = tmp_path / "saved.json"
    assert say("export", "first", "-o", str(saved))[0] == 0
    code, listed, _ = say("import", str(saved), "--name", "taken in", "--tag", "a", "--tag", "b", "--format", "json")
    (run,) = json.loads(listed)
    assert (code, run["name"], run["tags"]) == (0, "taken in", ["a", "b"])
    before = len(json.loads(say("runs", "--format", "json")[1]))
    for wrong in (("--tag", "two words"), ("--device", "phone"), ("--no-store",)):
        assert say("import", str(saved), *wrong)[0] == 2, wrong
    assert len(json.loads(say("runs", "--format", "json")[1])) == before, "nothing half done"


def test_a_command_that_never_started_is_listed_by_its_first_word(say, place, capsys):
    words = ["bench", "--no-guard", "--store", str(place), "--", "no-such-program", "--fast"]
    assert run_command(words) == 2
    capsys.readouterr()
    (run, *_) = json.loads(say("runs", "--format", "json")[1])
    assert (run["status"], run["model"]) == ("failed", "no-such-program")


def test_projects_are_made_named_and_deleted(say, ids):
    code, out, _ = say("runs", "projects", "--format", "json")
    assert (code, [(row["name"], row["runs"]) for row in json.loads(out)]) == (0, [("phones", 2), ("servers", 1)])
    assert "for later" in say("runs", "projects", "create", "new", "--description", "for later")[1]
    assert "newer" in say("runs", "projects", "rename", "new", "newer")[1]
    assert "Deleted project newer." in say("runs", "projects", "delete", "newer")[2]
    assert say("runs", "projects", "delete", "phones", "--with-runs")[0] == 0
    assert [row["name"] for row in json.loads(say("runs", "--format", "json")[1])] == ["second"]


def test_the_store_may_be_named_before_the_subcommand(say, ids, place, capsys):
    assert run_command(["runs", "--store", str(place), "show", "first"]) == 0
    assert "resnet50" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["runs"], ["runs", "show", "last"], ["compare", "a", "b"], ["hub", "--port", "0"]])
def test_a_typing_error_makes_no_store(say, place, words):
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert f"There is no store {place}." in err
    assert not place.parent.exists()


@pytest.mark.parametrize("place", ["postgresql:/ann:p@ss/w0rd@box/runs", "postgresql://ann:p@ss/w0rd@box:x/runs",
                                   "mysql://ann:p@ss/w0rd@box/runs?password=w0rd"])  # fmt: skip
def test_a_password_is_never_printed(say, place, tmp_path):
    code, out, err = say("runs", store=place)
    assert (code, out) == (2, "")
    assert "ann" in err
    assert "w0rd" not in err
    assert not list(tmp_path.iterdir())


def test_the_command_that_is_kept_has_no_secrets(monkeypatch):
    typed = "inferometer bench --store postgresql://ann:p@ss@box/runs --token ifm_1 --token=ifm_2 -- curl http://a:b@c"
    monkeypatch.setattr(sys, "argv", typed.split())
    kept = command_line()
    assert "--store 'postgresql://ann:***@box/runs' --token '***' '--token=***' -- curl 'http://a:***@c'" in kept


def test_a_store_that_cannot_be_opened_is_told(say, place):
    place.parent.mkdir()
    place.write_bytes(b"something else" * 100)
    code, out, err = say("runs")
    assert (code, out) == (2, "")
    assert "is not a store's file" in err


@click.command()
@storing_options
@click.option("--break", "broken", is_flag=True)
def measuring(broken, **asked):
    """A command that measures."""
    with recording_from(asked, kind="bench", threads="4") as recorder:
        recorder.keep(profile())
        if broken:
            raise RuntimeError
    print_run_link(recorder)


def measured(*words):
    return measuring.main([*words], standalone_mode=False)


def test_a_measuring_command_keeps_its_run_and_prints_its_link(place, capsys):
    measured("--project", "p", "--tag", "a", "--tag", "b", "--name", "n", "--store", str(place))
    with open_store(place) as store:
        found = store.get("last")
        assert (found.project, found.name, found.tags, found.status) == ("p", "n", ("a", "b"), "finished")
        assert found.parameters == {"threads": "4"}
    link = f"http://127.0.0.1:8077/runs/{found.id}"  # where no hub listens now
    assert capsys.readouterr().err == f"Run {found.id}: `inferometer hub` shows it at {link}\n"
    with pytest.raises(RuntimeError):
        measured("--break", "--store", str(place))
    with open_store(place) as store:
        assert [row.status for row in store.list().rows] == ["failed", "finished"]
        assert store.get("last").id == found.id


def test_no_store_keeps_and_prints_nothing(place, capsys):
    measured("--no-store", "--store", str(place))
    assert capsys.readouterr().err == ""
    assert not place.exists()


def test_where_there_is_no_database_it_says_so(place, capsys, monkeypatch):
    monkeypatch.setattr("inferometer.store.location.find_spec", lambda _: None)
    measured("--store", str(place))
    assert "the run was not stored" in capsys.readouterr().err
