"""`inferometer simulate` and `inferometer plan` as they are used, on priors: no table of kernels is needed."""

import csv
import json
import socket

import pytest
from click.testing import CliRunner

import inferometer as im
from inferometer.cli.commands import simulate as simulating
from inferometer.cli.run import cli
from inferometer.core.errors import DomainError, GateError

_MODEL = ("llama-3.2-1b", "--on", "nvidia-l4")


@pytest.fixture
def run(tmp_path):
    def invoke(*words):
        store = ["--store", str(tmp_path / "runs.db")] if words[0] == "simulate" else []
        result = CliRunner().invoke(cli, [*words, *store], catch_exceptions=True)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def requests_file(tmp_path, count=80):
    path = tmp_path / "requests.csv"
    rows = [f"{index * 0.2},{200 + index},{20 + index % 7}" for index in range(count)]
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_file_of_requests_comes_back_with_a_time_for_each(run, tmp_path):
    out = tmp_path / "result.csv"
    limits = ("--max-num-seqs", "16", "--max-num-batched-tokens", "2048", "--kv-blocks", "400", "--block-size", "16")
    result = run(
        "simulate", *_MODEL, "--requests", str(requests_file(tmp_path)), *limits, "--out", str(out), "--format", "json"
    )
    document = json.loads(result.stdout)
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 80
    assert all(float(row["e2e_s"]) >= float(row["ttft_s"]) > 0 and float(row["tpot_s"]) > 0 for row in rows)
    mean = sum(float(row["ttft_s"]) for row in rows) / 80
    assert document["summary"]["ttft_s"]["mean"] == pytest.approx(mean)
    assert document["summary"]["tpot_s"]["p95"] > 0
    assert document["kind"] == "predicted"


def test_more_load_takes_longer_and_more_replicas_take_less(run):
    def p95(*words):
        asked = ("--requests", "300", "--prompt", "256", "--generate", "64", "--no-store", "--format", "json")
        return json.loads(run("simulate", *_MODEL, *words, *asked).stdout)["summary"]["ttft_s"]["p95"]

    assert p95("--rate", "2") < p95("--rate", "60")
    assert p95("--rate", "60", "--replicas", "4") < p95("--rate", "60")


def test_two_pools_speculation_scaling_and_swapping_answer_every_request(run):
    base = (
        "--rate",
        "10",
        "--requests",
        "120",
        "--prompt",
        "256",
        "--generate",
        "48",
        "--no-store",
        "--format",
        "json",
    )
    for words in (
        ("--prefill-on", "nvidia-l4", "--prefill-replicas", "2", "--link", "infiniband-ndr"),
        ("--draft-length", "3", "--acceptance", "0.6"),
        ("--autoscale", "1:4:8", "--cold-start", "5s"),
        ("--kv-blocks", "60", "--preemption", "swap"),
        ("--priorities", "0.2,0.8", "--replicas", "2", "--routing", "prefix-aware"),
        ("--turns", "3", "--think", "1s", "--shared-prefix", "128:2"),
    ):
        level = json.loads(run("simulate", *_MODEL, *base, *words).stdout)["levels"][0]
        assert level["completed"] == 120, words


def test_many_requests_are_streamed_and_say_the_same(monkeypatch):
    """Beyond a number of requests only distributions are kept; they agree with the requests themselves."""
    import inferometer.serving.simulate.run as simulating

    asked = {"on": "nvidia-l4", "rate": 10.0, "requests": 1500, "prompt": 256, "generate": 32}
    kept = im.simulate("llama-3.2-1b", **asked).served.levels[0]
    monkeypatch.setattr(simulating, "MOST_KEPT", 1000)
    streamed = im.simulate("llama-3.2-1b", **asked).served.levels[0].stated
    assert kept.requests is not None
    assert streamed.requests == 1500
    from inferometer.core.traffic.figures import figures_of

    assert streamed.tpot_s.p50 == pytest.approx(figures_of(kept).tpot_s.p50, rel=0.05)


def test_a_load_must_be_named_and_only_one(run):
    with pytest.raises(DomainError, match="Say what load"):
        run("simulate", *_MODEL)
    with pytest.raises(DomainError, match="Give one of --concurrency and --rate"):
        run("simulate", *_MODEL, "--rate", "1", "--concurrency", "2")
    with pytest.raises(DomainError, match="sum to"):
        run("simulate", *_MODEL, "--rate", "1", "--priorities", "0.5,0.9")


