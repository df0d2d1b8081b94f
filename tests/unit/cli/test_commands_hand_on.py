"""Every option of the commands that make, check, calibrate, sweep and serve arrives where it counts."""

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from inspect import Parameter, signature
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

import inferometer as im
from inferometer.api.watching import watch
from inferometer.cli import elsewhere, progress, storing
from inferometer.cli.commands import agent, bench, bundle, calibrate, export, hub, prepare, profile, sweep
from inferometer.cli.run import cli, run
from inferometer.core.box import BoxOrder, parse_ceiling
from inferometer.core.calibration import Calibration
from inferometer.core.errors import DomainError, EngineError, GateError, InferometerError, PlaceError, UnknownNameError
from inferometer.core.job import JobResult
from inferometer.core.profile import Verification
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.units import parse_quantity
from inferometer.core.workload import Workload
from inferometer.hub.places.requests import Calibrating, pack_calibration
from inferometer.hub.web.guard.rules import Rules
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.verdict import Criteria
from inferometer.measure.run.isolate import ChildLimits
from inferometer.measure.run.outcome import MeasuredOutcome
from inferometer.measure.run.tolerance import Tolerance
from inferometer.serving.load.plan import LoadPlan
from inferometer.store import Filter, open_store
from inferometer.understand.series import Alarm, AlarmRule
from unit.store.profiles import profile as stored_profile


class HandedOnError(Exception):
    """Raised where a command hands on: nothing after it is of interest."""


def handed(monkeypatch, where):
    """What is handed on to the function at `where`, once a command was run."""
    seen = SimpleNamespace(given=None, asked=None)

    def take(*given, **asked):
        seen.given, seen.asked = given, asked
        raise HandedOnError

    monkeypatch.setattr(where, take)

    def ask(command, *words):
        result = CliRunner().invoke(command, list(words))
        if result.exception is not None and not isinstance(result.exception, HandedOnError | SystemExit):
            raise result.exception
        assert isinstance(result.exception, HandedOnError), result.output
        return seen

    return ask


def test_prepare_asks_for_all_that_it_was_given(monkeypatch, tmp_path):
    monkeypatch.setattr(prepare, "recording_from", lambda options, **more: nullcontext((options, more)))
    ask = handed(monkeypatch, "inferometer.measure.prepare.run.carry_out_request")
    out = tmp_path / "m.onnx"
    (request,) = ask(
        prepare.command, "m", "--for", "onnxruntime@phone", "--quantise", "i8", "--calibrate-with", "a",
        "--calibrate-with", "b", "-o", str(out), "--no-measure", "--force", "--overwrite", "--batch", "2",
        "--prompt", "3",
        "--generate", "4", "--image", "5", "--size", "heads=6", "--threads", "7", "--runs", "8", "--seed", "9",
        "--trust", "m",
    ).given  # fmt: skip
    assert (request.model, request.runtime, request.device, request.quantise) == ("m", "onnxruntime", "phone", "i8")
    assert (request.calibrate_with, request.out, request.measure) == (("a", "b"), out, False)
    assert (request.force, request.overwrite, request.sizes) == (True, True, {"heads": 6})
    assert request.workload == Workload(batch=2, prompt=3, generate=4, image=5)
    assert (request.threads, request.runs, request.seed, request.trust) == (7, 8, 9, ("m",))
    (plain,) = ask(prepare.command, "m", "--for", "onnxruntime", "-o", str(out)).given
    assert (plain.device, plain.calibrate_with, plain.measure, plain.force) == (None, ("random",), True, False)
    searched = handed(monkeypatch, "inferometer.measure.prepare.search.search")(
        prepare.command, "m", "--for", "onnxruntime", "--search", "--budget", "2 min"
    )
    assert (searched.given[0].out, searched.asked) == (None, {"budget_s": 120.0, "goals": []})


def test_a_step_that_makes_outputs_wrong_fails_and_is_told(monkeypatch, tmp_path):
    rows = (
        SimpleNamespace(verdict="right", name="a", notes=("x",)),
        SimpleNamespace(verdict="wrong", name="b", notes=("y", "too far")),
    )
    wrong = SimpleNamespace(right=False, steps=rows, artifact=None, profile=None)
    monkeypatch.setattr(prepare, "recording_from", lambda *_, **__: nullcontext())
    monkeypatch.setattr(prepare, "_prepared", lambda _request: wrong)
    monkeypatch.setattr(prepare, "_keep", lambda *_: None)
    monkeypatch.setattr(prepare, "_print", lambda *_: None)
    result = CliRunner().invoke(prepare.command, ["m", "--for", "r", "-o", str(tmp_path / "o.onnx")])
    assert isinstance(result.exception, GateError)
    assert result.exception.message == "The step b makes the outputs wrong: too far."


