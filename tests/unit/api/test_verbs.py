import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import inferometer as im
from inferometer.api import ask, gains
from inferometer.cli.commands.predict import command
from inferometer.core import Profile
from inferometer.core.codec import decode, encode
from inferometer.core.errors import DomainError, UnitError, UnknownNameError
from inferometer.known.engines import engine
from inferometer.predict.change import changed_device, parse_change

H200 = im.device("nvidia-h200")


def test_a_prediction_is_a_profile_that_a_document_can_hold():
    profile = im.predict("llama-3.2-1b", on="nvidia-h200", prompt=2048, generate=128)
    assert profile.kind == "predicted"
    assert profile.model.parameters == 1_235_814_400
    assert profile.model.kv_bytes_per_token == 32_768
    assert profile.summary.e2e_s == pytest.approx(profile.summary.ttft_s + 127 * profile.summary.tpot_s)
    assert decode(encode(profile), Profile) == profile


def test_decode_of_8b_in_bf16_never_beats_reading_its_weights():
    profile = im.predict("llama-3.1-8b", on="nvidia-h200", context=128)
    assert profile.phase("decode").floor_s >= 3.13e-3
    assert profile.phase("decode").time_s >= profile.phase("decode").floor_s


def test_what_fits_on_how_many():
    fits = {tp: im.fit("llama-3.1-70b", on="nvidia-h100-sxm", tp=tp, prompt=8192).fits for tp in (1, 2, 4, 8)}
    assert fits == {1: False, 2: True, 4: True, 8: True}
    assert im.fit("llama-3.1-70b", on="nvidia-h100-sxm").devices_at_least == 2


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("memory.bandwidth*=2", lambda d: d.memory.bandwidth_bytes_per_s.value == 9.6e12),
        ("memory.bandwidth=1TB/s", lambda d: d.memory.bandwidth_bytes_per_s.value == 1e12),
        ("memory.capacity=80GB", lambda d: d.memory.capacity_bytes.value == 80e9),
        ("peak.bf16=500TFLOP/s", lambda d: d.peaks["bf16"].value == 500e12),
        ("peak.nvfp4=1PFLOP/s", lambda d: d.peaks["nvfp4"].value == 1e15),
        ("peak*=0.5", lambda d: d.peaks["i8"].value == H200.peaks["i8"].value / 2),
        ("power=350W", lambda d: d.power_w.value == 350),
    ],
)
def test_a_change_of_the_device_changes_that_figure_and_says_so(text, check):
    made = changed_device(H200, parse_change(text))
    assert check(made)
    assert made.name == H200.name


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nonsense", DomainError),
        ("wieghts=q4_0", UnknownNameError),
        ("batch*=2", DomainError),
        ("memory.bandwidth=fast", UnitError),
        ("memory.bandwidth*=0", DomainError),
        ("memory.bandwidth=5 W", UnitError),
        ("peak.nvfp4*=2", DomainError),
    ],
)
def test_a_change_that_makes_no_sense_says_why(text, error):
    with pytest.raises(error):
        changed_device(H200, parse_change(text))


def test_what_ifs_keep_the_question_and_change_one_thing():
    question = ask("llama-3.1-8b", on="nvidia-h200", context=128)
    rows = {row["change"]: row for row in gains(question, ["weights=i4", "batch=8", "tp=3", "on=nvidia-l4"])}
    assert rows["weights=i4"]["gain"] > 1
    assert rows["batch=8"]["throughput_gain"] > 4
    assert "does not divide" in rows["tp=3"]["error"]
    assert rows["on=nvidia-l4"]["gain"] < 0.2
    assert question.changed("runtime=ideal").answer().phase("decode").time_s < question.answer().phase("decode").time_s
    with pytest.raises(DomainError, match="whole number"):
        question.changed("batch=many")


def test_a_what_if_on_another_device_leaves_the_given_calibration_behind():
    shipped = ask("llama-3.1-8b", on="nvidia-h200", runtime="torch-compile", context=128).basis().calibration
    given = ask("llama-3.1-8b", on="nvidia-h200", runtime="torch-compile", context=128, calibration=shipped)
    elsewhere = ask("llama-3.1-8b", on="nvidia-l4", runtime="torch-compile", context=128)
    there, same = (replace(asked.answer(), provenance=None) for asked in (given.changed("on=nvidia-l4"), elsewhere))
    assert there == same  # but for when it was asked


