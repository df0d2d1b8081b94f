"""A calibration for some models: they are measured themselves, and probes count by what the models need."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.calibrate import command
from inferometer.core.device import LOCAL
from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.core.profile import Phase
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.known.machine.detect.identity import this_machine
from inferometer.measure.calibrate.fitting.points import StepPoint
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.fitting.whole_models import FEWEST
from inferometer.measure.calibrate.job import CalibrationJob, prepare_engine
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.measure.calibrate.wanted import WantedModels, asked_steps, keep_asked, lately_profiled, usual_models
from inferometer.predict.basis.learned import LearnedStep, keep_learned, learned_file, read_learned

CPU = device("intel-emerald-rapids-1-vcpu")
SUBJECT = CalibrationSubject(device=CPU, runtime=require_effects("onnxruntime"), dtype="f32", created="2026-11-17")
SHAPE = {"flops": 2e8, "bytes": 2e6, "weight_bytes": 1e6}
PROBES = [
    ProbeCandidate(key="products", op_class="linear", axes=SHAPE),
    ProbeCandidate(key="windows", op_class="convolution", axes=SHAPE),
    ProbeCandidate(key="tiny windows", op_class="convolution", axes={"flops": 2e3, "bytes": 2e2, "weight_bytes": 1e2}),
    ProbeCandidate(key="lookups", op_class="indexing", axes={"bytes": 1e6}),
]


class Probes:
    def candidates(self):
        return PROBES

    def measure(self, candidate):
        return CandidateResult(runs=len(candidate.key))


def wanted(*models, budget_s=120.0, **given):
    return WantedModels(provider=Probes(), subject=SUBJECT, models=models, budget_s=budget_s, **given)


def worth(provider):
    """The weight of each probe's class times its share: what a scheduler goes by beside doubt and cost."""
    shares = {"linear": 1.0, "convolution": 0.8, "indexing": 0.1}
    return {each.key: each.weight * shares[each.op_class] for each in provider.candidates() if each.op_class in shares}


def test_probes_count_by_what_the_models_need():
    images, texts = worth(wanted("resnet18")), worth(wanted("bert-base"))
    assert images["windows"] > 3 * images["products"]
    assert texts["products"] > 3 * texts["windows"]
    assert images["windows"] > images["tiny windows"]  # the nearer in shape, the more
    assert min(images["lookups"], texts["lookups"]) > 0  # others may be asked about later


def test_without_models_usual_ones_are_measured_whole_and_no_probe_is_chosen_for_them():
    usual = usual_models("files", ())
    assert len(usual) == 6
    assert usual_models("files", ("resnet50", usual[0])) == usual[1:5]
    assert usual_models("files", tuple("abcdefg")) == usual_models("files", tuple("abcdef")) == ()
    assert len(usual_models("decoders", ())) > FEWEST
    *probes, whole, last = wanted(beside=usual[:2]).candidates()
    assert probes == PROBES
    assert {whole.key, last.key} == {f"model {name}" for name in usual[:2]}
    assert whole.first
    assert whole.buys == "how whole models differ from probes"
    assert worth(wanted("bert-base", beside=usual)) == worth(wanted("bert-base"))


def test_the_models_themselves_come_first_as_far_as_half_of_the_budget_lasts():
    plenty, short = (
        {each.key: each for each in wanted("resnet18", "bert-base", budget_s=budget_s).candidates()}
        for budget_s in (600.0, 20.0)
    )
    assert plenty["model resnet18"].first
    assert plenty["model bert-base"].first
    assert short["model resnet18"].first
    assert not short["model bert-base"].first


def test_three_models_come_first_where_more_than_half_of_the_budget_holds_them():
    """Two would be measured in vain: they do not tell what others are off by."""
    names = ("resnet18", "mobilenet-v2", "squeezenet1.1", "resnet34")
    costs = sorted(c.seconds + c.making_s for c in wanted(*names).candidates() if c.key.startswith("model "))
    three = sum(costs[:3])
    found = wanted(*names, budget_s=three / 0.6).candidates()
    assert sum(candidate.first for candidate in found if candidate.key.startswith("model ")) == 3


def test_models_that_nobody_asked_for_are_spread_over_the_run_beyond_the_first_three():
    """All of them within the first minute would tell of that minute's pace."""
    found = {
        each.key: each.first
        for each in wanted("bert-base", beside=usual_models("files", ()), budget_s=600.0).candidates()
    }
    whole = {key: first for key, first in found.items() if key.startswith("model ")}
    assert (len(whole), sum(whole.values())) == (7, FEWEST + 1)
    assert whole["model bert-base"]