def test_verify_asks_for_all_that_it_was_given(monkeypatch):
    ask = handed(monkeypatch, "inferometer.measure.run.model.verify_against")
    seen = ask(
        profile.command, "m", "--outputs-only", "--verify", "other", "--reference", "old", "--relative", "5%",
        "--cosine", "0.9", "--top-1", "0.8", "--nll", "0.1", "--runtime", "r", "--prompt", "4", "--generate", "2",
    )  # fmt: skip
    asked, reference = seen.given
    assert (asked.model, asked.runtime, asked.workload.prompt, asked.workload.generate) == ("m", "r", 4, 2)
    assert (asked.shape, asked.guarded, asked.strict, asked.plan, reference) == (False, False, False, None, "other")
    assert seen.asked == {"tolerance": Tolerance(relative=0.05, cosine=0.9, top_1=0.8, nll=0.1), "model": "old"}
    plain = ask(profile.command, "m", "--outputs-only", "--verify", "other")
    assert plain.asked == {"tolerance": Tolerance(), "model": None}
    with pytest.raises(DomainError, match="one length"):
        ask(profile.command, "m", "--outputs-only", "--verify", "other", "--prompt", "4,8")


def test_only_outputs_that_differ_fail_a_verification(capsys):
    for status in ("verified", "unchecked"):
        profile.print_verification("m", Verification(status=status, reference="r", reason="why"), "json")
    with pytest.raises(GateError, match="differ from those of r: why"):
        profile.print_verification("m", Verification(status="failed", reference="r", reason="why"), "json")
    assert '"status": "failed"' in capsys.readouterr().out


def test_a_calibration_here_asks_for_all_that_it_was_given(monkeypatch, tmp_path):
    ask = handed(monkeypatch, "inferometer.measure.calibrate.job.calibration_job")
    out, folder = tmp_path / "c.json", tmp_path / "kept"
    words = (
        "--runtime",
        "r",
        "--budget",
        "2 min",
        "--device",
        "d",
        "--unit",
        "gpu:1",
        "--dtype",
        "f16",
        "--threads",
        "3",
    )
    seen = ask(calibrate.command, *words, "--out", str(out), "--folder", str(folder), "--no-guard", "--fresh")
    assert seen.given == ("d",)
    assert seen.asked == {
        "unit": "gpu:1", "runtime": "r", "dtype": "f16", "budget_s": 120.0, "folder": folder, "out": out, "fresh": True,
        "threads": 3, "guarded": False,
    }  # fmt: skip
    monkeypatch.setattr("inferometer.predict.basis.files.own_folder", lambda: "own")
    plain = ask(calibrate.command)
    assert (plain.given, plain.asked["fresh"], plain.asked["guarded"], plain.asked["folder"]) == (
        ("local",),
        False,
        True,
        "own",
    )
    assert (plain.asked["budget_s"], plain.asked["unit"], plain.asked["out"]) == (120.0, None, None)


