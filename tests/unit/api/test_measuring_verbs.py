"""What the verbs that measure, explain and compare with others hand on, in which order, and to whom."""

import inspect
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.api import explanations, measurements, naming
from inferometer.core.errors import DomainError, InferometerError, SchemaError
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import Environment, Provenance
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.known.atlas.looking import AtlasComparison
from inferometer.measure.calibrate import from_table as calibrating
from inferometer.measure.run.isolate import ChildLimits
from inferometer.measure.run.model import MeasuredRun, MeasureRequest
from inferometer.predict import published, published_rows
from inferometer.predict.flags import options_from
from inferometer.predict.options import Battery, EnergyCosts, Offload, Options
from inferometer.understand.accuracy import edgeprofiler
from inferometer.understand.accuracy.edgeprofiler import MODELS
from unit.store.profiles import profile

PLAIN = profile()
ASKED = MeasureRequest(model="m")


def run_of(*profiles, complete=True, **more):
    return MeasuredRun(
        profiles=profiles or (PLAIN,), graph="graph", raw=SimpleNamespace(environment=None), complete=complete, **more
    )


# What is asked of a measurement


def test_a_profile_asks_for_all_that_it_was_given(monkeypatch):
    seen = {}

    def judged(asked, **more):
        seen.update(more, asked=asked)
        return run_of(strict=True)

    monkeypatch.setattr(measurements, "measure_and_judge", judged)
    given = {name: f"value of {name}" for name in list(inspect.signature(measurements.profile).parameters)[1:]}
    given |= {"batch": 3, "prompt": 4, "generate": 5, "context": 6, "image": 7, "trust": ["a", "b"], "threads": 8}
    given["loop"] = "bare"
    given["activations"] = given["precision"]  # one is an older name of the other
    assert measurements.profile("m", **given) is PLAIN
    kept = {
        "activations",
        "predict",
        "on",
        "batch",
        "prompt",
        "generate",
        "context",
        "image",
        "engine_options",
        "trust",
    }
    asked = seen["asked"]
    assert {name: getattr(asked, name) for name in given.keys() - kept} == {
        name: given[name] for name in given.keys() - kept
    }
    assert asked.workload == Workload(batch=3, prompt=4, generate=5, context=6, image=7)
    assert (asked.model, asked.options, asked.trust) == ("m", given["engine_options"], ("a", "b"))
    assert (seen["predict"], seen["on"]) == (given["predict"], given["on"])
    for older in (None, "f16"):
        measurements.profile("m", activations="bf16", precision=older)
        assert seen["asked"].precision == "bf16"
    measurements.profile("m")
    assert seen["asked"] == replace(ASKED, workload=Workload(), limits=ChildLimits())
    assert (seen["predict"], seen["on"]) == (True, None)


def test_a_strict_profile_of_a_disturbed_machine_is_an_error(monkeypatch):
    disturbed = replace(
        run_of(strict=True), raw=SimpleNamespace(environment=Environment(disturbed=True, reasons=("by x",)))
    )
    monkeypatch.setattr(measurements, "measure_and_judge", lambda *_, **__: disturbed)
    with pytest.raises(InferometerError, match="disturbed by x"):
        measurements.profile("m", strict=True)


def test_a_verification_asks_for_all_that_it_was_given(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        measurements, "verify_against", lambda asked, against, **more: seen.update(more, asked=asked, against=against)
    )
    given = {
        "runtime": "r", "precision": "f16", "threads": 2, "unit": "gpu", "seed": 9, "sizes": {"heads": 2},
    }  # fmt: skip
    measurements.verify(
        "m",
        against="other",
        reference_model="old",
        tolerance="t",
        batch=3,
        prompt=4,
        generate=5,
        image=7,
        trust=["a"],
        **given,
    )
    workload = Workload(batch=3, prompt=4, generate=5, image=7)
    assert seen == {
        "against": "other", "model": "old", "tolerance": "t",
        "asked": MeasureRequest(model="m", workload=workload, trust=("a",), **given),
    }  # fmt: skip


# In which order, and by what it is judged


