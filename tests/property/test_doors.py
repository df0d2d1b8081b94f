"""One question has one answer: every door to a prediction is asked the same, and must give the same numbers.

The doors: Python, the command, a sweep's row, the hub's prediction and its sweep, what stands beside a measurement, the
base of a what-if, and the accuracy page. With a shipped calibration, with one of the user's own, and with none.
"""

import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product

import pytest
from click.testing import CliRunner

import inferometer as im
from inferometer.api import gains
from inferometer.cli.commands.predict import command
from inferometer.core.errors import InferometerError
from inferometer.known import device
from inferometer.predict.ask import ask
from inferometer.predict.basis.files import SHIPPED, files_in, own_folder, read_calibration, write_calibration
from inferometer.predict.fields import ASKED
from inferometer.predict.options import Options
from inferometer.predict.served.question import served
from inferometer.understand.accuracy.cases import AccuracyCase, case_graph
from inferometer.understand.accuracy.judge import ask_like
from inferometer.understand.judging import judge_profile
from unit.hub.web.samples import hub

SIZES = {"prompt": 256, "generate": 32}
MODELS = {
    "llama-3.2-1b": SIZES,
    "mixtral-8x7b": SIZES,
    "t5-small": SIZES,
    "mobilenet-v2": {"batch": 4},
    "bert-base": {},
}
DEVICES = ("nvidia-h200", "nvidia-l4", "intel-emerald-rapids-1-vcpu", "raspberry-pi-5")
RUNTIMES = (None, "torch-eager", "llamacpp", "onnxruntime")
FORMATS = ({}, {"weights": "q4_0", "kv": "i8"}, {"weights": "bf16", "activations": "bf16"})
# Every runtime in every format with calibrations; without any, a format changes what is counted and not the door.
HOW = [*product(RUNTIMES, FORMATS, (True,)), *product(RUNTIMES, FORMATS[:1], (False,))]
TIMES = ("latency_s", "ttft_s", "tpot_s", "e2e_s")


@pytest.fixture(scope="module", autouse=True)
def _a_calibration_of_the_users_own(tmp_path_factory):
    """Of a device that none is shipped for: doors that look only at the shipped ones give themselves away."""
    patch = pytest.MonkeyPatch()
    patch.setenv("INFEROMETER_DATA", str(tmp_path_factory.mktemp("own")))
    for path in files_in([SHIPPED]):
        if path.name.startswith("nvidia-h200-torch-eager"):
            write_calibration(replace(read_calibration(path), device="nvidia-l4"), own_folder())
    yield
    patch.undo()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub")) as (_, found):
        yield found


def ways_for(model, on):
    """The default runtime in every way, what is calibrated, and every fourth of the others."""
    first = list(MODELS).index(model) + DEVICES.index(on)
    known = ("torch-eager", FORMATS[2], True)
    return [how for place, how in enumerate(HOW) if how[0] is None or how == known or place % 4 == first % 4]


@contextmanager
def refusals(kept):
    try:
        yield
    except InferometerError as error:
        kept.append(error.message)


def summary_times(profile):
    return [getattr(profile.summary, name) for name in TIMES]


def same_times(one, other):
    """To the last bits: a sweep adds up in another order."""
    return [each is None for each in one] == [each is None for each in other] and all(
        a is None or a == pytest.approx(b, rel=1e-9) for a, b in zip(one, other, strict=True)
    )


def by_command(model, on, calibrated, asked):
    options = [text for name, value in asked.items() if value is not None for text in (f"--{name}", str(value))]
    more = [] if calibrated else ["--priors"]
    ran = CliRunner().invoke(command, [model, "--on", on, *options, *more, "--format", "json"], catch_exceptions=False)
    return [json.loads(ran.stdout)["summary"][name] for name in TIMES]


def by_sweep(model, on, calibrated, asked):
    axes = {"runtimes" if name == "runtime" else name: value for name, value in asked.items()}
    row = next(iter(im.sweep(models=model, devices=on, calibrated=calibrated, **axes).records()))
    return [row[name] for name in TIMES]


def beside_a_measurement(profile):
    """The prediction that a measured profile of the same question is judged by, phase by phase."""
    bare = replace(profile, kind="measured", judged_by=None)
    judged, _ = judge_profile(
        bare, device(profile.device.name), graph=ask(profile.model.name, on=profile.device.name).graph
    )
    return {phase.name: phase.predicted_s for phase in judged.phases if phase.predicted_s is not None}