def test_a_calibration_elsewhere_asks_for_all_that_it_was_given(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(calibrate, "run_elsewhere", lambda place, work, _progress: seen.append((place, work)))
    words = [
        "calibrate",
        "--on",
        "ssh://pi",
        "--runtime",
        "r",
        "--budget",
        "30s",
        "--device",
        "d",
        "--unit",
        "cpu",
        "--dtype",
        "f16",
    ]
    assert run([*words, "--threads", "3", "--no-guard", "--fresh"]) == 0
    ((place, work),) = seen
    expected = pack_calibration(
        "r", Calibrating(budget_s=30.0, device="d", unit="cpu", dtype="f16", threads=3, guarded=False, fresh=True)
    )
    assert (place, work.job.runtime, work.job.options) == ("ssh://pi", "r", expected.job.options)
    assert run([*words, "--folder", str(tmp_path)]) == 2
    assert len(seen) == 1


ONE_OF = {"--from": ("atlas",), "--all": (), "--show": (), "--forget": ("c",), "--cooling": ("r.csv",)}


@pytest.mark.parametrize("pair", [*combinations(ONE_OF, 2)], ids=" ".join)
def test_of_what_calibrate_does_one_is_asked_at_a_time(pair, capsys):
    words = [word for name in pair for word in (name, *ONE_OF[name])]
    assert run(["calibrate", *words]) == 2
    assert f"{pair[0]} and {pair[1]} ask for different things" in capsys.readouterr().err


def test_two_models_are_measured_in_turns_here_and_nowhere_else(capsys):
    assert run(["profile", "resnet18", "--against", "resnet34", "--on", "ssh://pi", "--no-store"]) == 2
    assert "on this machine only. Leave --on ssh://pi out." in capsys.readouterr().err


def measured_model(name, latency_s):
    """A run of a model in turns with another, whose steps differ a little."""
    samples = tuple(latency_s * (1 + 0.001 * (number % 7)) for number in range(40))
    told = stored_profile(1, model=name)
    told = replace(told, phases=(replace(told.phases[0], samples_s=samples),))
    return MeasuredOutcome(profiles=(told,), ended="done", log=f"log of {name}")


@pytest.mark.parametrize(
    ("old_s", "new_s", "more", "code"),
    [(0.01, 0.012, {}, 1), (0.012, 0.01, {}, 0), (0.01, 0.01, {"ended": "failed", "error": "It broke."}, 2)],
)
def test_of_two_models_in_turns_the_second_is_judged_and_stored_with_the_first_below_it(  # noqa: PLR0917
    monkeypatch, tmp_path, capsys, old_s, new_s, more, code
):
    outcomes = {"old": measured_model("old.onnx", old_s), "new": measured_model("new.onnx", new_s)}
    outcomes["old"] = replace(outcomes["old"], **more)  # either may have ended early
    asked = []
    monkeypatch.setattr(
        "inferometer.api.measure_pair_and_judge",
        lambda baseline, request, **how: asked.append((baseline, request, how)) or ("old", "new"),
    )
    monkeypatch.setattr("inferometer.measure.run.outcome.outcome_of", outcomes.get)
    store, files = tmp_path / "runs.db", {name: tmp_path / f"{name}.json" for name in outcomes}
    words = ["profile", "new.onnx", "--against", "old.onnx", "--batch", "3", "--on", "nvidia-l4", "--no-predict",
             "--fail-if", "latency>5%", "--store", str(store), "-o", str(files["new"]), "--save-against",
             str(files["old"]), "--name", "fast"]  # fmt: skip
    assert run(words) == code
    ((baseline, request, how),) = asked
    assert (baseline.model, request.model) == ("old.onnx", "new.onnx")
    assert replace(baseline, model="new.onnx") == request
    assert (request.workload.batch, how["predict"], how["on"]) == (3, False, "nvidia-l4")
    assert {name: json.loads(path.read_text())["model"]["name"] for name, path in files.items()} == {
        "old": "old.onnx", "new": "new.onnx",
    }  # fmt: skip
    verdict = "slower" if new_s > old_s else "faster" if new_s < old_s else "as fast as"
    assert verdict in capsys.readouterr().out.splitlines()[0]
    with open_store(store) as opened:
        runs = [opened.get(row.id) for row in opened.list(Filter()).rows]
    models = {run.id: run.profile.model.name for run in runs}
    assert {models[run.id]: models.get(run.parent) for run in runs} == {"new.onnx": None, "old.onnx": "new.onnx"}


@pytest.mark.parametrize(
    ("words", "tokens", "link"),
    [((), False, "http://127.0.0.1:4321/"), (("--host", "::"), True, "http://127.0.0.1:4321/"),
     (("--host", "::1"), False, "http://[::1]:4321/"), (("--host", "bench-box"), True, "http://bench-box:4321/"),
     (("--require-token",), True, "http://127.0.0.1:4321/"),
     (("--cert", "c", "--key", "k"), False, "https://127.0.0.1:4321/")],
)  # fmt: skip
def test_a_hub_that_others_can_reach_asks_everybody_for_a_token(  # noqa: PLR0917
    monkeypatch, tmp_path, capsys, words, tokens, link
):
    place, served = tmp_path / "runs.db", []
    open_store(place).close()
    listening = SimpleNamespace(getsockname=lambda: ("", 4321))
    monkeypatch.setattr("inferometer.hub.web.serving.listen", lambda *_: nullcontext(listening))
    for name in ("require_certificate", "require_tokens"):
        monkeypatch.setattr(f"inferometer.hub.web.serving.{name}", lambda *given: served.append(given[-1]))
    monkeypatch.setattr(
        "inferometer.hub.web.serving.serve", lambda _store, rules, _at, ready: ready() or served.append(rules)
    )
    assert run(["hub", *words, "--store", str(place), "--allow-host", "n", "--behind-proxy", "10.0.0.1",
                "--models-from", "https://m/"]) == 0  # fmt: skip
    assert served[0] == served[1] == served[2], "what was required is what is served"
    rules = served[-1]
    assert (rules.tokens, rules.port, rules.names) == (tokens, 4321, ("n",))
    assert (rules.proxies, rules.sources) == (("10.0.0.1",), ("https://m/",))
    assert f"The hub is at {link} with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "ratio", "code"),
    [("steady", 1.0, 0), ("suspected", 1.06, 0), ("withdrawn", 1.06, 0), ("confirmed", 1.06, 1), ("confirmed", 0.9, 0)],
)
def test_only_a_run_that_is_slower_beyond_doubt_fails_and_what_is_suspected_is_marked(  # noqa: PLR0917
    monkeypatch, tmp_path, capsys, state, ratio, code
):
    told, asked, place = [], [], tmp_path / "runs.db"
    with open_store(place) as opened:
        run_id = opened.add(stored_profile(1))
    alarm = Alarm(
        state=state,
        run=run_id,
        series=dict.fromkeys(("model", "runtime", "machine"), "m"),
        sentence="It is so.",
        ratio=ratio,
    )
    monkeypatch.setattr("inferometer.api.watching.watch", lambda *given, **how: asked.append((given, how)) or alarm)

    def tell(where, known):
        told.append((where, known))
        if len(told) == 1:
            raise PlaceError("Nobody answers.")

    monkeypatch.setattr("inferometer.hub.telling.tell_alarm", tell)
    words = ["runs", "watch", run_id, "--branch", "fix", "--against", "main", "--baseline", "m.onnx", "--rounds", "20",
             "--threshold", "4%", "--tell", "mailto:a@b", "--tell", "https://c", "--badge", str(tmp_path / "b.svg"),
             "--store", str(place)]  # fmt: skip
    assert run(words) == code
    rule = AlarmRule(threshold=0.04)
    assert asked == [((run_id,), {"branch": "fix", "against": "main", "store": str(place), "rule": rule,
                                  "baseline": "m.onnx", "rounds": 20})]  # fmt: skip
    assert told == [("mailto:a@b", alarm), ("https://c", alarm)], "one that does not hear keeps no other from hearing"
    assert "Nobody answers." in capsys.readouterr().err
    assert (tmp_path / "b.svg").exists()
    with open_store(place) as opened:
        assert opened.row(run_id).tags == ((f"alarm:{state}",) if state in {"suspected", "confirmed"} else ())
    assert run([*words[:7], "--tell", "https://c", "--store", str(place)]) == 2, "only what is confirmed is told"