@pytest.fixture
def order(monkeypatch):
    """What happens, in its order; devices are their names, and a judged profile says what it was judged by."""
    happened = []
    monkeypatch.setattr(measurements, "runtime_named", lambda name: name)
    monkeypatch.setattr(measurements, "require_ready", lambda name: happened.append(f"{name} is ready"))
    monkeypatch.setattr(
        "inferometer.predict.ask.device_for", lambda name: SimpleNamespace(name=str(name).partition(":")[0])
    )

    def roof(device, *, fresh=False):
        happened.append(f"roof of {device.name}{', fresh' if fresh else ''}")
        return f"roof of {device.name}"

    def judge(one, device, *, graph, roof, sizes):
        happened.append(f"judged {one.device.name} by {device.name}, {graph}, {roof}, {dict(sizes)}")
        return one, ("a note",)

    monkeypatch.setattr("inferometer.predict.basis.roof.roof_for", roof)
    monkeypatch.setattr("inferometer.understand.judging.judge_profile", judge)
    monkeypatch.setattr("inferometer.measure.run.beside.remarks", lambda _one, *, cores: (f"{cores} cores",))
    cpu = SimpleNamespace(cpu=SimpleNamespace(physical_cores=6))
    monkeypatch.setattr(measurements, "detect_host", lambda: cpu)

    def measure(asked, *, progress):
        happened.append(f"measured {asked.model} {progress}")
        return measure.result

    measure.result, measure.happened = run_of(profile(device="local"), sizes={"n": 2}), happened
    monkeypatch.setattr(measurements, "measure_model", measure)
    return measure


def test_the_roof_is_measured_before_the_run_that_it_judges(order):
    known = replace(order.result.profile, provenance=Provenance(tool="t", version="1", created="c", notes=("own",)))
    order.result = replace(order.result, profiles=(known, PLAIN))
    found = measurements.measure_and_judge(ASKED, progress="shown")
    assert order.happened == [
        "roof of local, fresh", "measured m shown", "judged local by local, graph, roof of local, {'n': 2}",
        "judged phone by local, graph, roof of local, {'n': 2}",
    ]  # fmt: skip
    assert found.profiles[0].provenance.notes == ("own", "a note", "6 cores")
    assert found.profiles[1] is PLAIN  # nothing says where it is from: there is no place for notes


def test_a_run_that_beats_its_roof_is_judged_again_by_a_better_one_and_taught_with_it(order, monkeypatch):
    known = replace(order.result.profile, provenance=Provenance(tool="t", version="1", created="c"))
    order.result = replace(order.result, profiles=(known,))
    beaten = lambda _device, roof, _judged, _judge: (f"better {roof}", ("read too low",))  # noqa: E731
    monkeypatch.setattr("inferometer.understand.beaten_roof.unbeaten_roof", beaten)
    taught = []
    monkeypatch.setattr(measurements, "_learned", lambda run, _device, roof: (taught.append(roof), run)[1])
    monkeypatch.setattr(measurements.settings, "learns", lambda: True)
    found = measurements.measure_and_judge(ASKED)
    assert order.happened[2:] == [
        "judged local by local, graph, roof of local, {'n': 2}",
        "judged local by local, graph, better roof of local, {'n': 2}",
    ]  # fmt: skip
    assert found.profile.provenance.notes == ("a note", "read too low", "6 cores")
    assert taught == ["better roof of local"]


def test_only_a_whole_run_that_is_as_it_is_predicted_teaches(order, monkeypatch):
    taught, learns = [], True
    monkeypatch.setattr(measurements, "_learned", lambda run, *_: (taught.append(run), run)[1])
    monkeypatch.setattr(measurements.settings, "learns", lambda: learns)

    def teaches(on=None, *, complete=True, **changes):
        taught.clear()
        order.result = run_of(complete=complete)
        measurements.measure_and_judge(replace(ASKED, **changes), on=on)
        return bool(taught)

    assert teaches()
    assert teaches(weights="i4", threads=2)  # a prediction is asked with these
    for changes in (
        {"on": "board"}, {"complete": False}, {"providers": ("p",)}, {"optimisation": "all"}, {"options": {"a": "b"}},
        {"precision": "f16"},
    ):  # fmt: skip
        assert not teaches(**changes), changes
    learns = False
    assert not teaches()