def test_a_progress_line_says_what_a_probe_buys():
    found = {each.key: each.buys for each in wanted("resnet18").candidates()}
    assert found["windows"].startswith("convolution, ")
    assert found["windows"].endswith("% of resnet18")
    assert found["model resnet18"] == "its own prediction"


def test_a_model_is_measured_as_a_profile_measures_it():
    asked = []

    def run(request):
        asked.append(request)
        return SimpleNamespace(phases=(Phase(name="load", time_s=9.0), Phase(name="forward", time_s=0.25)))

    provider = wanted("bert-base", run=run, threads=2)
    (candidate,) = [each for each in provider.candidates() if each.key == "model bert-base"]
    (step,) = provider.measure(candidate).steps
    assert (step.model, step.phase, step.seconds, dict(step.config)) == ("bert-base", "forward", 0.25, {})
    assert (asked[0].model, asked[0].runtime, asked[0].threads, asked[0].weights) == (
        "bert-base",
        "onnxruntime",
        2,
        "f32",
    )
    assert asked[0].workload.prompt == step.query > 1
    assert provider.measure(PROBES[0]).runs == len("products")
    with pytest.raises(EngineError, match="none of the phases"):
        wanted("bert-base", run=lambda _: SimpleNamespace(phases=())).measure(candidate)


def test_a_language_model_has_a_prompt_and_a_token():
    prompt, token = asked_steps("smollm2-135m", "q8_0")
    assert (prompt.phase, token.phase) == ("prefill", "decode")
    assert token.context > prompt.query


def line(model, created, **given):
    values = {
        "phase": "forward", "runtime": "onnxruntime", "dtype": "f32", "threads": 2, "machine": this_machine().id,
        "seconds": 1.0, "predicted_s": 1.0, "overhead_s": 0.0, "spread": 0.2, "basis": "prior", "features": (0,),
    }  # fmt: skip
    return LearnedStep(model=model, created=created, **values | given)


def test_by_default_it_is_for_what_was_profiled_here_last(tmp_path):
    path = learned_file(LOCAL, "onnxruntime", tmp_path)
    names = ("resnet18", "gone.onnx", "bert-base")
    keep_learned(path, [line(name, f"2026-11-1{place}") for place, name in enumerate(names)])
    assert lately_profiled(tmp_path, LOCAL, "onnxruntime", "f32") == ("bert-base", "resnet18")
    assert lately_profiled(tmp_path, LOCAL, "onnxruntime", "i8") == ()


def test_what_a_model_took_is_learned_as_from_a_profile(tmp_path, own_data, monkeypatch):
    monkeypatch.setenv("INFEROMETER_LEARN", "1")
    own = StepPoint(model="resnet18", phase="forward", seconds=0.5, dtype="f32")
    probe = StepPoint(model="probe-x", phase="forward", seconds=0.5, dtype="f32", config={"a": 1})
    keep_asked(device(f"{LOCAL}:cpu"), "onnxruntime", [own, probe, own], threads=2, folder=tmp_path)
    (kept,) = read_learned(learned_file(LOCAL, "onnxruntime", tmp_path))
    assert (kept.model, kept.seconds, kept.threads) == ("resnet18", 0.5, 2)
    assert kept.predicted_s > 0


def test_kernels_of_a_gpu_are_measured_for_no_model(tmp_path):
    job = CalibrationJob(
        device=device("nvidia-h200"), runtime="torch-compile", dtype="bf16", budget_s=60.0, folder=tmp_path,
        models=("resnet50",),
    )  # fmt: skip
    with pytest.raises(DomainError, match="by its kernels"):
        prepare_engine(job)


def test_the_command_refuses_models_where_nothing_is_measured(tmp_path):
    refused = CliRunner().invoke(command, ["--for", "resnet18", "--show", "--folder", str(tmp_path)])
    assert isinstance(refused.exception, DomainError)


@pytest.mark.parametrize("also", [["--runtime", "onnxruntime"], ["--all"]])
def test_a_name_that_no_model_has_is_refused_before_anything_is_measured(tmp_path, monkeypatch, also):
    monkeypatch.setattr("inferometer.measure.calibrate.job.device_to_calibrate", lambda *_: pytest.fail("measured"))
    result = CliRunner().invoke(command, ["--for", "resnet18", "--for", "nonet", "--folder", str(tmp_path), *also])
    assert isinstance(result.exception, UnknownNameError)
    assert "'nonet'" in result.exception.message
    assert not list(tmp_path.iterdir())