def test_a_token_lasts_as_many_days_as_were_asked_for_and_may_only_read_unless_more_is_said(tmp_path, capsys):
    place = str(tmp_path / "runs.db")
    for more in ((), ("--days", "2"), ("--days", "0.5", "--scope", "agent", "--scope", "write", "--project", "p")):
        assert run(["hub", "token", "create", "ada", "--name", f"t{len(more)}", *more, "--store", place]) == 0
    with open_store(place) as opened:
        tokens = {token.name: token for token in opened.tokens()}
        found = opened.admitted(capsys.readouterr().out.split()[1], "read")
    assert found.name == "t2", "the text that was printed opens it"
    lasts = {name: token.expires and token.expires - token.created for name, token in tokens.items()}
    assert lasts == {"t0": None, "t2": pytest.approx(2 * 86_400), "t8": pytest.approx(43_200)}
    assert {name: (token.scopes, token.project) for name, token in tokens.items()} == {
        "t0": (("read",), None), "t2": (("read",), None), "t8": (("write", "agent"), "p"),
    }  # fmt: skip
    states = [hub._token_state(replace(tokens["t0"], **more)) for more in ({}, {"expires": 1.0}, {"revoked": 1.0})]
    assert states == ["valid", "expired", "revoked"]


def test_a_calibration_of_others_figures_needs_a_device_and_an_engine(monkeypatch, capsys):
    fit = SimpleNamespace(
        set_aside=tuple(SimpleNamespace(file="f", line=number, reason="bad") for number in range(2)), rows=1,
        left=Counter({"too slow": 2, "unknown": 1}), median_error=0.125,
        calibration=SimpleNamespace(fitted_on=("a", "b"), dtype="f16", device="d", runtime="r"),
    )  # fmt: skip
    asked = {}
    monkeypatch.setattr(
        "inferometer.measure.calibrate.from_table.calibrate_from",
        lambda source, **more: asked.update(more, source=source) or fit,
    )
    monkeypatch.setattr("inferometer.measure.calibrate.from_table.save_fit", lambda made, out: (made is fit, out))
    monkeypatch.setattr(calibrate, "_print_calibration", lambda *given: asked.update(printed=given))
    words = ["calibrate", "--from", "atlas", "--dtype", "f16"]
    assert run([*words, "--device", "d", "--runtime", "r", "--format", "csv"]) == 0
    assert asked == {
        "source": "atlas",
        "device": "d",
        "runtime": "r",
        "dtype": "f16",
        "printed": (fit.calibration, (True, None), "csv"),
    }
    assert capsys.readouterr().err.splitlines() == [
        "Set aside 2 rows:", "  f, line 0: bad", "  f, line 1: bad", "Not used: 2 rows: too slow",
        "Not used: 1 row: unknown",
        "1 published step of 2 models fitted in f16; each model left out, the median error is 12.5%.",
        "Saved (True, None). `inferometer predict --on d --runtime r` will use it.",
    ]  # fmt: skip
    assert run([*words, "--device", "d"]) == run([*words, "--runtime", "r"]) == 2


def test_a_calibration_from_elsewhere_is_kept_here_unless_it_is_of_that_machine(monkeypatch, capsys, tmp_path):
    written, printed = [], []
    monkeypatch.setattr("inferometer.predict.basis.files.own_folder", lambda: "own")
    monkeypatch.setattr(
        "inferometer.predict.basis.files.write_calibration",
        lambda made, here: written.append((made.device, here)) or here,
    )
    monkeypatch.setattr(calibrate, "_print_calibration", lambda *given: printed.append(given))

    def result(device):
        made = Calibration(device=device, runtime="r", dtype="f16", created="c")
        return JobResult(job=pack_calibration(None, Calibrating()).job, ended="done", calibration=made, log=" told \n")

    calibrate.print_calibrated(result("local"), None, "json")
    assert (written, printed[0][1:]) == ([], (None, "json"))
    assert capsys.readouterr().err.splitlines() == [
        "told", "The device keeps it for jobs that run there; --out saves it here as well.",
    ]  # fmt: skip
    calibrate.print_calibrated(result("board"), None, "json")
    calibrate.print_calibrated(result("local"), tmp_path, "json")
    assert (written, [one[1] for one in printed[1:]]) == ([("board", "own"), ("local", tmp_path)], ["own", tmp_path])