def test_a_run_on_a_gpu_is_judged_by_it_and_one_on_a_named_device_by_that(order):
    order.result = run_of(profile(device="gpu0"))
    measurements.measure_and_judge(ASKED)
    assert order.happened == [
        "roof of local, fresh", "measured m None", "roof of gpu0, fresh",
        "judged gpu0 by gpu0, graph, roof of gpu0, {}",
    ]  # fmt: skip
    order.happened.clear()
    known = replace(PLAIN, provenance=Provenance(tool="t", version="1", created="c"))
    order.result = run_of(known)
    found = measurements.measure_and_judge(ASKED, on="board")
    assert order.happened[0] == "roof of board, fresh"
    assert order.happened[2:] == ["judged phone by board, graph, roof of board, {}"]
    assert found.profile.provenance.notes == ("a note", "None cores")  # cores of another machine are not counted


def test_what_is_not_to_be_predicted_is_not_judged(order):
    assert measurements.measure_and_judge(ASKED, predict=False) is order.result
    assert order.happened == ["measured m None"]


def test_only_a_complete_run_is_verified_and_a_reference_that_fails_leaves_it_unchecked(order, monkeypatch):
    seen = []
    monkeypatch.setattr(
        measurements, "verify_against", lambda *given, model: seen.append((*given, model)) or "verified"
    )
    found = measurements.measure_and_judge(ASKED, predict=False, reference="other", reference_model="old")
    assert (order.happened, seen) == (["other is ready", "measured m None"], [(ASKED, "other", "old")])
    assert [one.verification for one in found.profiles] == ["verified"]

    def refuses(*_, **__):
        raise InferometerError("No.")

    monkeypatch.setattr(measurements, "verify_against", refuses)
    unchecked = measurements.measure_and_judge(ASKED, predict=False, reference="other").profile.verification
    assert (unchecked.status, unchecked.reference, unchecked.reason) == ("unchecked", "other", "No.")
    order.result = run_of(complete=False)
    assert measurements.measure_and_judge(ASKED, predict=False, reference="other").profile.verification is None


def test_each_run_is_learned_from_and_kept_and_says_what_it_did_not_teach(monkeypatch):
    told = Provenance(tool="t", version="1", created="c", notes=("before",))
    odd, usual, bare = (replace(PLAIN, runtime=name, provenance=told) for name in ("odd", "usual", "bare"))
    bare = replace(bare, provenance=None)
    asked = []

    def question(profile, *given, **more):
        asked.append((profile.runtime, *given, more))
        return f"of {profile.runtime}", ()

    def learn(profile, behind):
        assert behind == f"of {profile.runtime}"
        return () if profile is usual else ("too slow",)

    monkeypatch.setattr("inferometer.understand.judging.question_behind", question)
    monkeypatch.setattr("inferometer.predict.basis.learned.learn_from", learn)
    run = run_of(odd, usual, bare, sizes={"heads": 2})
    taught = measurements._learned(run, "device", "roof")
    noted = replace(odd, provenance=replace(told, notes=("before", "too slow")))
    assert taught == replace(run, profiles=(noted, usual, bare))
    more = {"roof": "roof", "sizes": {"heads": 2}}
    assert asked == [(name, "graph", "device", more) for name in ("odd", "usual", "bare")]


def test_a_pair_is_measured_in_turns_and_each_is_judged(order, monkeypatch):
    old, new = run_of(profile(device="local")), run_of(profile(device="gpu0"))
    seen = {}
    monkeypatch.setattr(
        "inferometer.measure.run.against.measure_in_turns",
        lambda baseline, asked, progress: seen.update(pair=(baseline, asked), progress=progress) or (old, new),
    )
    baseline = MeasureRequest(model="old")
    assert measurements.measure_pair_and_judge(baseline, ASKED, predict=False, progress="p") == (old, new)
    assert (seen, order.happened) == ({"pair": (baseline, ASKED), "progress": "p"}, [])
    measurements.measure_pair_and_judge(baseline, ASKED)
    assert [line.partition(",")[0] for line in order.happened] == [
        "roof of local", "judged local by local", "roof of gpu0", "judged gpu0 by gpu0",
    ]  # fmt: skip
    order.happened.clear()
    measurements.measure_pair_and_judge(baseline, ASKED, on="board")
    assert [line.partition(",")[0] for line in order.happened] == [
        "roof of board", "judged local by board", "judged gpu0 by board",
    ]  # fmt: skip


# Explaining


