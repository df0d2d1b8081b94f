from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.accuracy import command
from inferometer.core.calibration import Calibration
from inferometer.core.errors import FormatError
from inferometer.core.workload import Precision
from inferometer.measure.calibrate.fitting.base import unbounded
from inferometer.predict.basis.calibrations import choose_calibration
from inferometer.predict.basis.files import write_calibration
from inferometer.understand.accuracy.cases import (
    CASES,
    AccuracyCase,
    Peer,
    family_of,
    read_cases,
    read_peers,
    step_of_case,
)
from inferometer.understand.accuracy.judge import (
    Judged,
    ask_like,
    by_group,
    chart_rows,
    error_summary,
    judge_cases,
    peer_errors,
    without_model,
)
from inferometer.understand.view.accuracy import (
    accuracy_chart,
    accuracy_page,
    against_aims,
    peer_table,
    standing_table,
    target_table,
)


def case(**given):
    values = {
        "model": "llama-3.2-1b", "device": "nvidia-h200", "runtime": "torch-compile", "dtype": "bf16",
        "phase": "decode", "batch": 1, "context": 128, "seconds": 0.0015, "source": "test",
    }  # fmt: skip
    return AccuracyCase(**values | given)


def judged(time=1.0, low=0.9, high=1.2, seconds=1.0, how="held out", **given):
    return Judged(case=case(seconds=seconds, **given), time_s=time, low_s=low, high_s=high, how=how)


def test_errors_are_counted_as_they_are_said():
    found = error_summary(
        [judged(time=1.1), judged(time=0.8, low=0.7, high=0.9), judged(), judged(time=2.0, low=1.5, high=3.0)]
    )
    assert found["n"] == 4
    assert found["median"] == pytest.approx(0.15)
    assert found["covered"] == 0.5
    assert found["p90"] == pytest.approx(0.76)
    assert error_summary([]) == {"n": 0}


def test_groups_stand_in_the_order_of_their_names():
    those = [judged(model="b"), judged(model="a"), judged(model="b")]
    groups = by_group(those, lambda each: (each.case.model,))
    assert [(name, found["n"]) for name, found in groups.items()] == [(("a",), 1), (("b",), 2)]


def test_a_peer_is_held_against_the_same_cases_only():
    peers = [
        Peer(peer="x", model="llama-3.2-1b", device="nvidia-h200", phase="decode", batch=1, length=128, seconds=2.0),
        Peer(peer="x", model="llama-3.2-1b", device="nvidia-h200", phase="decode", batch=8, length=128, seconds=9.0),
    ]
    (found,) = peer_errors([judged(time=1.1)], peers)
    assert (found["n"], found["median"], found["ours"]) == (1, 1.0, pytest.approx(0.1))


def test_a_case_asks_what_a_user_would():
    assert case().ask_arguments["context"] == 128
    prompt = case(phase="prefill", prompt=512, context=None)
    assert (prompt.ask_arguments["prompt"], prompt.ask_arguments["generate"], prompt.query) == (512, 0, 512)
    step = step_of_case(case(batch=8))
    assert (step.batch, step.query, step.context) == (8, 1, 128)


def test_families_are_told_by_what_models_are_made_of():
    names = ("llama-3.2-1b", "resnet50", "bert-base", "vit-b-16")
    assert [family_of(name) for name in names] == ["decoder", "cnn", "encoder", "vision transformer"]


def test_a_case_that_was_fitted_to_is_predicted_without_its_model():
    train = [each for each in read_cases() if (each.runtime, each.dtype) == ("torch-graph", "bf16")]
    train = [each for each in train if each.phase != "forward" and "2026" not in each.source]
    whole = choose_calibration("nvidia-h200", "torch-graph", "bf16").calibration
    refit = without_model(whole, train, "qwen2.5-0.5b")
    assert "llama-3.2-1b" in refit.fitted_on
    assert "qwen2.5-0.5b" not in refit.fitted_on
    assert refit.factors != whole.factors
    assert unbounded(refit).tables == unbounded(whole).tables  # ops alone are what they were
    assert without_model(whole, [], "qwen2.5-0.5b") is None


def test_models_of_the_fit_are_left_out_and_all_others_held_out(tmp_path):
    names = ("llama-3.2-1b", "tinyllama-1.1b")
    some = [each for each in read_cases() if each.runtime == "torch-compile"]
    some = [replace(each, role="train" if each.model in names else "test") for each in some]
    shipped = choose_calibration("nvidia-h200", "torch-compile", "bf16").calibration
    write_calibration(replace(shipped, fitted_on=names), tmp_path)
    found, refused = judge_cases(some, folders=(tmp_path,))
    assert {each.case.model for each in found if each.how == "left out"} == set(names)
    assert {each.how for each in found if each.case.model not in names} == {"held out"}
    assert refused == ()


def test_no_shipped_calibration_saw_a_shipped_case():
    found, refused = judge_cases([each for each in read_cases() if each.runtime == "torch-compile"])
    assert {each.how for each in found} == {"held out"}
    assert refused == ()
    alone, _ = judge_cases([case()], priors=True)
    assert alone[0].how == "priors"
    assert alone[0].low_s < alone[0].time_s < alone[0].high_s


def test_a_case_that_cannot_be_predicted_is_named():
    found, refused = judge_cases([case(runtime="torch-graph", model="no-such-model"), case()])
    assert len(found) == 1
    assert "no-such-model" in refused[0]


def test_a_line_that_is_no_case_is_an_error_that_names_it(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"model": "x"}\n')
    with pytest.raises(FormatError, match="Line 1"):
        read_cases(tmp_path)