def test_a_what_if_on_this_machine_is_answered_with_its_roof():
    moved = ask("resnet50", on="nvidia-l4", runtime="onnxruntime").changed("on=local")
    assert moved.answer().steady == ask("resnet50", on="local", runtime="onnxruntime").answer().steady


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"context": 200_000, "runtime": "torch-compile"}, "window"),
        ({"batch": 0}, "batch"),
        ({"tp": 3}, "does not divide"),
        ({"weights": "fp17"}, "fp17"),
    ],
)
def test_nothing_is_computed_on_nonsense(asked, why):
    with pytest.raises(im.InferometerError, match=why):
        im.predict("llama-3.1-8b", on="nvidia-h200", **asked)


def predicted(*words):
    ran = CliRunner().invoke(command, [*words, "--format", "json"], catch_exceptions=False)
    return json.loads(ran.stdout)


CHAT = ("llama-3.1-8b", "--on", "nvidia-h200", "--prompt", "512", "--generate", "64")


def test_a_draft_model_is_an_option_of_the_command():
    plain, drafted = predicted(*CHAT), predicted(*CHAT, "--draft", "llama-3.2-1b", "--acceptance", "0.9")
    assert [phase["name"] for phase in drafted["phases"]][-2:] == ["draft", "decode"]
    assert drafted["summary"]["tpot_s"] < plain["summary"]["tpot_s"]
    hopeless = predicted(*CHAT, "--draft", "llama-3.2-1b", "--acceptance", "0")
    assert hopeless["summary"]["tpot_s"] > plain["summary"]["tpot_s"]


def test_the_prompt_can_be_read_on_another_device():
    there = predicted(*CHAT, "--prefill-on", "nvidia-b200", "--link", "infiniband-ndr")
    sent = next(phase for phase in there["phases"] if phase["name"] == "transfer")
    assert sent["bytes"] == 512 * 131_072
    reading = predicted("llama-3.1-8b", "--on", "nvidia-b200", "--prompt", "512", "--generate", "64")
    assert there["summary"]["ttft_s"] == pytest.approx(reading["summary"]["ttft_s"] + sent["time_s"])
    assert there["summary"]["tpot_s"] == predicted(*CHAT)["summary"]["tpot_s"]


def test_energy_may_be_counted_by_the_operation_and_a_battery_emptied():
    costs = ("--joules-per-flop", "2pJ", "--joules-per-byte", "30pJ")
    found = predicted("resnet50", "--on", "raspberry-pi-5", *costs, "--battery", "10Wh", "--per-second", "2")
    forward = next(phase for phase in found["phases"] if phase["name"] == "forward")
    idle_w = (forward["energy_j"] - 2e-12 * forward["flops"] - 30e-12 * forward["bytes"]) / forward["time_s"]
    assert idle_w >= -1e-9
    assert found["summary"]["battery_s"] == pytest.approx(36_000 / (2 * forward["energy_j"] + idle_w))


def test_an_answer_of_many_users_has_the_figures_of_a_request_as_a_profile_names_them():
    answer = im.predict("llama-3.1-8b", on="nvidia-h100-sxm", users=16, prompt=256, generate=33)
    summary = answer.summary
    assert (summary.ttft_s, summary.tpot_s, summary.tokens_per_s) == (answer.ttft_s, answer.tpot_s, answer.tokens_per_s)
    assert summary.e2e_s == pytest.approx(answer.ttft_s + 32 * answer.tpot_s)
    assert summary.interval("tpot") == (answer.tpot_low_s, answer.tpot_high_s)
    assert "for 16 users" in repr(answer)
    assert "tokens/s/user" in answer._repr_html_()


@pytest.mark.parametrize("users", [{}, {"users": 16}])
def test_an_answer_says_which_version_of_the_engine_it_is_of(users):
    asked = {"on": "nvidia-h100-sxm", "runtime": "vllm", "prompt": 64, "generate": 8, **users}

    def noted(**more):
        answer = im.predict("llama-3.1-8b", **asked, **more)
        notes = answer.notes if users else answer.provenance.notes
        (note,) = (each for each in notes if each.startswith("Answered as vLLM"))
        return note

    assert "Answered as vLLM 0.5.3: " in noted(engine_version="0.5.3")
    assert "the oldest that is known" in noted(engine_version="0.5.3")
    assert f"vLLM {engine('vllm').serving.version}, the newest that is known" in noted()


def test_a_version_of_an_engine_that_serves_nobody_is_refused():
    with pytest.raises(DomainError, match="torch-eager is none: it would change nothing"):
        im.predict("resnet50", on="nvidia-t4", runtime="torch-eager", engine_version="2.1")