@pytest.mark.parametrize("on", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_every_door_gives_the_same_answer(model, on):
    seen = set()
    for runtime, formats, calibrated in ways_for(model, on):
        asked = {**MODELS[model], **formats, "runtime": runtime}
        if "generate" not in MODELS[model]:
            asked.pop("kv", None)  # refused, where there is no cache
        kept = []
        with refusals(kept):
            question = ask(model, on=on, calibrated=calibrated, **asked)
            answer = question.answer()
        if kept:
            with pytest.raises(InferometerError):
                im.predict(model, on=on, calibrated=calibrated, **asked)
            row = next(iter(im.sweep(
                models=model, devices=on, calibrated=calibrated,
                **{"runtimes" if name == "runtime" else name: value for name, value in asked.items()},
            ).records()))  # fmt: skip
            assert row["reason"].startswith(kept[0])
            continue
        seen.add(answer.judged_by.calibration is not None)
        times = summary_times(answer)
        assert summary_times(im.predict(model, on=on, calibrated=calibrated, **asked)) == times
        assert by_command(model, on, calibrated, asked) == times
        assert same_times(by_sweep(model, on, calibrated, asked), times)
        (same,) = gains(question, [f"batch={answer.workload.batch}"])
        assert (same["before_s"], same["gain"]) == (answer.steady.time_s, 1.0)
        if calibrated:
            repeated = {phase.name: phase.time_s for phase in answer.phases if phase.time_s > 0}
            assert beside_a_measurement(answer) == repeated
    assert False in seen
    assert (True in seen) == (on != "raspberry-pi-5")


@pytest.mark.parametrize("on", DEVICES)
def test_the_hub_answers_as_the_command_does(client, on):
    for model, sizes in MODELS.items():
        answer = ask(model, on=on, **sizes).answer()
        told = client.post("/api/v1/predict", json={"model": model, "devices": [on], **sizes}).json()["answers"][0]
        assert [told["summary"][name] for name in TIMES] == summary_times(answer)
        lists = {name: [size] for name, size in sizes.items()}
        swept = client.post("/api/v1/sweeps", json={"models": [model], "devices": [on], **lists}).json()["columns"]
        assert same_times([swept[name][0] for name in TIMES], summary_times(answer))


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm"])
def test_a_batch_and_as_many_users_take_the_same_steps(runtime):
    """A step of a serving engine costs its host as much for each sequence, whether users or a batch are asked about.

    Within what is lost between the points of the grids that a served step is read from.
    """
    models = (("llama-3.1-8b", {}), ("qwen3-30b-a3b", {"tp": 2}), ("llama-3.1-70b", {"tp": 4, "dp": 2}))
    for (model, plan), version in product(models, (None, "0.5.3")):
        for batch, context in ((2, 300), (16, 2000), (64, 700), (200, 5000)):
            question = ask(
                model, on="nvidia-h100-sxm", runtime=runtime, batch=batch, context=context, **plan,
                options=Options(engine_version=version),
            )  # fmt: skip
            of_users = served(question).step.decode_seconds(batch / plan.get("dp", 1), context)
            assert question.answer().phase("decode").time_s == pytest.approx(of_users, rel=0.01)


BESIDE_USERS = {
    "weights": "f8e4m3", "kv": "f8e4m3", "batch": 8, "prompt": 700, "generate": 50, "context": 900, "tp": 2, "pp": 2,
    "dp": 2, "threads": 4, "prefill_on": "nvidia-h200", "engine_version": "0.5.3", "chunk": 64, "cached_prefix": 100,
    "draft": "llama-3.2-1b", "storage": "1GB/s", "tokenise": "2us", "sampling": "1ms", "detokenise": "1us",
    "usd_per_hour": 3.0, "spot": True, "grid": "world", "battery": "50Wh", "cooling": "300W", "per_second": 3.0,
    "battery_efficiency": 0.5, "layout": "nhwc", "host_speed": 0.5, "frame_rate": 30.0, "audio": "10s", "image": 224,
    "offload_layers": 4, "override": ("*.mlp.*=i4",), "steps": 4, "micro_batches": 2, "imbalance": 1.5,
    "runtime": "sglang", "priors": True, "ep": 2, "offload_experts": True, "overlap": 0.5, "link": "infiniband-ndr",
    "sequence_parallel": True, "acceptance": 0.5, "draft_length": 3, "draft_up_to": "8:2",
    "joules_per_flop": "1pJ", "joules_per_byte": "1pJ",
    "pue": 1.2, "sizes": {"query": 9}, "activations": "f32", "instance": "runpod-h100-sxm",
}  # fmt: skip
NEEDED = {
    "overlap": {"tp": 2}, "link": {"tp": 2}, "sequence_parallel": {"tp": 2}, "micro_batches": {"pp": 2},
    "acceptance": {"draft": "llama-3.2-1b"}, "draft_length": {"draft": "llama-3.2-1b"},
    "draft_up_to": {"draft": "llama-3.2-1b"}, "pue": {"grid": "world"},
    "joules_per_flop": {"joules_per_byte": "1pJ"}, "joules_per_byte": {"joules_per_flop": "1pJ"},
}  # fmt: skip


def test_what_is_asked_beside_users_changes_what_they_see_or_is_refused():
    """A context, a batch and a chunk were once taken and left aside, so that two doors gave two answers."""
    assert BESIDE_USERS.keys() == ASKED.keys() - {"calibration"}
    unused = []
    for name, value in BESIDE_USERS.items():
        plain, beside = NEEDED.get(name, {}), {"users": 64, "on": "nvidia-h100-sxm"}
        with suppress(InferometerError):  # it is refused
            found = im.predict("llama-3.1-8b", **beside, **plain, **{name: value})
            before = im.predict("llama-3.1-8b", **beside, **plain)
            unused += [name] if replace(found, notes=()) == replace(before, notes=()) else []
    assert unused == []


def test_a_step_of_users_is_that_of_a_batch():
    """Prompts of others are what a token takes beside it, and both are told."""
    users = im.predict("llama-3.1-8b", on="nvidia-h100-sxm", users=64)
    batch = im.predict("llama-3.1-8b", on="nvidia-h100-sxm", batch=64)
    assert users.step_s == pytest.approx(batch.summary.tpot_s, rel=0.01)
    assert users.tpot_s > 1.2 * users.step_s


def test_the_accuracy_page_judges_what_predict_answers():
    path = next(path for path in files_in([SHIPPED]) if path.name.startswith("nvidia-h200-torch-compile"))
    case = AccuracyCase(
        model="llama-3.2-1b", device="nvidia-h200", runtime="torch-compile", dtype="bf16", phase="decode", batch=2,
        context=1024, seconds=1.0, source="a test",
    )  # fmt: skip
    answer = im.predict(
        case_graph(case.model), on=case.device, runtime=case.runtime, batch=2, context=1024, prompt=1, weights="bf16",
        activations="bf16",
    )  # fmt: skip
    assert ask_like(case, read_calibration(path)).phases == answer.phases