@pytest.fixture
def explaining(monkeypatch):
    seen = {}
    monkeypatch.setattr(explanations, "profile_of", lambda what, store: replace(PLAIN, runtime=f"{what} {store}"))
    monkeypatch.setattr(explanations.explanation, "explain", lambda one, **more: {"profile": one, **more})
    monkeypatch.setattr(explanations, "device_behind", lambda _one, on: (seen.get("device"), f"device by {on}"))
    monkeypatch.setattr(explanations, "graph_behind", lambda _one, *, files: ("graph", f"files {files}"))
    monkeypatch.setattr("inferometer.predict.basis.roof.roof_for", lambda device: f"roof of {device}")
    monkeypatch.setattr(
        explanations, "judge_profile",
        lambda one, device, *, graph, roof: (seen.update(judged=(one.runtime, device, graph, roof)) or one, ("more",)),
    )  # fmt: skip
    monkeypatch.setattr(explanations, "other_machine", lambda _one: seen.get("elsewhere"))
    return seen


def test_a_profile_is_judged_by_the_device_that_is_named(explaining):
    explaining["device"] = "board"
    found = explanations.explain(Path("run.json"), on="board", store="s")
    assert (found["name"], found["notes"]) == ("run.json", ("device by board", "files True", "more"))
    assert explaining["judged"] == ("run.json s", "board", "graph", "roof of board")
    assert explanations.explained(PLAIN, on="board")["name"] == "resnet50"
    explaining["device"] = None
    explanations.explained(PLAIN, on="board")
    assert explaining["judged"][1:] == (None, "graph", None)


def test_a_profile_from_elsewhere_reads_no_file_and_has_no_roof(explaining):
    explaining["device"] = "board"
    assert explanations.explained(PLAIN)["notes"] == ("device by None", "files False", "more")
    assert explaining["judged"][3] is None


def test_a_judged_measurement_is_explained_as_it_is(explaining):
    judged = replace(PLAIN, judged_by="basis")
    assert explanations.explained(judged, name="n") == {"profile": judged, "notes": (), "name": "n"}
    for other in (replace(judged, kind="predicted"), PLAIN):
        assert explanations.explained(other)["notes"]
    assert explanations.explained(judged, on="board")["notes"]


def test_a_run_of_another_machine_is_not_explained_as_one_of_this(explaining):
    explaining["elsewhere"] = MachineFacts(id="1" * 16, name="pi")
    found = explanations.explained(PLAIN, on="local:cpu")
    assert found["notes"][0].startswith("local:cpu is another machine here: the run was made on pi")
    assert found["notes"][1:] == ("device by None", "files False", "more")
    assert len(explanations.explained(PLAIN, on="board")["notes"]) == 3
    assert explanations.explained(PLAIN, on="local")["notes"][0].startswith("local is another machine here")


# Beside what others say


def test_edgeprofiler_answers_for_every_device_model_and_format(monkeypatch):
    monkeypatch.setattr(edgeprofiler, "edge_rows", lambda *given: [given])
    monkeypatch.setattr(edgeprofiler, "edge_model", lambda graph, sequence: (graph, sequence))
    monkeypatch.setattr(edgeprofiler, "edge_hardware", lambda device: f"rates of {device}")
    monkeypatch.setattr(edgeprofiler, "model_graph", lambda name: f"graph of {name}")
    monkeypatch.setattr(edgeprofiler, "device_for", lambda name: name)
    rows = edgeprofiler.edgeprofiler_rows(["tinyllama-1b", "m"], ["raspberry-pi-5", "d"])
    own, every = edgeprofiler.HARDWARE["raspberry-pi-5"], ("FP32", "FP16", "INT8")
    tiny, other = MODELS["tinyllama-1b"], ("graph of m", 1024)
    assert rows == [
        ("tinyllama-1b", tiny, own, every), ("m", other, own, every),
        ("tinyllama-1b", tiny, "rates of d", every), ("m", other, "rates of d", every),
    ]  # fmt: skip
    assert edgeprofiler.edgeprofiler_rows(["tinyllama-1b", "m"], ["d"], ["i8", "f32"], prompt=7) == [
        ("tinyllama-1b", replace(tiny, sequence=7), "rates of d", ("INT8", "FP32")),
        ("m", ("graph of m", 7), "rates of d", ("INT8", "FP32")),
    ]
    with pytest.raises(DomainError, match="no format 'q4_0'"):
        edgeprofiler.edgeprofiler_rows(["m"], ["d"], ["i8", "q4_0"])


