import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import only, parsed, sample, taken, written


def test_prompt_and_generation_of_the_same_settings_are_one_profile():
    profile = only("llama_bench.json")
    assert [phase.name for phase in profile.phases] == ["prefill", "decode"]
    assert (profile.workload.prompt, profile.workload.generate, profile.workload.context) == (512, 128, 0)


def test_decode_is_one_step():
    # tg128 took 1.28, 1.024 and 1.152 s: 10, 8 and 9 ms a token.
    profile = only("llama_bench.json")
    assert profile.phase("prefill").samples_s == pytest.approx((74e-3, 72e-3, 70e-3))
    assert profile.phase("decode").samples_s == pytest.approx((10e-3, 8e-3, 9e-3))
    assert profile.phase("decode").time_s == profile.summary.tpot_s == pytest.approx(9e-3)
    assert profile.summary.tokens_per_s == pytest.approx(112.037)
    assert profile.summary.ttft_s is None


def test_the_model_the_device_and_the_build():
    profile = only("llama_bench.json")
    assert profile.model.name == "Qwen2.5-7B-Instruct-Q4_K_M"
    assert (profile.model.parameters, profile.model.weight_bytes) == (7615616512, 4677120000)
    assert profile.model.architecture == "qwen2"
    assert profile.device.name == "NVIDIA GeForce RTX 4080"
    assert profile.workload.precision.kv == "f16"
    assert profile.workload.precision.weights is None  # Q4_K - Medium is a mixture
    assert profile.environment.threads == 8
    assert (profile.provenance.version, profile.provenance.created) == ("5163 (8cf427ff)", "2025-04-24T11:58:50Z")


def test_lines_of_json_and_depths_apart():
    shallow, both, deep = sample("llama_bench.jsonl")
    assert [phase.name for phase in shallow.phases] == ["prefill", "decode"]
    assert (both.phases[0].name, both.summary.e2e_s) == ("request", pytest.approx(0.5))
    assert deep.workload.context == 4096
    assert deep.phase("decode").time_s == pytest.approx(12e-3)


def test_tests_that_nothing_pairs_are_profiles_of_their_own(tmp_path):
    rows = parsed("llama_bench.json")
    rows.insert(1, {**rows[0], "n_prompt": 1024})
    profiles = taken(written(tmp_path, rows))
    assert [[phase.name for phase in profile.phases] for profile in profiles] == [["prefill"], ["prefill"], ["decode"]]
    assert [profile.workload.prompt for profile in profiles] == [512, 1024, None]


def test_no_layer_on_the_gpu_is_the_cpu(tmp_path):
    rows = [{**row, "n_gpu_layers": 0} for row in parsed("llama_bench.json")]
    (profile,) = taken(written(tmp_path, rows))
    assert profile.device.name == "AMD Ryzen 7 7800X3D 8-Core Processor"


def test_powershells_utf16_is_read(tmp_path):
    path = tmp_path / "bench.json"
    path.write_bytes(written(tmp_path, parsed("llama_bench.json")).read_text().encode("utf-16"))
    assert taken(path)[0].phases == only("llama_bench.json").phases


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"avg_ns": -1}, "`avg_ns`"),
        ({"avg_ns": "soon"}, "`avg_ns`"),
        ({"n_prompt": 0}, "no tokens"),
        ({"n_prompt": 1.5}, "`n_prompt`"),
        ({"samples_ns": [1, None]}, r"`samples_ns`\[1\]"),
        ({"samples_ns": 3}, "`samples_ns`"),
        ({"n_threads": -2}, "`n_threads`"),
    ],
)
def test_a_row_that_cannot_be_says_why(tmp_path, change, why):
    with pytest.raises(FormatError, match=why):
        taken(written(tmp_path, [{**parsed("llama_bench.json")[0], **change}]))
