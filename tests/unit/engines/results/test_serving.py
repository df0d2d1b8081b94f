"""GuideLLM, AIPerf, vllm bench serve, SGLang, InferenceX and LoadGen."""

from dataclasses import replace

import pytest

from inferometer.core.errors import FormatError
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Profile
from inferometer.core.served import Distribution, Level, LevelFigures, Served
from inferometer.core.workload import Workload
from inferometer.engines.results.serving import as_sweep
from unit.engines.results.sources import only, parsed, sample, taken, written


def test_each_rate_of_guidellm_is_a_profile():
    alone, loaded = sample("guidellm.json")
    assert (alone.workload.arrival_per_s, loaded.workload.arrival_per_s) == (None, 2.5)
    assert loaded.summary.ttft_s == pytest.approx(0.12)
    assert loaded.summary.tpot_s == pytest.approx(0.025)
    assert loaded.summary.e2e_s == pytest.approx(2.6)
    assert loaded.summary.tokens_per_s == pytest.approx(240)
    assert loaded.phase("prefill").samples_s == pytest.approx((0.115, 0.125))
    assert loaded.phase("decode").statistic == "mean weighted by tokens"
    assert loaded.model.name == "Qwen/Qwen3-8B"
    assert loaded.provenance.version == "0.5.0"


def test_a_mean_number_of_tokens_that_is_rounded_is_told():
    profile = sample("guidellm.json")[0]
    assert (profile.workload.prompt, profile.workload.generate) == (256, 100)
    assert any("100.5 tokens" in note for note in profile.provenance.notes)
    assert not any("prompt is the mean" in note for note in profile.provenance.notes)


def test_guidellm_offered_those_that_failed_too(tmp_path):
    report = parsed("guidellm.json")
    report["benchmarks"][1]["metrics"]["request_totals"] |= {"errored": 3, "total": 5}
    _, figures = level_of(taken(written(tmp_path, report))[1])
    assert (figures.requests, figures.completed, figures.counted, figures.errors) == (5, 2, 2, {"failed": 3})


def test_guidellm_without_streaming_has_one_phase(tmp_path):
    report = parsed("guidellm.json")
    for benchmark in report["benchmarks"]:
        for name in ("time_to_first_token_ms", "inter_token_latency_ms"):
            benchmark["metrics"][name]["successful"]["mean"] = 0.0  # what it writes where nothing was measured
    profile = taken(written(tmp_path, report))[0]
    assert [phase.name for phase in profile.phases] == ["request"]
    assert (profile.summary.ttft_s, profile.summary.tpot_s) == (None, None)


def test_aiperf_gives_means_in_seconds_whatever_its_unit(tmp_path):
    profile = only("aiperf.json")
    assert profile.summary.ttft_s == pytest.approx(0.19584)
    assert profile.summary.tpot_s == pytest.approx(0.0352)
    assert profile.summary.e2e_s == pytest.approx(2.4135)
    assert profile.model.name == "Qwen/Qwen3-0.6B"
    assert profile.environment.host["concurrency"] == 4
    export = parsed("aiperf.json")
    export["time_to_first_token"] = {"unit": "ns", "avg": 195_840_000}
    (other,) = taken(written(tmp_path, export))
    assert other.summary.ttft_s == pytest.approx(0.19584)


def test_aiperf_with_a_median_only_says_median(tmp_path):
    export = parsed("aiperf.json")
    del export["time_to_first_token"]["avg"]
    (profile,) = taken(written(tmp_path, export))
    prefill = profile.phase("prefill")
    assert (prefill.time_s, prefill.statistic) == (pytest.approx(0.17505), "median")


def test_a_unit_that_is_no_time_is_refused(tmp_path):
    export = parsed("aiperf.json")
    export["time_to_first_token"]["unit"] = "tokens"
    with pytest.raises(FormatError, match="`time_to_first_token` is in 'tokens'"):
        taken(written(tmp_path, export))


def test_vllm_keeps_each_request_that_succeeded():
    profile = only("vllm.json")
    assert profile.phase("prefill").samples_s == pytest.approx((0.04, 0.05))
    assert profile.phase("decode").samples_s == pytest.approx((0.01, 0.015))  # the mean gap of each
    assert profile.summary.tpot_s == pytest.approx(0.0125)
    assert (profile.workload.prompt, profile.workload.generate) == (512, 3)
    assert profile.workload.arrival_per_s is None  # "inf" is no rate
    assert any("the times leave out 1 failed request" in note for note in profile.provenance.notes)


def test_vllms_appended_results_are_a_profile_each():
    slow, fast = sample("vllm.jsonl")
    assert (slow.workload.arrival_per_s, fast.workload.arrival_per_s) == (1.0, 4.0)
    assert (slow.summary.ttft_s, fast.summary.ttft_s) == (pytest.approx(0.04), pytest.approx(0.06))