def test_preparing_for_no_engine_asks_for_all_that_it_was_given(monkeypatch, tmp_path):
    ask = handed(monkeypatch, "inferometer.formats.synth.synthesise")
    out = tmp_path / "m.onnx"
    seen = ask(
        prepare.command,
        "m",
        "-o",
        str(out),
        "--weights",
        "q4_0",
        "--seed",
        "3",
        "--size",
        "a=2",
        "--part",
        "encoder",
        "--overwrite",
    )
    assert (seen.given, seen.asked) == (
        ("m", out), {"weights": "q4_0", "seed": 3, "sizes": {"a": 2}, "part": "encoder", "overwrite": True},
    )  # fmt: skip
    assert ask(prepare.command, "m", "-o", str(out)).asked == {
        "weights": "f32", "seed": 0, "sizes": {}, "part": None, "overwrite": False,
    }  # fmt: skip


def test_an_agent_is_started_as_it_was_asked_for(monkeypatch, tmp_path, capsys):
    token = tmp_path / "token"
    token.write_text(" secret \n")
    started = []
    monkeypatch.setattr("inferometer.hub.agent.serving_hub.serve_hub", started.append)
    monkeypatch.setattr(
        "inferometer.hub.agent.serving_hub.HubAgent", lambda client, plan, seams, **_: (client, plan, seams)
    )
    monkeypatch.setattr("inferometer.hub.box.process.set_oom_score", started.append)
    assert run([
        "agent", "--hub", "http://h:1", "--token-file", str(token), "--name", "pi", "--label", "room=lab", "--root",
        str(tmp_path), "--jobs", "2", "--allow", "native-code", "--box", "none", "--memory-limit", "4 GB",
        "--disk-limit", "50 %", "--no-guard", "--no-reference",
    ]) == 0  # fmt: skip
    score, (client, plan, seams) = started
    assert score == -500
    assert (plan.name, plan.root, plan.labels, plan.jobs) == ("pi", tmp_path, {"room": ["lab"]}, 2)
    assert (seams.guard, seams.reference, seams.settings) == (None, None, {"INFEROMETER_ALLOW": "native-code"})
    assert (seams.box.wish, seams.box.hide) == ("none", (str(token),))
    assert (seams.box.memory, seams.box.disk) == tuple(parse_ceiling(text, "--limit") for text in ("4 GB", "50 %"))
    assert "unencrypted" in capsys.readouterr().err
    assert client.url.startswith("http://h:1")
    started.clear()
    assert run(["agent", "--hub", "http://h:1", "--root", str(tmp_path)]) == 0
    _, (_, plan, seams) = started
    assert (plan.jobs, seams.settings, seams.box.wish, seams.box.hide) == (None, {}, "auto", ())
    assert None not in (seams.guard, seams.reference)
    assert "Jobs run in a box" in capsys.readouterr().err
    with pytest.raises(DomainError, match="cannot be read"):
        agent._read(tmp_path / "absent")
    assert (agent._read(token), agent._read(None)) == ("secret", None)


def test_a_strict_box_that_the_device_lacks_is_refused(monkeypatch):
    monkeypatch.setattr("inferometer.hub.box.found.means_here", lambda: SimpleNamespace(real=False, said="nothing"))
    monkeypatch.setattr("inferometer.hub.agent.serving_hub.serve_hub", lambda _made: None)
    assert run(["agent", "--hub", "http://h:1", "--box", "strict"]) == 2


# Sweeps