def test_shipped_cases_have_a_source_and_a_role():
    cases = read_cases()
    assert len(cases) >= 235
    assert all(each.source and each.role in {"train", "test"} for each in cases)
    assert len(read_peers()) == 408


def test_aims_without_cases_are_left_out():
    rows = against_aims([judged(time=1.01)])
    assert [row["what"] for row in rows] == ["H200, torch-compile, decode"]


def test_cases_that_were_seen_count_for_no_aim():
    assert against_aims([judged(how="seen")]) == []
    assert against_aims([judged(how="seen"), judged()])[0]["n"] == 1


def test_an_aim_is_met_where_errors_are_small_and_intervals_are_neither_narrow_nor_wide():
    covered, missed = judged(time=1.01), judged(time=1.02, low=1.015)
    assert not missed.covered
    assert against_aims([covered] * 8 + [missed] * 2)[0]["met"] is True
    assert against_aims([covered] * 10)[0]["met"] is False
    assert against_aims([covered] * 5 + [missed] * 5)[0]["met"] is False
    assert against_aims([judged(time=1.2)] * 8 + [missed] * 2)[0]["met"] is False


def test_tables_say_per_cent_to_people_and_numbers_to_programs():
    groups = {("a",): error_summary([judged(time=1.1)])}
    assert standing_table(groups, ("model",)).rows[0]["median"] == "10.0%"
    assert standing_table(groups, ("model",), text=False).rows[0]["median"] == pytest.approx(0.1)
    page = accuracy_page([("By model", "Words.", standing_table(groups, ("model",)))])
    assert "| a | 1 | 10.0% |" in page
    assert page.startswith("# How true predictions are")
    assert peer_table([{"peer": "x", "median": 0.5, "ours": 0.1}]).rows[0]["ours"] == "10.0%"
    assert target_table([{"what": "w", "median": 0.5, "aim": "≤ 5%", "met": False}]).rows[0]["met"] is False


def test_the_chart_has_a_dot_and_an_interval_for_each_case():
    drawn = accuracy_chart(chart_rows([judged(), judged(time=2.0)]))
    (values,) = [layer["data"]["values"] for layer in drawn["layer"] if "layer" in layer]
    assert [value["predicted_s"] for value in values] == [1.0, 2.0]


def invoke(*arguments):
    return CliRunner().invoke(command, arguments)


def test_the_command_prints_groups_and_draws(tmp_path):
    chart = tmp_path / "chart.json"
    found = invoke("--runtime", "torch-compile", "--by", "model", "--format", "csv", "--chart", str(chart))
    assert found.exit_code == 0, found.output
    assert "tinyllama-1.1b,torch-compile,held out,6," in found.output
    assert chart.exists()


def test_the_command_names_what_there_is():
    found = invoke("--device", "google-tpu-v2")
    assert found.exit_code == 1
    assert "no device with measured cases named 'google-tpu-v2'" in str(found.exception)
    assert "nvidia-h200" in str(found.exception)
    other = invoke("--device", "nvidia-h200", "--runtime", "openvino")
    assert "There are cases of torch-compile, torch-eager, torch-graph." in str(other.exception)


def test_peers_stand_beside_ours():
    found = invoke("--runtime", "torch-compile", "--peers", "--format", "csv")
    assert "GenZ,decode,torch-compile,4," in found.output


def test_cases_are_data_in_the_package():
    assert (Path(CASES) / "nvidia-h200.jsonl").is_file()


def test_a_calibration_of_the_weights_format_is_looked_for_where_they_differ(tmp_path):
    device_name = "intel-emerald-rapids-1-vcpu"
    asked = case(model="smollm2-135m", device=device_name, runtime="llamacpp", dtype="f32", weights="q4_0", context=64)
    base = choose_calibration("nvidia-h200", "torch-graph", "bf16").calibration
    linear = tuple(replace(table, residual=0.1) for table in base.tables if table.op_class == "linear")
    for weights in ("q4_0", "q8_0"):
        made = Calibration(
            device=device_name, runtime="llamacpp", dtype=weights, created="2026-11-15T10:00:00+00:00", tables=linear,
            notes=(f"of {weights}",),
        )  # fmt: skip
        write_calibration(made, tmp_path)
    (found,), refused = judge_cases([asked], folders=(tmp_path,), shipped=None)
    assert (found.how, refused) == ("held out", ())
    told = ask_like(
        asked, choose_calibration(device_name, "llamacpp", "q4_0", folders=(tmp_path,), shipped=None).calibration
    )
    assert told.phase("decode").time_s == found.time_s
    assert "of q4_0" in told.provenance.notes
    assert told.workload.precision == Precision(weights="q4_0", activations="f32", kv="f16")


def test_cases_of_this_machine_s_cpu_are_judged_with_its_calibration_for_their_threads(tmp_path):
    base = choose_calibration("nvidia-h200", "torch-graph", "bf16").calibration
    for threads, off in ((1, 0.1), (2, 0.4)):
        linear = tuple(replace(table, residual=off) for table in base.tables if table.op_class == "linear")
        write_calibration(
            Calibration(
                device="local", runtime="onnxruntime", dtype="f32", created=f"2026-11-15T1{threads}:00:00+00:00",
                unit="cpu", threads=threads, tables=linear,
            ),
            tmp_path,
        )  # fmt: skip
    named = {"device": "local:cpu", "runtime": "onnxruntime", "dtype": "f32", "model": "bert-base", "phase": "forward"}
    cases = [case(**named, context=None, prompt=64, threads=threads) for threads in (1, 2)]
    found, refused = judge_cases(cases, folders=(tmp_path,), shipped=None)
    assert ([each.how for each in found], refused) == (["held out", "held out"], ())
    assert found[1].width > 2 * found[0].width
