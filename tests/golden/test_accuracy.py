"""How true predictions are on the shipped measurements: models that no shipped calibration was fitted to."""

import gzip
import json
import pickle
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from fakes.once import made_once
from inferometer import predict
from inferometer.cli.commands import accuracy
from inferometer.predict.ask import ask
from inferometer.understand.accuracy import judge
from inferometer.understand.accuracy.cases import read_cases, read_peers
from inferometer.understand.accuracy.judge import error_summary, peer_errors
from inferometer.understand.view import accuracy as accuracy_page

RECORDED = Path(__file__).parents[2] / "workshop" / "recorded"
PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
H200 = "nvidia-h200"


def predicted(device, *, priors):
    """The judged cases of the H200, or of all others, and every phase that was predicted for them."""

    def predict_cases(folder):
        phases, ask_like = [], judge.ask_like

        def asked(case, calibration):
            profile = ask_like(case, calibration)
            phases.append(profile.phase(case.phase))
            return profile

        cases = [case for case in read_cases() if (case.device == H200) == (device == H200)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(judge, "ask_like", asked)
            judged, _ = judge.judge_cases(cases, priors=priors)
        (folder / "predicted").write_bytes(pickle.dumps((judged, phases)))

    name = f"accuracy-{device}{'-priors' if priors else ''}"
    return pickle.loads((made_once(name, predict_cases) / "predicted").read_bytes())  # noqa: S301 - our own


@pytest.fixture(scope="module")
def judged():
    """Cases of the H200, by runtime and phase."""
    of_the_h200, _ = predicted(H200, priors=False)

    def judged(runtime, phase):
        def is_wanted(case):
            return (case.device, case.runtime, case.phase) == (H200, runtime, phase)

        found = [each for each in of_the_h200 if is_wanted(each.case)]
        assert len(found) == sum(map(is_wanted, read_cases())), "none was refused"
        return found

    return judged


@pytest.mark.parametrize(
    ("runtime", "phase", "least", "most"),
    [
        ("torch-compile", "decode", 18, (0.05, 0.10)),
        ("torch-compile", "prefill", 11, (0.04, 0.16)),
        ("torch-graph", "decode", 39, (0.07, 0.15)),
        ("torch-graph", "prefill", 40, (0.05, 0.12)),
    ],
)
def test_language_models_that_no_fit_has_seen_are_predicted(judged, runtime, phase, least, most):
    found = error_summary(judged(runtime, phase))
    assert found["n"] >= least
    assert found["median"] <= most[0]
    assert found["p90"] <= most[1]
    assert {each.how for each in judged(runtime, phase)} == {"held out"}


@pytest.mark.parametrize(
    ("runtime", "phase", "width"),
    [
        ("torch-compile", "decode", 0.40),
        ("torch-compile", "prefill", 0.46),  # probes whose products are held to what was timed are off by more
        ("torch-graph", "decode", 0.30),
        ("torch-graph", "prefill", 0.25),
    ],
)
def test_eight_in_ten_intervals_hold_and_are_narrow(judged, runtime, phase, width):
    """Those of compiled decoding hold always, so they are wider than they need be: no upper end is asked for here."""
    found = error_summary(judged(runtime, phase))
    assert found["covered"] >= 0.75
    assert found["width"] <= width


def test_models_measured_after_the_fit_are_predicted_no_worse(judged):
    late = [each for each in judged("torch-compile", "decode") if "2026-11-15" in each.case.source]
    assert {each.case.model for each in late} == {"llama-3.2-3b", "phi-3-mini", "qwen2.5-7b"}
    assert error_summary(late)["median"] <= 0.05
    assert error_summary(late)["p90"] <= 0.10


def test_images_and_encoders_are_predicted(judged):
    """BERT in bf16 for one text is the furthest off, by 38 %."""
    found = error_summary(judged("torch-graph", "forward"))
    assert found["n"] >= 24
    assert found["median"] <= 0.13
    assert found["p90"] <= 0.25
    assert found["covered"] >= 0.75
    assert found["width"] <= 0.60


@pytest.mark.parametrize("device", [H200, "others"])
@pytest.mark.parametrize("priors", [False, True], ids=["calibrated", "priors"])
def test_no_prediction_beats_its_floor(device, priors):
    """With the calibrations, those of other models where one was fitted to the case, and with priors alone."""
    _, phases = predicted(device, priors=priors)
    assert len(phases) == sum((case.device == H200) == (device == H200) for case in read_cases()) > 100
    for phase in phases:
        assert phase.floor_s <= phase.low_s <= phase.time_s <= phase.high_s


def test_the_page_is_what_is_predicted_today(monkeypatch):
    """Its cases in the order in which they are shipped, which its sums of numbers do not depend on."""
    order = {case: index for index, case in enumerate(read_cases())}
    findings = accuracy_page.findings_of(
        *(
            sorted(
                predicted(H200, priors=priors)[0] + predicted("others", priors=priors)[0],
                key=lambda each: order[each.case],
            )
            for priors in (False, True)
        )
    )
    monkeypatch.setattr(accuracy_page, "accuracy_findings", lambda: findings)
    assert PAGE.read_text(encoding="utf-8") == accuracy.page(), "docs/accuracy.md is stale: run `make docs`"


def test_every_peer_is_further_off_on_the_same_cases(judged):
    rows = peer_errors(judged("torch-compile", "decode"), read_peers())
    assert len(rows) >= 15
    assert all(row["ours"] < row["median"] for row in rows)


def recorded(name):
    return map(json.loads, gzip.decompress((RECORDED / name).read_bytes()).splitlines())


def test_compiled_networks_that_were_profiled_are_predicted_as_they_ran_from_graphs():
    """The networks of benchmarks/pairs.py in f32; the forms of the calibration were fitted to them among others."""
    off, inside = [], []
    for row in recorded("nvidia-h200-pairs-2026-11-17.jsonl.gz"):
        if row.get("engine") == "torch-compile" and "phases" in row and "prompt" not in row:
            (took,) = (phase["time_s"] for phase in row["phases"] if phase["name"] == "forward")
            sizes = {"batch": row.get("batch", 1), "weights": "f32", "activations": "f32"}
            phase = predict(row["model"], on="nvidia-h200", runtime="torch-compile", **sizes).phase("forward")
            off.append(abs(phase.time_s / took - 1))
            inside.append(phase.low_s <= took <= phase.high_s)
    assert len(off) == 6
    assert median(off) < 0.085  # three of the six are 12 % off, so that it lies between two far ones
    assert max(off) < 0.15
    assert sum(inside) >= 0.8 * len(inside)


def test_compiled_networks_that_nothing_was_fitted_to_are_predicted_in_both_formats_and_at_any_batch():
    """Those of the last day. As factors on whole classes the middle was 10.5 % off, and the furthest 48 %."""
    off, inside = [], []
    for name in ("judged-2026-11-19", "judged-2026-11-19b", "unseen-2026-11-19b"):
        for row in recorded(f"nvidia-h200-pairs-{name}.jsonl.gz"):
            if row.get("engine") != "torch-compile" or "phases" not in row or "generate" in row:
                continue
            if row["model"] == "torchvision:inception_v3":  # its graph is shipped for images of another size
                continue
            (took,) = (phase["time_s"] for phase in row["phases"] if phase["name"] == "forward")
            form = row["precision"]["weights"]
            sizes = {name: row[name] for name in ("batch", "prompt", "image") if name in row}
            sizes |= {"weights": form, "activations": form}
            phase = predict(row["model"], on="nvidia-h200", runtime="torch-compile", **sizes).phase("forward")
            off.append(abs(phase.time_s / took - 1))
            inside.append(phase.low_s <= took <= phase.high_s)
    assert len(off) == 32
    assert median(off) < 0.08
    assert max(off) < 0.25
    assert sum(inside) >= 0.8 * len(inside)


def test_encoders_that_nothing_was_fitted_to_are_predicted_as_they_ran():
    """Attention over texts was a factor on what other GPUs take: BERT came out 38 % too long, MiniLM 21 % too short."""
    off = {}
    for name in ("2026-11-17", "unseen-2026-11-17", "unseen-2026-11-18", "unseen-2026-11-18b"):
        for row in recorded(f"nvidia-h200-pairs-{name}.jsonl.gz"):
            texts = "phases" in row and any(part in row["model"] for part in ("bert", "minilm", "e5"))
            if texts and row["engine"] in {"torch-compile", "torch-graph"}:
                (took,) = (phase["time_s"] for phase in row["phases"] if phase["name"] == "forward")
                form = row["precision"]["weights"]
                sizes = {name: row[name] for name in ("batch", "prompt") if name in row}
                sizes |= {"weights": form, "activations": form}
                phase = predict(row["model"], on="nvidia-h200", runtime=row["engine"], **sizes).phase("forward")
                off[row["model"], row["engine"]] = abs(phase.time_s / took - 1)
    assert len(off) >= 6
    assert median(off.values()) < 0.05
    assert max(off.values()) < 0.1


def test_a_network_replayed_from_a_graph_is_not_priced_as_one_that_is_launched_kernel_by_kernel():
    """Probes that were launched said that compiled networks in bf16 take four times what they do in a graph."""
    rows = list(recorded("nvidia-h200-forwards-2026-11-17.jsonl.gz"))
    for row in rows:
        if row.get("way") == "compile-graph" and row["model"] in {"resnet34", "mobilenet_v2", "roberta-base"}:
            sizes = {"batch": row["batch"], "weights": row["dtype"], "activations": row["dtype"]}
            sizes |= {"prompt": row["query"]} if row["image"] is None else {}
            name = row["model"].replace("_", "-")
            phase = predict(name, on="nvidia-h200", runtime="torch-compile", **sizes).phase("forward")
            assert phase.time_s == pytest.approx(row["seconds"], rel=0.3), (row["model"], row["dtype"])


def off_and_inside(files, *, engine, generates):
    """What recorded profiles of an engine were off by, how many intervals held them, and how wide those were."""
    off, inside, wide = [], [], []
    for row in (row for name in files for row in recorded(f"nvidia-h200-pairs-unseen-{name}.jsonl.gz")):
        if row.get("engine") != engine or "phases" not in row or ("generate" in row) != generates:
            continue
        if row["model"] == "torchvision:vit_h_14":  # its graph is shipped for images of another size
            continue
        sizes = {name: row[name] for name in ("batch", "prompt", "generate", "image") if name in row}
        host = row["environment"]["host"]
        answer = replace(
            ask(row["model"], on="nvidia-h200", runtime=engine, weights=row["precision"]["weights"], **sizes),
            host_call_s=host.get("call_s"), host_module_s=host["module_s"],
        ).answer()  # fmt: skip
        for measured in row["phases"]:
            phase = answer.phase(measured["name"])
            if row["model"].startswith("mamba2") and measured["name"] == "prefill":
                continue  # transformers scans a prompt in plain ops, which are counted too few by a third
            off.append(phase.time_s / measured["time_s"] - 1)
            inside.append(phase.low_s <= measured["time_s"] <= phase.high_s)
            wide.append((phase.high_s - phase.low_s) / phase.time_s)
    return [abs(each) for each in off], sum(inside) / len(inside), median(wide), median(off)


def test_what_waits_for_a_host_that_was_read_is_predicted_by_what_each_op_takes_it():
    """A figure a kernel left OPT 33 % too fast and BERT 46 %. Half of the cases told the figures of ops."""
    files = ("2026-11-18c", "2026-11-19")
    off, held, wide, bias = off_and_inside(files, engine="torch-eager", generates=True)
    assert len(off) >= 55
    assert median(off) < 0.06
    assert max(off) < 0.4  # two decoders whose host was read as twice as slow as it was for most of their steps
    assert held >= 0.75
    assert wide < 0.32
    assert abs(bias) < 0.035
    off, held, wide, bias = off_and_inside(files, engine="torch-eager", generates=False)
    assert len(off) >= 26
    assert median(off) < 0.1
    assert max(off) < 0.35
    assert held >= 0.75
    assert wide < 0.42  # a forward is short and has few kinds of module: its host is told less surely


def test_networks_that_join_many_tensors_are_predicted_as_they_ran():
    """Compiled in bf16 a DenseNet was answered 8 times too slow, and in graphs a quarter too fast."""
    rows = [row for row in recorded("nvidia-h200-forwards-2026-11-17.jsonl.gz") if row.get("model") == "densenet121"]
    engines = {"graph": "torch-graph", "compile-graph": "torch-compile"}
    told = {(row["way"], row["dtype"]): row for row in rows if row.get("way") in engines}
    assert len(told) == 4
    for (way, form), row in told.items():
        sizes = {"batch": row["batch"], "weights": form, "activations": form}
        phase = predict("torchvision:densenet121", on="nvidia-h200", runtime=engines[way], **sizes).phase("forward")
        # Compiled in bf16 it is 16 % too fast: norms that begin a fused kernel are read as those that end one, by which
        # ResNets come nearer (ResNet-101 +38 to +22 %).
        off = 0.17 if (way, form) == ("compile-graph", "bf16") else 0.12
        assert phase.time_s == pytest.approx(row["seconds"], rel=off), (way, form)