def questions(**more):
    return {"pareto": None, "heatmap": None, "by": "usd_per_million_tokens", "cheapest": (), "chart": None, **more}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"pareto": "tpot_s,nothing"}, "nothing"),
        ({"by": "nothing"}, "nothing"),
        ({"heatmap": "batch,context"}, "three columns"),
        ({"heatmap": "batch,context,tpot_s"}, "a file to draw to"),
        ({"chart": Path("a.svg")}, "a Pareto front or a heat map"),
        ({"chart": Path("a.svg"), "pareto": "tpot_s"}, "a Pareto front or a heat map"),
        ({"chart": Path("a.doc"), "pareto": "tpot_s,batch"}, "a.doc"),
        ({"cheapest": ("tpot_s?",)}, "tpot_s"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_anything_is_computed(asked, why):
    with pytest.raises(InferometerError, match=why):
        sweep._require_answerable(questions(**asked))


def test_what_can_be_answered_is_not_refused():
    for asked in ({}, {"pareto": " tpot_s , batch"}, {"chart": Path("a.svg"), "pareto": "tpot_s,batch"},
                  {"chart": Path("a.svg"), "heatmap": "batch,context,tpot_s"},
                  {"cheapest": ("tpot_s<=50ms",)}):  # fmt: skip
        sweep._require_answerable(questions(**asked))


def test_rows_that_are_there_are_not_changed():
    sweep._require_alone(Path("r.csv"), {"models": None}, None)
    for values, out, named in (
        ({"batch": "1"}, None, "--batch"),
        ({"kv_format": "i8"}, None, "--kv-format"),
        ({}, Path("o"), "--out"),
    ):
        with pytest.raises(DomainError, match=f"{named} cannot change them"):
            sweep._require_alone(Path("r.csv"), values, out)


def test_how_far_a_sweep_is():
    def told(**more):
        return sweep._progress_text(
            SimpleNamespace(**{"done": 1, "total": 4, "rate": 2000.0, "remaining_s": None, **more})
        )

    assert told() == f"{'█' * 6}{'·' * 18}  25%  1 of 4 rows, 2,000 rows/s"
    assert told(remaining_s=30.0).endswith(" rows/s, 30 s left")


def test_what_was_written_is_told(monkeypatch, capsys):
    def told(**more):
        made = SimpleNamespace(**{"rows": 1200, "kept": 200, "seconds": 2.0, "impossible": 0, **more})
        seen = {}
        monkeypatch.setattr(
            "inferometer.predict.sweep.stream", lambda *given, **asked: seen.update(asked, given=given) or made
        )
        sweep._write("study", Path("o.csv"), "local:2", resume=True)
        assert (seen["given"], seen["engine"], seen["resume"]) == (("study", Path("o.csv")), "local:2", True)
        return capsys.readouterr().err.strip()

    assert told() == "Wrote 1,200 rows to o.csv, 200 of them from an earlier run (500 rows/s)."
    assert (
        told(kept=0, impossible=3) == "Wrote 1,200 rows to o.csv (600 rows/s). 3 of them are impossible, and say why."
    )
    assert told(rows=1, kept=0, seconds=0.0) == "Wrote 1 row to o.csv (0 rows/s)."


# Elsewhere, and where runs are kept


def test_on_names_one_place_and_one_device():
    assert elsewhere.place_and_device(()) == (None, None)
    assert elsewhere.place_and_device(("ssh://pi", "nvidia-l4")) == ("ssh://pi", "nvidia-l4")
    assert elsewhere.place_and_device(("nvidia-l4",)) == (None, "nvidia-l4")
    for wrong, why in ((("ssh://a", "hub:b"), "two places"), (("nvidia-l4", "nvidia-t4"), "two devices")):
        with pytest.raises(DomainError, match=why):
            elsewhere.place_and_device(wrong)
    with pytest.raises(UnknownNameError, match="http"):
        elsewhere.place_and_device(("http://x",))


def test_a_hub_is_told_what_its_run_is_called():
    assert elsewhere.for_hub("ssh://a", "p", "n", ("t",)) == "ssh://a"
    assert elsewhere.for_hub("hub:a", "default", None, ()) == "hub:a"
    assert elsewhere.for_hub("hub:a", "p q", "n", ("s", "t")) == "hub:a?project=p%20q&name=n&tags=s%2Ct"
    assert elsewhere.for_hub("hub:a?x=1", "default", "n", ()) == "hub:a?x=1&name=n"
    assert [elsewhere.keeps_runs(place) for place in (None, "hub:a", "ssh://hub:a")] == [False, True, False]
    assert [elsewhere.waits(place) for place in ("bundle:x.zip", "ssh://a")] == [True, False]


def test_what_went_wrong_elsewhere_has_its_kind():
    def error(**more):
        return elsewhere.error_of(
            replace(JobResult(job=pack_calibration(None, Calibrating()).job, ended="failed"), **more)
        )

    assert (type(error(error="No.", error_kind="PlaceError")), error(error="No.").message) == (PlaceError, "No.")
    assert type(error(error="No.", error_kind="UnknownNameError")) is DomainError
    for kind in (None, "Nothing"):
        assert type(error(error="No.", error_kind=kind)) is EngineError
    assert error().message == "The job ended without a result (failed)."
    assert error(error="No.", log="a\n\n", ended="lost").message == "No. Its log ends with: a"
    assert error(error="No.", log="a\nb", ended="failed").message == "No."
    assert error(error="No.", remedy="Do.").remedy == "Do."


OPTIONS = {
    "project": "p",
    "tags": ("t",),
    "name": "n",
    "no_store": False,
    "store": "s",
    "hub": None,
    "token": None,
    "token_file": None,
}


def test_a_recorder_has_what_the_options_ask_for(monkeypatch, tmp_path):
    asked = {}

    def recording(project, **more):
        asked.update(more, project=project)
        return SimpleNamespace(then=None)

    monkeypatch.setattr("inferometer.store.recording.recording", recording)
    monkeypatch.setattr(storing, "value_of", lambda _name: None)
    file = tmp_path / "m.onnx"
    file.write_bytes(b"")
    assert storing.recording_from(OPTIONS, kind="bench", model=str(file), job="7").then is None
    assert asked == {
        "project": "p", "store": "s", "enabled": True, "name": "n", "tags": ("t",), "kind": "bench",
        "parameters": {"model": str(file), "job": "7"}, "subject": {"model": "m.onnx"},
    }  # fmt: skip
    storing.recording_from(OPTIONS, kind="bench", enabled=False, model="resnet50")
    assert (asked["enabled"], asked["subject"]) == (False, {"model": "resnet50"})
    storing.recording_from({**OPTIONS, "no_store": True}, kind="bench")
    assert (asked["enabled"], asked["subject"]) == (False, {})
    with pytest.raises(DomainError, match="--no-store stores none"):
        storing.recording_from({**OPTIONS, "no_store": True, "hub": "http://h"}, kind="bench")
    made = []
    monkeypatch.setattr(storing, "hub_client", lambda *given: made.append(given))
    pushed = storing.recording_from({**OPTIONS, "hub": "http://h", "token": "x"}, kind="bench")
    assert (made, pushed.then is not None) == ([("http://h", "x", None)], True)
    assert storing.recording_from({**OPTIONS, "hub": "http://h"}, kind="bench", enabled=False).then is None


def test_the_token_is_read_from_its_file_and_told_where_it_goes_unencrypted(monkeypatch, tmp_path, capsys):
    file = tmp_path / "token"
    file.write_text(" s3\n")
    seen = []
    monkeypatch.setattr("inferometer.hub.places.hub_client.hub_address", lambda *given: seen.append(given) or "address")
    monkeypatch.setattr(
        "inferometer.hub.places.hub_client.HubClient", lambda _: SimpleNamespace(in_the_clear=True, url="http://h")
    )
    storing.hub_client("http://h", None, file)
    storing.hub_client("http://h", "given", file)
    assert seen == [("http://h", "s3"), ("http://h", "given")]
    assert "the token goes to http://h unencrypted" in capsys.readouterr().err
    with pytest.raises(DomainError, match="cannot be read"):
        storing.read_token(tmp_path)


def test_what_was_sent_and_what_waits_is_told(monkeypatch, capsys):
    def said(*answers):
        monkeypatch.setattr("inferometer.hub.places.hub_client.push", lambda *_: answers)
        storing._push_and_say(SimpleNamespace(url="u"), "store", "r")
        return capsys.readouterr().err.splitlines()

    def answer(run_id, **more):
        return SimpleNamespace(**{"run": run_id, "link": None, "waits": False, "reason": "No.", **more})

    assert said(answer("a", link="l")) == ["Run a is at l"]
    assert said(answer("a", waits=True), answer("b", waits=True, reason="Away.")) == [
        "inferometer: Away. 2 runs waiting: `inferometer export --hub u` sends them."
    ]
    assert said(answer("a")) == ["inferometer: No."]
    assert [export._state(one) for one in (answer("a", link="l"), answer("a", waits=True), answer("a"))] == [
        "sent",
        "waiting",
        "refused",
    ]


# Bundles


def test_a_bundle_has_the_measurement_and_whom_it_is_for(monkeypatch, tmp_path, capsys):
    seen = {}
    place = SimpleNamespace(submit=lambda job, files: seen.update(job=job, files=files))
    monkeypatch.setattr(
        "inferometer.hub.places.bundle.BundlePlace", lambda out, **more: seen.update(more, out=out) or place
    )
    monkeypatch.setattr(
        "inferometer.hub.places.requests.pack_measurement",
        lambda *given: seen.update(packed=given) or SimpleNamespace(job="j", files="f"),
    )
    out = tmp_path / "job.zip"
    result = CliRunner().invoke(
        bundle.command,
        [
            "create",
            "m",
            "-o",
            str(out),
            "--target",
            "t",
            "--leave",
            "torch",
            "--text",
            "hi",
            "--no-predict",
            "--verify",
            "r",
            "--batch",
            "3",
        ],
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    verb, asked, judging = seen["packed"]
    assert (verb, asked.model, asked.words, asked.workload.batch) == ("profile", "m", "hi", 3)
    assert (judging.predict, judging.against) == (False, "r")
    assert (seen["out"], seen["target"], seen["leave"], seen["job"], seen["files"]) == (out, "t", ("torch",), "j", "f")
    assert "python job.zip" in result.output


# The progress line


def test_the_line_is_drawn_at_most_ten_times_a_second_and_wiped(monkeypatch):
    written, times = [], iter([10.0, 10.05, 10.06, 10.2])
    stream = SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    monkeypatch.setattr(progress.sys, "stderr", stream)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with progress.progress_line(str) as draw:
        for line in ("runs 1", "runs 2", "warmup 1", "warmup 2"):
            draw(line)
    assert written == ["\r\x1b[Kruns 1", "\r\x1b[Kwarmup 1", "\r\x1b[Kwarmup 2", "\r\x1b[K"]


def test_a_log_gets_a_line_now_and_then(monkeypatch):
    written, times = [], iter([0.0, 5.0, 25.0, 30.0, 50.0])
    stream = SimpleNamespace(isatty=lambda: False, write=written.append, flush=lambda: None)
    monkeypatch.setattr(progress.sys, "stderr", stream)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with progress.progress_line(str) as draw:
        for line in ("runs 1", "runs 2", "runs 3", "runs 4"):
            draw(line)
    assert written == ["runs 2\n", "runs 4\n"]


def test_a_step_is_a_bar_once_there_is_something_to_show():
    def text(share, done):
        return progress.step_text(SimpleNamespace(stage="runs", share=share, done=done))

    assert text(0.0, 0) == "runs …"
    assert text(0.5, 3) == f"runs     {'█' * 12}{'·' * 12}  50%  3"
    assert text(0.25, 0) == f"runs     {'█' * 6}{'·' * 18}  25%  0"


# Measuring commands


def test_the_plan_of_a_bench_is_what_was_asked_for():
    with bench.command.make_context("bench", [
        "--runs", "7", "--seconds", "2s", "--runs-at-most", "9", "--seconds-at-most", "3s", "--warmup", "4",
        "--timeout", "5s", "--memory-limit", "2GB", "--cooldown", "6s", "--seed", "8", "--", "true",
    ]) as context:  # fmt: skip
        plan = bench.plan_from(context.params)
    assert (plan.runs, plan.seconds, plan.runs_at_most, plan.seconds_at_most) == (7, 2.0, 9, 3.0)
    assert (plan.warmup, plan.timeout_s, plan.memory_bytes, plan.cooldown_s, plan.seed) == (
        4,
        5.0,
        2_000_000_000,
        6.0,
        8,
    )
    request = bench._model_request("m", "r", plan, guarded=False, strict=True)
    assert (request.limits.silence_s, request.limits.memory_bytes, request.seed) == (5.0, 2_000_000_000, 8)
    assert (request.shape, request.guarded, request.strict, request.runtime) == (False, False, True, "r")


def test_a_provider_of_identities_is_named_by_options_or_settings(monkeypatch, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(" s \n")
    settings = {}
    monkeypatch.setattr(hub, "value_of", settings.get)
    monkeypatch.setattr("inferometer.hub.web.guard.oidc.require_oidc", lambda: None)
    assert hub._oidc_rules(None, None, None, ()) is None
    with pytest.raises(DomainError, match="client-id"):
        hub._oidc_rules("https://i", None, None, ())
    found = hub._oidc_rules("https://i", "c", str(secret), ("a@b",))
    assert (found.issuer, found.client_id, found.client_secret, found.allow) == ("https://i", "c", "s", ("a@b",))
    settings.update({
        "INFEROMETER_OIDC_ISSUER": "https://j", "INFEROMETER_OIDC_CLIENT_ID": "d", "INFEROMETER_OIDC_ALLOW": " x , ,y",
        "INFEROMETER_OIDC_CLIENT_SECRET_FILE": str(secret),
    })  # fmt: skip
    found = hub._oidc_rules(None, None, None, ())
    assert (found.issuer, found.client_id, found.client_secret, found.allow) == ("https://j", "d", "s", ("x", "y"))
    with pytest.raises(DomainError, match="cannot be read"):
        hub._oidc_rules("https://i", "c", str(tmp_path / "absent"), ())


def test_a_store_may_be_named_by_the_group():
    above = SimpleNamespace(params={"store": "above"})
    parameter = SimpleNamespace(name="store")
    assert storing._or_from_the_group(SimpleNamespace(parent=above), parameter, "own") == "own"
    assert storing._or_from_the_group(SimpleNamespace(parent=above), parameter, None) == "above"
    assert storing._or_from_the_group(SimpleNamespace(parent=None), parameter, None) is None


# What a command asks for, and the functions and values that have the same fields with the same defaults.
ASKED_BY = {
    "bench": (Plan, Criteria), "compare": (Criteria,), "profile": (im.profile, im.verify, Criteria),
    "bundle create": (im.profile,), "load": (im.load, LoadPlan), "simulate": (im.simulate,), "plan": (im.plan,),
    "prepare": (im.prepare,), "runs watch": (watch, AlarmRule), "hub": (Rules,), "sweep": (im.sweep,),
    "predict": (im.predict,), "atlas": (im.atlas,),
}  # fmt: skip
OTHERWISE = {("plan", "kv"), ("plan", "engine"), ("sweep", "batch")} | {
    ("sweep", each) for each in "tp pp ep dp".split()
}


def command_at(path):
    found = cli
    for name in path.split():
        found = found.get_command(click.Context(found), name)
    return found


def defaults_of(path):
    """The default of each option of a command, as its text says it; None where nothing is meant."""
    command = command_at(path)
    context = click.Context(command)
    given = {each.name: each.get_default(context) for each in command.params if isinstance(each, click.Option)}
    return {
        name: value if isinstance(value, bool | int | float | str) and value else None for name, value in given.items()
    }


def as_written(value, default):
    """A field's default as an option's text would be read: 128 for lengths of 128 tokens, 60.0 for 60 s."""
    value = value.mean if isinstance(value, Lengths) else value
    if isinstance(default, str) and isinstance(value, int | float) and not isinstance(value, bool):
        default = parse_quantity(default, "1" if default.endswith("%") or default.isdecimal() else "s")
    return value or None, default or None


@pytest.mark.parametrize("path", ASKED_BY)
def test_a_command_left_alone_asks_what_its_function_left_alone_asks(path):
    given, compared = defaults_of(path), 0
    for asked in ASKED_BY[path]:
        fields = signature(asked).parameters
        for name, default in given.items():
            field = fields.get(name) or fields.get(f"{name}_s")
            if field is not None and field.default is not Parameter.empty and (path, name) not in OTHERWISE:
                meant, read = as_written(field.default, default)
                assert read == meant, f"{path} {name}: {default!r} is not {field.default!r} of {asked.__name__}"
                compared += 1
    assert compared


def test_what_several_commands_say_when_nothing_is_said_is_what_their_values_say():
    box, agent_ = BoxOrder(), defaults_of("hub agent")
    assert (agent_["box"], *(parse_ceiling(agent_[f"{name}_limit"], name) for name in ("memory", "disk"))) == (
        box.wish, box.memory, box.disk,
    )  # fmt: skip
    silent = {parse_quantity(defaults_of(path)["timeout"], "s") for path in ("profile", "bundle create")}
    assert silent == {ChildLimits().silence_s}
    kept = {
        path: defaults_of(path)["project"] for path in ("bench", "profile", "load", "simulate", "import", "prepare")
    }
    assert set(kept.values()) == {"default"}
