"""Every option of the commands about services arrives in the plan, as a value of its kind."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from inspect import signature

import click
import pytest

import inferometer as im
from inferometer.cli.commands import load, plan, runs, simulate
from inferometer.cli.options import command_line
from inferometer.core.errors import DomainError, InferometerError, UnitError
from inferometer.core.served import Objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing
from inferometer.core.traffic.lengths import Lengths
from inferometer.predict.ask import ask
from inferometer.serving.load.plan import LoadStep
from inferometer.serving.load.pool import Security
from inferometer.serving.simulate.plan import Lora, Vision
from inferometer.serving.simulate.service import Scaling
from inferometer.serving.simulate.source import Kinds

GOALS = (Objective(metric="ttft", limit_s=1.0, share=0.95), Objective(metric="tpot", limit_s=0.05))
TALK = Sharing(prefix_tokens=16, groups=3, turns=2, think_s=1.5)


def options(command, *words):
    with command.make_context(command.name, list(words)) as context:
        return dict(context.params)


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def planned(*words):
    """The plan of a load test."""
    with load.command.make_context("load", ["http://h", *words]) as context:
        given = dict(context.params)
        return load.plan_from(given.pop("url"), given, command="typed")


def test_every_option_of_a_load_test_is_in_its_plan(tmp_path):
    template = tmp_path / "body.json"
    template.write_text("{prompt}")
    found = planned(
        "--model", "m", "--api", "template", "--template", str(template), "--method", "put", "--no-stream", "--rate",
        "2,4", "--arrivals", "gamma", "--burstiness", "0.5", "--saturate", "--requests", "7", "--duration", "2min",
        "--warmup", "0", "--rounds", "3", "--prompt", "11", "--generate", "5", "--shared-prefix", "16:3", "--turns",
        "2", "--think", "1.5s", "--slo", "ttft_p95<=1s", "--slo", "tpot<=50ms", "--processes", "4", "--timeout", "9s",
        "--header", "A: b", "--stop-early", "--ca", str(template), "--insecure", "--device", "d", "--same-words",
        "--seed", "8",
    )  # fmt: skip
    gamma = {"process": "gamma", "burstiness": 0.5}
    assert found.steps == tuple(LoadStep(arrivals=Arrivals(rate_per_s=rate, **gamma)) for rate in (2.0, 4.0))
    assert (found.url, found.model, found.api, found.template, found.method) == (
        "http://h", "m", "template", "{prompt}", "PUT",
    )  # fmt: skip
    assert (found.stream, found.saturate, found.ignore_eos) == (False, True, False)
    assert (found.requests, found.duration_s, found.warmup, found.rounds) == (7, 120.0, 0, 3)
    assert (found.prompt, found.generate, found.sharing, found.objectives) == (fixed(11), fixed(5), TALK, GOALS)
    assert (found.processes, found.timeout_s, found.headers) == (4, 9.0, (("A", "b"),))
    assert (found.security, found.device, found.seed) == (Security(authorities=template, insecure=True), "d", 8)
    assert (found.words, planned("--rate", "1").words) == (8, None)
    assert (found.trace, found.command) == (None, "typed")


def test_what_requests_of_a_load_test_ask_for_is_in_its_plan():
    found = planned(
        "--model", "base=3,org/a=1", "--cancel", "0.1:5s", "--images", "2:64x32", "--telemetry", "http://h:9400/m",
    )  # fmt: skip
    assert (found.model, found.mix) == (None, (("base", 0.75), ("org/a", 0.25)))
    assert (found.cancels, found.images, found.telemetry) == ((0.1, 5.0), (2, 64, 32), "http://h:9400/m")
    assert (planned().mix, planned().cancels, planned().images, planned().telemetry) == ((), None, None, None)
    for wrong in (("--cancel", "2:5s"), ("--telemetry", "ftp://h"), ("--images", "1"), ("--model", "a=")):
        with pytest.raises(DomainError):
            planned(*wrong)


def test_a_load_is_of_one_kind():
    assert planned().steps == (LoadStep(concurrency=1),)
    assert planned("--concurrency", "1,8").steps == (LoadStep(concurrency=1), LoadStep(concurrency=8))
    ramp = planned("--ramp", "1:8", "--arrivals", "constant").steps
    assert ramp == (LoadStep(arrivals=Arrivals(rate_per_s=1.0, to_per_s=8.0, process="constant")),)
    assert (planned().stream, planned().ignore_eos, planned().timeout_s) == (True, True, 600.0)
    with pytest.raises(click.UsageError):
        planned("--api", "template")
    for wrong in (
        ("--rate", "1", "--ramp", "1:2"),
        ("--burstiness", "0.5"),
        ("--rate", "x"),
        ("--rate", "nan"),
        ("--concurrency", "inf"),
        ("--concurrency", "1.5"),
        ("--concurrency", "0"),
    ):
        with pytest.raises(DomainError):
            planned(*wrong)


def simulated(*words):
    with simulate.command.make_context("simulate", ["llama-3.2-1b", "--on", "nvidia-l4", *words]) as context:
        given = dict(context.params)
        return simulate.plan_from(given.pop("model"), given.pop("device"), given, command="typed")


def test_every_option_of_a_simulation_is_in_its_plan():
    found = simulated(
        "--rate", "2", "--arrivals", "constant", "--saturate", "--requests", "7", "--duration", "2min", "--prompt",
        "11", "--generate", "5", "--shared-prefix", "16:3", "--turns", "2", "--think", "1.5s", "--slo",
        "ttft_p95<=1s,tpot<=50ms", "--seed", "8", "--runtime", "sglang", "--weights", "f8e4m3", "--kv", "f8e4m3",
        "--tp", "2", "--pp", "2", "--dp", "3", "--replicas", "4", "--routing", "round-robin", "--autoscale", "1:8:32",
        "--cold-start", "5s", "--max-num-seqs", "9", "--max-num-batched-tokens", "10", "--kv-blocks", "12",
        "--block-size", "13", "--no-prefix-cache", "--preemption", "swap", "--priorities", "0.25,0.75", "--link",
        "infiniband-ndr", "--draft-length", "3", "--acceptance", "0", "--engine-version", "0.4",
    )  # fmt: skip
    workload = found.question.workload
    assert (workload.precision.weights, workload.precision.kv) == ("f8e4m3", "f8e4m3")
    assert (workload.parallel.tp, workload.parallel.pp, workload.parallel.dp) == (2, 2, 1)
    assert (found.question.runtime_name, found.question.options.engine_version) == ("sglang", "0.4")
    assert found.question.options.link.name == found.link.name == "infiniband-ndr"
    assert (found.ranks, found.replicas, found.routing) == (3, 4, "round-robin")
    assert (found.sequences, found.tokens, found.blocks, found.block_tokens) == (9, 10, 12, 13)
    assert (found.prefix_cache, found.swap, found.priorities) == (False, True, (0.25, 0.75))
    assert found.scaling == Scaling(least=1, most=8, target=32.0, cold_start_s=5.0)
    assert (found.speculation, found.readers, found.whole) == ((3, 0.0), None, False)
    traffic = found.traffic
    assert traffic.steps == (LoadStep(arrivals=Arrivals(rate_per_s=2.0, process="constant")),)
    assert (traffic.saturate, traffic.requests, traffic.duration_s, traffic.seed) == (True, 7, 120.0, 8)
    assert (traffic.prompt, traffic.generate, traffic.sharing) == (fixed(11), fixed(5), TALK)
    assert (traffic.objectives, traffic.command) == (GOALS, "typed")


def test_what_differs_between_requests_is_in_the_plan():
    found = simulated(
        "--rate", "1", "--n", "3", "--cancel", "0.1:5s", "--lora", "8:32", "--max-loras", "2", "--images", "2:576:50",
        "--encoder", "30ms", "--draft", "eagle", "--acceptance", "0.6", "--acceptance-spread", "0.1",
        "--autoscale", "1:4:0.7", "--scale-by", "cache",
    )  # fmt: skip
    assert (found.answers, found.cancels) == (3, (0.1, 5.0))
    assert found.lora == Lora(adapters=8, rank=32, slots=2)
    assert found.vision == Vision(images=2, tokens=576, encode_s=0.03, pictures=50)
    assert (found.head, found.speculation, found.spread) == ("eagle", (4, 0.6), 0.1)
    assert (found.question.options.speculative, found.scaling.signal) == (None, "cache")
    assert found.kinds == Kinds(adapters=8, images=2, pictures=50)
    assert simulated("--rate", "1", "--draft", "mtp").speculation == (1, 0.85)
    modelled = simulated("--rate", "1", "--images", "1:64", "--encoder", "vit-b-16").vision
    assert modelled.encode_s == pytest.approx(ask("vit-b-16", on="nvidia-l4").answer().summary.latency_s)
    for wrong in (
        ("--cancel", "0.1"), ("--cancel", "x:5s"), ("--lora", "x"), ("--lora", "1:2:3"), ("--images", "2"),
        ("--images", "2:576"), ("--draft-length", "4"), ("--draft", "ngram"), ("--draft", "eagle"),
        ("--autoscale", "1:2"), ("--encoder", "30ms"),
    ):  # fmt: skip
        with pytest.raises((DomainError, UnitError)):
            simulated("--rate", "1", *wrong)


def test_what_is_left_out_of_a_simulation_is_the_engines_own():
    found = simulated("--concurrency", "3")
    assert (found.question.runtime_name, found.replicas, found.ranks, found.routing) == ("vllm", 1, 1, "least-loaded")
    assert (found.sequences, found.tokens, found.blocks, found.block_tokens) == (None, None, None, None)
    assert (found.prefix_cache, found.swap, found.priorities, found.scaling) == (True, False, (), None)
    assert (found.speculation, found.link, found.traffic.requests) == (None, None, None)
    assert found.traffic.steps == (LoadStep(concurrency=3),)


def test_a_pool_of_readers_has_its_own_device_and_parallelism():
    found = simulated("--rate", "1", "--tp", "2", "--prefill-on", "nvidia-h200", "--prefill-replicas", "3")
    assert (found.readers.device.name, found.readers.workload.parallel.tp, found.reader_replicas) == (
        "nvidia-h200",
        2,
        3,
    )
    assert (
        simulated("--rate", "1", "--prefill-on", "nvidia-h200", "--prefill-tp", "4").readers.workload.parallel.tp == 4
    )
    alone = simulated("--rate", "1", "--link", "infiniband-ndr")
    assert (alone.question.options.link, alone.link.name) == (None, "infiniband-ndr")  # it is between the pools
    for following in (("--rate", "1", "--turns", "2"), ("--concurrency", "2")):
        assert simulated(*following, "--prefill-on", "nvidia-h200").readers is not None


def test_a_draft_has_a_length_and_an_acceptance():
    drafted = simulated("--rate", "1", "--draft", "smollm2-135m")
    assert drafted.speculation == (4, 0.7)
    speculative = drafted.question.options.speculative
    assert (speculative.draft.name, speculative.length, speculative.acceptance) == ("smollm2-135m", 4, 0.7)
    assert simulated("--rate", "1", "--draft-length", "2", "--acceptance", "0.5").speculation == (2, 0.5)


def test_requests_are_a_number_or_a_file_of_their_own(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,5,6\n2,7,8\n")
    found = simulated("--requests", str(path))
    assert (found.whole, found.traffic.requests, len(found.traffic.trace)) == (True, None, 2)
    assert found.traffic.trace.input_tokens.tolist() == [5, 7]
    traced = simulated("--trace", str(path), "--speed", "2")
    assert (traced.whole, traced.traffic.trace.arrival_s.tolist()) == (False, [0.0, 1.0])
    paced = simulated("--rate", "1", "--trace", str(path))  # its requests, at another rate
    assert (paced.traffic.loop, paced.traffic.steps[0].arrivals.rate_per_s, len(paced.traffic.trace)) == ("open", 1, 2)
    for wrong in ((), ("--requests", str(path), "--rate", "1")):
        with pytest.raises(DomainError):
            simulated(*wrong)
    for wrong in (("--priorities", "a,b"), ("--autoscale", "1:8"), ("--autoscale", "a:b:c")):
        with pytest.raises(DomainError):
            simulated("--rate", "1", *wrong)


# What Python calls otherwise than the command: times are numbers of seconds, and a flag says what is on.
IN_PYTHON = {
    "--duration": "duration_s", "--from": "from_s", "--think": "think_s", "--cold-start": "cold_start_s",
    "--timeout": "timeout_s", "--no-prefix-cache": "prefix_cache",
}  # fmt: skip
BESIDE = {
    "--serve",
    "--host",
    "--port",
    "--out",
    "--format",
    "--store",
    "--project",
    "--name",
    "--tag",
    "--no-store",
    "--hub",
    "--note",
    "--token",
    "--token-file",
}


def test_python_simulates_with_every_option_of_the_command(monkeypatch):
    """Each with the same plan: by its name, its default, and a value of its own."""
    taken = signature(im.simulate).parameters
    wanted = {name for option in simulate.command.params for name in option.opts if name.startswith("--")} - BESIDE
    named = {name: IN_PYTHON.get(name, name[2:].replace("-", "_")) for name in wanted}
    assert {name for name, keyword in named.items() if keyword not in taken} == set()
    monkeypatch.setattr("inferometer.serving.simulate.run.simulate", lambda plan: plan)
    words = {
        "--rate": "2", "--arrivals": "gamma", "--burstiness": "0.5", "--duration": "120", "--requests": "7",
        "--prompt": "11", "--generate": "5", "--shared-prefix": "16:3", "--turns": "2", "--think": "1.5", "--n": "2",
        "--slo": "ttft_p95<=1s,tpot<=50ms", "--seed": "8", "--runtime": "sglang", "--weights": "f8e4m3", "--tp": "2",
        "--dp": "3", "--replicas": "4", "--routing": "round-robin", "--autoscale": "1:8:32", "--cold-start": "5",
        "--scale-by": "waiting", "--max-num-seqs": "9", "--max-num-batched-tokens": "10", "--kv-blocks": "12",
        "--block-size": "13", "--max-model-len": "99", "--max-queue": "6", "--timeout": "3", "--cancel": "0.1:5s",
        "--acceptance-spread": "0.1", "--lora": "8:32", "--max-loras": "2", "--images": "2:576:50", "--encoder": "30ms",
        "--kv-offload": "64GB,2TB@5GB/s", "--preemption": "swap", "--priorities": "0.25,0.75", "--draft-length": "3",
        "--link": "infiniband-ndr", "--prefill-on": "nvidia-h200", "--prefill-replicas": "2", "--prefill-tp": "1",
        "--acceptance": "0.5",
    }  # fmt: skip
    numbers = {named[name]: _plain(text) for name, text in words.items()}
    typed = simulated(*(word for pair in words.items() for word in pair), "--no-prefix-cache", "--saturate")
    asked = im.simulate("llama-3.2-1b", on="nvidia-l4", prefix_cache=False, saturate=True, **numbers)
    assert asked == replace(typed, traffic=replace(typed.traffic, command=None))
    typed = simulated("--concurrency", "3")
    assert im.simulate("llama-3.2-1b", on="nvidia-l4", concurrency=3) == replace(
        typed, traffic=replace(typed.traffic, command=None)
    )


def _plain(text):
    """A number as Python has it; any other text as it is."""
    return int(text) if text.isdecimal() else float(text) if text.replace(".", "", 1).isdecimal() else text


def searched(*words):
    return plan.search_from("m", options(plan.command, "m", *words))


def test_every_option_of_a_plan_is_in_its_search():
    found = searched(
        "--rate", "2", "--prompt", "11", "--generate", "5", "--slo", "ttft_p95<=1s,tpot<=50ms", "--tp", "1, 2",
        "--max-num-seqs", "0,9", "--max-devices", "7", "--availability", "0.9", "--replica-up", "0.8", "--headroom",
        "0.1", "--fallback", "0.2", "--edge", "e", "--edge-model", "f", "--edge-weights", "i8", "--round-trip", "40ms",
        "--goal", "greenest", "--on", "a,b", "--runtime", "r", "--weights", "own,i4", "--spot", "--discount", "0.3",
        "--grid", "world", "--pue", "1.2", "--keep", "4", "--seed", "8",
    )  # fmt: skip
    assert (found.rate_per_s, found.prompt, found.generate, found.objectives) == (2.0, fixed(11), fixed(5), GOALS)
    assert (found.tp, found.sequences, found.most_devices) == ((1, 2), (0, 9), 7)
    assert (found.availability, found.replica_up, found.headroom, found.fallback) == (0.9, 0.8, 0.1, 0.2)
    edge = found.edge
    assert (edge.device, edge.model, edge.weights, edge.round_trip_s) == ("e", "f", "i8", 0.04)
    assert (found.goal, found.devices, found.runtimes, found.weights) == ("greenest", ("a", "b"), ("r",), (None, "i4"))
    assert (found.discount, found.keep, found.seed) == (0.3, 4, 8)
    assert (found.options.place.spot, found.options.place.grid) == (True, "world")
    plain = searched("--rate", "1")
    assert (plain.sequences, plain.tp, plain.edge, plain.options.place.spot) == ((0, 64, 256), (), None, False)
    for wrong in (("--tp", "x"), ("--edge-model", "f")):
        with pytest.raises(click.UsageError):
            searched("--rate", "1", *wrong)


def test_a_job_a_day_prices_and_power_are_in_the_search(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text("device,usd_per_hour,note\nNVIDIA-L4,0.5,ours\n")
    found = searched(
        "--tokens", "1e9", "--by", "100h", "--generate", "250", "--day", "0.5,1", "--prices", str(prices),
        "--max-power", "2kW", "--interruptions", "0.1", "--cold-start", "6min", "--availability", "0.99",
    )  # fmt: skip
    assert found.rate_per_s == pytest.approx(1e9 / 250 / 360_000)
    assert (found.day, found.prices, found.most_watts) == ((0.5, 1.0), (("nvidia-l4", 0.5),), 2000.0)
    assert found.replica_up == pytest.approx(1 / 1.01)
    later = (datetime.now().astimezone() + timedelta(hours=10)).isoformat()
    assert searched("--tokens", "3600", "--by", later, "--generate", "1").rate_per_s == pytest.approx(0.1, rel=1e-3)
    for wrong in (("--tokens", "1e9"), ("--by", "3h", "--rate", "1"), ("--tokens", "1", "--by", "1h", "--rate", "1"),
                  ("--tokens", "1", "--by", "2001-01-01"), ("--rate", "1", "--day", "x"),
                  ("--rate", "1", "--interruptions", "0.1")):  # fmt: skip
        with pytest.raises(click.UsageError):
            searched(*wrong)
    for rows in ("nvidia-l4,x", "nvidia-l4,nan", "nvidia-l4,-1", "nobodys-gpu,1", "nvidia-l4"):
        prices.write_text(f"device,usd_per_hour\n{rows}\n")
        with pytest.raises(InferometerError):
            searched("--rate", "1", "--prices", str(prices))
    with pytest.raises(InferometerError):
        searched("--rate", "1", "--prices", str(tmp_path / "none.csv"))


# Times, and commands that are kept


@pytest.mark.parametrize(
    ("text", "ago_s"),
    [("30s", 30), ("2min", 120), ("1.5h", 5400), ("3d", 3 * 86400), ("1 day", 86400), ("2 days ago", 2 * 86400),
     ("2w", 14 * 86400), ("1 week", 7 * 86400)],
)  # fmt: skip
def test_a_time_may_be_how_long_ago(text, ago_s):
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert runs.timestamp(text, now=now) == now.timestamp() - ago_s


def test_a_time_may_be_a_date():
    assert runs.timestamp("2026-01-02T03:04:05+00:00") == 1767323045
    for wrong in ("yesterday", "3x", "2026-13-01", ""):
        with pytest.raises(DomainError, match="is not a time"):
            runs.timestamp(wrong)


def test_every_filter_of_a_list_arrives():
    given = options(
        runs.command, "--project", "p", "--tag", "a", "--tag", "b", "--model", "m", "--device", "d", "--runtime", "r",
        "--machine", "x", "--status", "failed", "--since", "2026-01-02T00:00:00+00:00", "--until",
        "2026-01-03T00:00:00+00:00", "--search", "w",
    )  # fmt: skip
    found = runs._filter_from(given)
    assert (found.project, found.tags, found.model, found.device, found.runtime) == ("p", ("a", "b"), "m", "d", "r")
    assert (found.machine, found.status, found.words) == ("x", ("failed",), "w")
    assert found.until - found.since == 86400


def test_a_command_is_kept_without_its_secrets(monkeypatch):
    typed = ["inferometer", "load", "http://me:pw@h", "--header", "A: b", "--header=C: d", "--proxy", "me:pw@p:1"]
    monkeypatch.setattr("sys.argv", typed)
    assert load.command_line() == "inferometer load 'http://…@h' --header 'A: …' '--header=C: …' --proxy '…@p:1'"
    monkeypatch.setattr("sys.argv", ["inferometer", "push", "--token", "s3", "--token=s4", "postgresql://u:pw@h/d"])
    assert command_line() == "inferometer push --token '***' '--token=***' 'postgresql://u:***@h/d'"