def test_vllms_embeddings_have_one_phase(tmp_path):
    result = {
        "duration": 2.0,
        "completed": 4,
        "request_throughput": 2.0,
        "mean_e2el_ms": 12.0,
        "total_input_tokens": 64,
    }
    (profile,) = taken(written(tmp_path, result))
    assert [(phase.name, phase.time_s) for phase in profile.phases] == [("request", pytest.approx(0.012))]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mean_ttft_ms": -1}, "`mean_ttft_ms`"),
        ({"mean_tpot_ms": "x"}, "`mean_tpot_ms`"),
        ({"itls": [[0.1], [None]]}, r"`itls`\[1\]\[0\]"),
        ({"ttfts": "many"}, "`ttfts`"),
        ({"completed": -1}, "`completed`"),
    ],
)
def test_a_result_that_cannot_be_says_why(tmp_path, change, why):
    with pytest.raises(FormatError, match=why):
        taken(written(tmp_path, {**parsed("vllm.json"), **change}))


def test_no_request_that_succeeded_is_no_profile(tmp_path):
    with pytest.raises(FormatError, match="no time of a request"):
        taken(written(tmp_path, {"duration": 2.0, "completed": 0, "request_throughput": 0.0}))


def level_of(profile):
    (level,) = profile.served.levels
    return level, level.stated


def test_a_load_generator_becomes_a_level_of_load():
    level, figures = level_of(only("vllm.json"))
    assert level.name == "all at once"
    assert (figures.requests, figures.completed, figures.errors) == (3, 2, {"failed": 1})
    assert (figures.ttft_s.mean, figures.ttft_s.p99) == (pytest.approx(0.045), pytest.approx(0.0499))
    assert figures.e2e_s.p50 == pytest.approx(0.07)
    level, figures = level_of(sample("guidellm.json")[1])
    assert (level.name, level.rate_per_s) == ("2.5/s", 2.5)
    assert figures.ttft_s.mean == pytest.approx(0.12)
    level, figures = level_of(only("aiperf.json"))
    assert (level.name, level.concurrency) == ("4 at once", 4)
    assert figures.ttft_s.p99 == pytest.approx(0.25345)


def test_sglang_is_not_taken_for_vllm():
    open_loop, closed = sample("sglang.jsonl")
    assert open_loop.provenance.tool == "SGLang bench_serving"
    assert open_loop.runtime == "sglang"
    assert (open_loop.summary.ttft_s, open_loop.summary.e2e_s) == (pytest.approx(0.1), pytest.approx(0.4))
    assert (open_loop.workload.prompt, open_loop.workload.generate) == (128, 16)
    level, figures = level_of(open_loop)
    assert (level.name, figures.input_tokens_per_s, figures.in_flight) == ("5/s", 640.0, 2.0)
    assert level_of(closed)[0].name == "8 at once"


def test_inferencex_is_of_all_gpus_and_says_where_it_ran():
    first, second = sample("inferencex.json")
    assert (first.device.name, first.device.count, first.runtime) == ("h200", 8, "vllm")
    assert first.summary.tokens_per_s == pytest.approx(400 * 8)
    assert (second.summary.ttft_s, second.workload.prompt) == (pytest.approx(2.0), 1024)
    level, figures = level_of(second)
    assert level.name == "8 at once"
    assert figures.tpot_s.p50 == pytest.approx(0.0784)


def test_loadgen_is_in_nanoseconds():
    profile = only("loadgen.txt")
    assert profile.summary.ttft_s == pytest.approx(0.2)
    assert profile.summary.tpot_s == pytest.approx(0.03)
    assert profile.summary.tokens_per_s == 2850
    level, figures = level_of(profile)
    assert (level.name, figures.requests_per_s, figures.e2e_s.p99) == ("10/s", 9.5, 15.0)
    assert "VALID" in profile.provenance.notes[-1]


def _level_profile(rate, model="m"):
    figures = LevelFigures(
        requests=10, completed=10, requests_per_s=rate, e2e_s=Distribution(p50=1 + rate**3 / 100, mean=1.0)
    )
    level = Level(name=f"{rate:g}/s", rate_per_s=rate, stated=figures)
    served = Served(loop="open", levels=(level,))
    return Profile(
        kind="measured", model=ModelFacts(name=model), device=DeviceFacts(name="d"), runtime="vllm",
        workload=Workload(), phases=(), summary=Headline(), served=served,
    )  # fmt: skip


def _closed_profile(users):
    open_loop = _level_profile(float(users))
    level = replace(open_loop.served.levels[0], rate_per_s=None, concurrency=users, name=f"{users} at once")
    return replace(open_loop, served=replace(open_loop.served, loop="closed", levels=(level,)))


def test_results_of_one_service_join_into_a_sweep():
    joined = as_sweep([_level_profile(rate) for rate in (8.0, 1.0, 4.0)])
    assert [level.name for level in joined.served.levels] == ["1/s", "4/s", "8/s"]
    assert joined.served.levels[joined.served.headline].name == "4/s"  # the knee
    closed = [_closed_profile(users) for users in (16, 2, 8)]
    assert [level.name for level in as_sweep(closed).served.levels] == ["2 at once", "8 at once", "16 at once"]
    crowd, rest = _level_profile(3.0), _level_profile(1.0)
    level = replace(crowd.served.levels[0], rate_per_s=None, name="all at once")
    unstated = replace(crowd, served=replace(crowd.served, levels=(level,)))
    assert [level.name for level in as_sweep([rest, unstated]).served.levels] == ["all at once", "1/s"]
    with pytest.raises(FormatError, match="several services"):
        as_sweep([_level_profile(1.0), _level_profile(2.0, model="other")])