def test_requests_that_no_cache_holds_and_models_without_tokens_are_told(run):
    with pytest.raises(GateError, match="No request was answered"):
        run("simulate", *_MODEL, "--rate", "5", "--requests", "10", "--kv-blocks", "2", "--no-store")
    with pytest.raises(DomainError, match="makes no tokens"):
        run("plan", "yolo11n", "--rate", "5")


def test_what_has_no_price_is_not_called_the_cheapest(run):
    result = run(
        "plan", "llama-3.2-1b", "--rate", "1", "--slo", "e2e_p95<=60s", "--on", "nvidia-rtx-4090", "--spot",
        "--tp", "1", "--format", "json",
    )  # fmt: skip
    plans = json.loads(result.stdout)["plans"]
    assert {plan["why"] for plan in plans} == {"meets every objective; its price is not known"}


def test_a_plan_meets_its_objectives_and_says_why_the_next_lost(run):
    result = run(
        "plan", "llama-3.2-1b", "--rate", "40", "--prompt", "256", "--generate", "64", "--slo",
        "ttft_p95<=1s,tpot_p95<=60ms", "--on", "nvidia-l4,nvidia-h100-sxm", "--weights", "own", "--tp", "1,2",
        "--format", "json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    plans = document["plans"]
    assert len(plans) >= 2
    assert all(plan["ttft_p95_s"] <= 1 and plan["tpot_p95_s"] <= 0.06 for plan in plans)
    prices = [plan["usd_per_hour"] for plan in plans]
    assert prices == sorted(prices)
    assert "more" in plans[1]["why"] or "same" in plans[1]["why"]
    assert document["why_not"] is None


def test_a_plan_is_the_same_in_several_processes():
    """What they compute ahead of the search changes nothing."""
    asked = {"rate": 40.0, "slo": "ttft_p95<=1s,tpot_p95<=60ms", "devices": ("nvidia-l4",), "tp": (1,)}
    alone, several = (im.plan("llama-3.2-1b", **asked, engine=engine) for engine in ("local", "local:2"))
    assert len(alone.plans) > 1
    assert (several.candidates, several.simulated, several.rejected) == (
        alone.candidates, alone.simulated, alone.rejected,
    )  # fmt: skip
    for one, other in zip(alone.plans, several.plans, strict=True):
        assert (one.device, one.weights, one.tp, one.replicas, one.why) == (
            other.device, other.weights, other.tp, other.replicas, other.why,
        )  # fmt: skip
        assert other.tpot_p95_s == pytest.approx(one.tpot_p95_s, rel=1e-6)  # kernels that are read once are rounded


def test_without_a_plan_it_says_what_binds():
    asked = {"rate": 10.0, "devices": ("nvidia-l4",), "weights": (None,), "tp": (1,)}
    answer = im.plan("llama-3.2-1b", slo="tpot_p95<=10us", **asked)
    assert not answer.plans
    assert "tpot_p95<=10µs binds" in answer.why_not
    crowded = im.plan("llama-3.2-1b", slo="tpot_p95<=60ms", **{**asked, "rate": 5000.0}, most_devices=2)
    assert "number of devices binds" in crowded.why_not


def test_cameras_get_devices_that_keep_up(run):
    words = ("--on", "hailo-8l,raspberry-pi-2", "--streams", "8", "--battery", "50Wh", "--format", "json")
    plans = json.loads(run("plan", "yolo11n", "--frames", "30", *words).stdout)["plans"]
    assert [plan["meets"] for plan in plans] == [True, False]
    assert plans[0]["count"] * plans[0]["streams"] >= 8
    assert plans[0]["battery_s"] > 0
    with pytest.raises(GateError):
        run("plan", "yolo11n", "--frames", "5000", "--on", "raspberry-pi-2")


def test_two_tiers_say_what_the_edge_answers_and_what_users_see(run):
    words = (
        "plan", "llama-3.1-8b", "--rate", "20", "--fallback", "0.25", "--slo", "tpot_p95<=60ms", "--on", "nvidia-l4",
        "--tp", "1", "--prompt", "256", "--generate", "64", "--edge-model", "llama-3.2-1b", "--battery", "50Wh",
    )  # fmt: skip
    tiers = ("--edge", "nvidia-jetson-orin-nano-8gb", "--round-trip", "40ms")
    document = json.loads(run(*words, *tiers, "--format", "json").stdout)
    edge, cloud = document["edge"], document["plans"][0]
    there = cloud["ttft_s"] + 63 * cloud["tpot_s"]
    assert edge["share"] == 0.75
    assert edge["handed_on_s"] == pytest.approx(edge["answer_s"] + 0.04 + there)
    assert edge["mean_s"] == pytest.approx(edge["answer_s"] + 0.25 * (0.04 + there))
    assert edge["requests_per_charge"] == pytest.approx(50 * 3600 / edge["joules"])
    answer = im.plan(
        "llama-3.1-8b", rate=20, fallback=0.25, slo="tpot_p95<=60ms", devices=("nvidia-l4",), tp=(1,), prompt=256,
        generate=64, edge="nvidia-jetson-orin-nano-8gb", edge_model="llama-3.2-1b", round_trip_s=0.04,
    )  # fmt: skip
    assert answer.edge.handed_on_s == pytest.approx(edge["handed_on_s"])
    with pytest.raises(DomainError, match="need the device"):
        im.plan("llama-3.1-8b", rate=20, fallback=0.25, slo="tpot_p95<=60ms", edge_model="llama-3.2-1b")
    assert "handed on" in run(*words, *tiers).stdout
    assert run(*words).exit_code == 2  # a model for the edge, and no device
    with pytest.raises(DomainError, match="--fallback"):
        run("plan", "llama-3.1-8b", "--rate", "20", "--edge", "raspberry-pi-5")


def test_cooling_takes_streams_from_a_device_before_it_takes_the_device():
    from inferometer.serving.plans.edge import EdgeSearch, edge_plans

    asked = {"model": "yolo11n", "frames_per_s": 30.0, "streams": 9, "devices": ("nvidia-jetson-agx-orin-64gb",)}
    (free,) = edge_plans(EdgeSearch(**asked)).plans
    (cool,) = edge_plans(EdgeSearch(**asked, max_watts=0.6 * free.watts)).plans
    assert 0 < cool.streams < free.streams
    assert cool.watts <= 0.6 * free.watts < free.watts
    assert cool.count > free.count
    none = edge_plans(EdgeSearch(**asked, max_watts=0.1))
    assert not none.plans[0].meets
    assert none.why_not.startswith("Cooling binds")


def test_spare_replicas_follow_from_availability():
    from inferometer.serving.plans.search import spare_replicas

    assert spare_replicas(4, 0.99, None) == 0
    assert spare_replicas(1, 0.99, 0.9999) == 1  # two that are both down: 0.01 × 0.01
    assert spare_replicas(4, 0.99, 0.9999) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--on", "nvidia-h200", "--runtime", "vllm", "--threads", "2"),
        ("--on", "nvidia-h200", "--runtime", "vllm", "--tp", "7"),
        ("--on", "raspberry-pi-5", "--runtime", "llamacpp", "--threads", "9"),
    ],
)
def test_the_mock_server_does_not_start_for_what_predict_refuses(monkeypatch, words):
    monkeypatch.setattr(simulating, "_served", lambda *_: pytest.fail("it listens"))
    refused = [
        CliRunner().invoke(cli, [*asked, "smollm2-135m", *words]).exception
        for asked in (("predict",), ("simulate", "--serve"))
    ]
    assert all(isinstance(error, DomainError) for error in refused), refused
    assert str(refused[0]) == str(refused[1])


@pytest.mark.parametrize(
    ("option", "needed"),
    [
        (("--cold-start", "5s"), "--autoscale"), (("--scale-by", "waiting"), "--autoscale"),
        (("--max-loras", "2"), "--lora"), (("--prefill-tp", "2"), "--prefill-on"),
    ],
)  # fmt: skip
def test_an_option_without_the_one_that_it_is_of_is_refused(option, needed):
    asked = ["simulate", "llama-3.2-1b", "--on", "nvidia-l4", "--rate", "1", "--requests", "5", *option]
    assert f"goes with {needed}" in str(CliRunner().invoke(cli, asked).exception)


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        asked = ["simulate", "llama-3.2-1b", "--on", "nvidia-l4", "--serve", "--port", port]
        found = CliRunner().invoke(cli, asked).exception
    assert isinstance(found, DomainError)
    assert f"served at 127.0.0.1:{port}" in found.message