def question(**more):
    given = {
        "prefill_on": None,
        "options": Options(),
        "graph": SimpleNamespace(metadata={"default_sizes": {"image": 224}}),
    }
    return SimpleNamespace(**{**given, **more})


def phases(*times):
    return tuple(
        replace(PLAIN.phases[0], name=name, time_s=time)
        for name, time in zip(("forward", "prefill", "decode"), times, strict=True)
    )


def test_a_phase_is_compared_under_its_own_conditions(monkeypatch):
    asked = []
    measured = SimpleNamespace(seconds=2.0)
    monkeypatch.setattr(
        published,
        "nearest_published",
        lambda one: asked.append(one) or (measured if one.quantity != "prefill" else None),
    )
    workload = Workload(
        batch=3, prompt=100, generate=31, precision=Precision(weights="i4", activations="bf16"), parallel=Parallel(tp=2)
    )
    one = replace(
        PLAIN,
        workload=workload,
        phases=phases(1.0, 3.0, 5.0),
        arithmetic=("i8",),
        device=replace(PLAIN.device, count=2),
    )
    found = published.published_beside(question(), one)
    assert [(beside.phase, beside.predicted_s, beside.apart) for beside in found] == [
        ("forward", 1.0, -0.5),
        ("decode", 5.0, 1.5),
    ]
    same = {
        "model": "resnet50", "device": "phone", "engine": "onnxruntime", "weights": "i4", "activations": "bf16",
        "computed": frozenset({"i8", "bf16"}), "count": 2, "batch": 3, "prompt": 100, "generate": 31, "context": 115,
    }  # fmt: skip
    assert asked == [
        AtlasComparison(quantity="forward", image=224, **same), AtlasComparison(quantity="prefill", **same),
        AtlasComparison(quantity="decode", **same),
    ]  # fmt: skip
    asked.clear()
    alone = replace(one, workload=Workload(context=9, image=64), phases=phases(1.0, 0.0, 0.0), arithmetic=())
    published.published_beside(question(), alone)
    assert asked == [
        AtlasComparison(
            model="resnet50", device="phone", quantity="forward", engine="onnxruntime", count=2, image=64, context=9
        )
    ]
    asked.clear()
    assert published.published_beside(question(prefill_on="d"), one) == ()
    assert published.published_beside(question(options=SimpleNamespace(speculative="draft")), one) == ()
    assert asked == []


def test_a_figure_is_asked_by_the_catalogs_own_name(monkeypatch):
    monkeypatch.setattr(published_rows, "same_models", lambda name: {"timm:b", "z", "y"} if name == "timm:b" else set())
    assert (published_rows._askable("timm:b"), published_rows._askable("other")) == ("y", "other")
    asked = {}

    def ask(model, **given):
        asked.update(given, model=model)
        return SimpleNamespace(answer=lambda: SimpleNamespace(phase=lambda name: f"phase {name}"))

    monkeypatch.setattr(published_rows, "ask", ask)
    published_rows._phase.cache_clear()
    assert published_rows._phase("m", "d", "ideal", "decode", (("batch", 2),)) == "phase decode"
    assert asked == {"model": "m", "on": "d", "runtime": "ideal", "calibrated": False, "batch": 2}
    published_rows._phase("m", "d", None, "decode", ())
    assert (asked["runtime"], asked["calibrated"]) == (None, True)
    published_rows._phase.cache_clear()


def test_a_floor_needs_a_peak_and_a_bandwidth_of_the_devices_own(monkeypatch):
    devices = {
        "whole": SimpleNamespace(peaks={"f32": 1}, memory=SimpleNamespace(bandwidth_bytes_per_s=1)),
        "no peak": SimpleNamespace(peaks={}, memory=SimpleNamespace(bandwidth_bytes_per_s=1)),
        "no memory": SimpleNamespace(peaks={"f32": 1}, memory=None),
        "no rate": SimpleNamespace(peaks={"f32": 1}, memory=SimpleNamespace(bandwidth_bytes_per_s=None)),
    }
    monkeypatch.setattr(published_rows, "device_named", devices.__getitem__)
    assert [published_rows.has_own_figures.__wrapped__(name) for name in devices] == [True, False, False, False]


def test_a_calibration_is_fitted_to_the_atlas_or_to_a_file(monkeypatch, tmp_path):
    monkeypatch.setattr(calibrating, "calibration_from", lambda rows, **given: {"rows": rows, **given})
    monkeypatch.setattr(calibrating, "device_named", lambda name: SimpleNamespace(name=name.lower()))
    table = SimpleNamespace(rows=lambda: iter("ab"), where=lambda device: SimpleNamespace(rows=lambda: iter([device])))
    monkeypatch.setattr(calibrating, "load", lambda: table)
    monkeypatch.setattr(calibrating, "read_atlas", lambda path: SimpleNamespace(table=table, set_aside=(path.name,)))
    same = {"device": "pi", "runtime": "r", "impossible": published_rows.impossible}
    assert calibrating.calibrate_from("atlas", device="Pi", runtime="r") == {
        "rows": ("pi",), "dtype": None, "set_aside": (), **same,
    }  # fmt: skip
    assert calibrating.calibrate_from(tmp_path / "x.csv", device="Pi", runtime="r", dtype="f16") == {
        "rows": ("a", "b"), "dtype": "f16", "set_aside": ("x.csv",), **same,
    }  # fmt: skip
    monkeypatch.setattr(calibrating, "write_calibration", lambda made, out: (made, out))
    monkeypatch.setattr(calibrating, "own_folder", lambda: "own")
    fit = SimpleNamespace(calibration="made")
    assert [calibrating.save_fit(fit), calibrating.save_fit(fit, tmp_path)] == [("made", "own"), ("made", tmp_path)]


# Names and flags


def test_a_file_is_ours_or_another_tools_and_a_broken_one_of_ours_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.engines.results.detect.import_file", lambda path: (path.name,))
    other, ours = tmp_path / "other.json", tmp_path / "ours.json"
    other.write_text('{"results": []}')
    ours.write_text('{"schema": "inferometer.profile/1"}')
    assert naming.profiles_in(other) == ("other.json",)
    with pytest.raises(SchemaError):
        naming.profiles_in(ours)
    with pytest.raises(DomainError, match="no store"):
        naming.profile_named("x", tmp_path / "none.db")


def test_without_a_place_the_store_is_the_users_own(monkeypatch):
    monkeypatch.setattr("inferometer.store.store.open_store", lambda location: ("opened", location))
    assert naming.open_chosen(None) == ("opened", None)


def test_flags_are_set_above_those_before():
    before = Options(
        overrides={"a": "f16"}, offload=Offload(layers=3), battery=Battery(capacity_j=5.0, per_s=2.0),
        energy=EnergyCosts(joules_per_flop=1.0, joules_per_byte=2.0), host_call_s=9e-6, chunk=4,
    )  # fmt: skip
    assert options_from({}, before) == before
    found = options_from(
        {"override": ("b=q4_0", "x=y=i8"), "offload_experts": True, "battery_efficiency": 0.5, "joules_per_byte": "3J",
         "host_speed": "0.8", "pue": "1.25", "tokenise": "2us", "storage": "2GB/s"},
        before,
    )  # fmt: skip
    assert found.overrides == {"a": "f16", "b": "q4_0", "x=y": "i8"}
    assert found.offload == Offload(layers=3, experts=True)
    assert found.battery == Battery(capacity_j=5.0, per_s=2.0, efficiency=0.5)
    assert found.energy == EnergyCosts(joules_per_flop=1.0, joules_per_byte=3.0)
    assert (found.host_speed, found.host_call_s, found.place.pue, found.chunk) == (0.8, None, 1.25, 4)
    assert (found.host.tokenise_s_per_token, found.storage_bytes_per_s) == (2e-6, 2e9)
    timed = options_from({"host_speed": "1.5us", "pue": "google"}, found)
    assert (timed.host_speed, timed.host_call_s, timed.place.pue) == (None, 1.5e-6, "google")
    for wrong in ({"override": ("=f16",)}, {"override": ("a=",)}, {"override": ("a",)}, {"joules_per_flop": "1J"},
                  {"draft_length": 2}, {"acceptance": 0.5}, {"storage": "2s"}):  # fmt: skip
        with pytest.raises(DomainError):
            options_from(wrong)
