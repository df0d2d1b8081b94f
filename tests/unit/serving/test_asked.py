"""Every option of `simulate` is in its plan, changes nothing else there, and is the same from Python."""

from dataclasses import fields, replace

import click
import numpy as np
import pytest

import inferometer as im
from inferometer.cli.commands.simulate import command, plan_from
from inferometer.cli.storing import storing_options
from inferometer.core.errors import DomainError
from inferometer.core.served import parse_objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing
from inferometer.core.traffic.lengths import Lengths
from inferometer.known import link
from inferometer.serving.asked import SERVED
from inferometer.serving.load.plan import LoadStep, demand_of
from inferometer.serving.simulate.plan import Lora, Vision
from inferometer.serving.simulate.service import Scaling

MODEL, DEVICE = "llama-3.2-1b", "nvidia-l4"
GOALS = ("ttft_p95<=1s", "tpot_p95<=50ms")


def rate(per_s, **more):
    return (LoadStep(arrivals=Arrivals(rate_per_s=per_s, **more)),)


# {option: (its value and what it needs beside it, what they change of the plan)}
SERVICE = {
    "--dp": (("3",), {"ranks": 3}),
    "--replicas": (("4",), {"replicas": 4}),
    "--routing": (("round-robin",), {"routing": "round-robin"}),
    "--autoscale": (("2:5:7",), {"scaling": Scaling(least=2, most=5, target=7.0, cold_start_s=60.0)}),
    "--cold-start": (
        ("9s", "--autoscale", "2:5:7"), {"scaling": Scaling(least=2, most=5, target=7.0, cold_start_s=9.0)},
    ),
    "--scale-by": (
        ("waiting", "--autoscale", "2:5:7"),
        {"scaling": Scaling(least=2, most=5, target=7.0, cold_start_s=60.0, signal="waiting")},
    ),
    "--max-num-seqs": (("11",), {"sequences": 11}),
    "--max-num-batched-tokens": (("777",), {"tokens": 777}),
    "--kv-blocks": (("333",), {"blocks": 333}),
    "--block-size": (("32",), {"block_tokens": 32}),
    "--max-model-len": (("999",), {"longest": 999}),
    "--max-queue": (("13",), {"queue": 13}),
    "--timeout": (("8s",), {"patience_s": 8.0}),
    "--cancel": (("0.25:5s",), {"cancels": (0.25, 5.0)}),
    "--acceptance-spread": (
        ("0.1", "--draft-length", "3", "--acceptance", "0.5"),
        {"spread": 0.1, "head": "ngram", "speculation": (3, 0.5)},
    ),
    "--draft-length": (("3", "--acceptance", "0.5"), {"head": "ngram", "speculation": (3, 0.5)}),
    "--lora": (("8:32",), {"lora": Lora(adapters=8, rank=32, slots=1)}),
    "--max-loras": (("4", "--lora", "8"), {"lora": Lora(adapters=8, rank=16, slots=4)}),
    "--images": (
        ("2:576:5", "--encoder", "30ms"), {"vision": Vision(images=2, tokens=576, encode_s=0.03, pictures=5)},
    ),
    "--no-prefix-cache": ((), {"prefix_cache": False}),
    "--kv-offload": (("64GB,2TB@5GB/s",), {"offload": ((64e9, None), (2e12, 5e9))}),
    "--preemption": (("swap",), {"swap": True}),
    "--priorities": (("0.2,0.8",), {"priorities": (0.2, 0.8)}),
    "--prefill-replicas": (("6",), {"reader_replicas": 6}),
    "--n": (("2",), {"answers": 2}),
    "--link": (("infiniband-ndr",), {"link": link("infiniband-ndr")}),
}  # fmt: skip
TRAFFIC = {
    "--rate": (("3,7",), {"steps": rate(3.0) + rate(7.0)}),
    "--concurrency": (("2,4",), {"steps": (LoadStep(concurrency=2), LoadStep(concurrency=4))}),
    "--ramp": (("1:8",), {"steps": rate(1.0, to_per_s=8.0)}),
    "--arrivals": (("constant", "--rate", "5"), {"steps": rate(5.0, process="constant")}),
    "--burstiness": (
        ("0.5", "--arrivals", "gamma", "--rate", "5"), {"steps": rate(5.0, process="gamma", burstiness=0.5)},
    ),
    "--saturate": ((), {"saturate": True}),
    "--within": (("--slo", GOALS[0]), {"within": True, "objectives": (parse_objective(GOALS[0]),)}),
    "--requests": (("33",), {"requests": 33}),
    "--duration": (("40s",), {"duration_s": 40.0}),
    "--prompt": (("77",), {"prompt": Lengths(kind="fixed", mean=77)}),
    "--generate": (("55",), {"generate": Lengths(kind="fixed", mean=55)}),
    "--shared-prefix": (("64:3",), {"sharing": Sharing(prefix_tokens=64, groups=3)}),
    "--turns": (("4",), {"sharing": Sharing(turns=4)}),
    "--think": (("6s", "--turns", "4"), {"sharing": Sharing(turns=4, think_s=6.0)}),
    "--slo": ((",".join(GOALS),), {"objectives": tuple(map(parse_objective, GOALS))}),
    "--seed": (("21",), {"seed": 21}),
}  # fmt: skip
ELSEWHERE = {
    "--trace", "--speed", "--from", "--prefill-on", "--prefill-tp", "--encoder",  # below, and of --images
    "--serve", "--host", "--port",  # of the mock server
}  # fmt: skip
SHOWN = {"--on", "--out", "-o", "--format"}


def planned(*words):
    context = command.make_context("simulate", [MODEL, "--on", DEVICE, *words])
    options = {name: value for name, value in context.params.items() if name not in {"model", "device", "out", "form"}}
    return plan_from(MODEL, DEVICE, options, command="line")


def loaded(name, words):
    """A load is asked for where the words do not say one."""
    return (name, *words) if {name, *words} & {"--rate", "--concurrency", "--ramp", "--trace"} else (
        name, *words, "--rate", "5",
    )  # fmt: skip


def from_python(words, monkeypatch):
    """The plan that the verb makes of the same words."""
    seen = []
    monkeypatch.setattr("inferometer.serving.simulate.run.simulate", seen.append)
    times = {"duration": "duration_s", "think": "think_s", "timeout": "timeout_s", "cold_start": "cold_start_s"}
    flags, given, left = {"saturate", "within"}, {}, list(words)
    while left:
        name = left.pop(0).removeprefix("--").replace("-", "_")
        if name == "no_prefix_cache":
            given["prefix_cache"] = False
        elif name in flags:
            given[name] = True
        else:
            text = left.pop(0)
            number = text.removesuffix("s") if name in times else text
            whole = number.isdecimal() and name not in times
            given[times.get(name, name)] = (
                int(number) if whole else float(number) if number.replace(".", "", 1).isdecimal() else text
            )
    im.simulate(MODEL, on=DEVICE, **given)
    return seen[0]


def told(plan):
    return {each.name: getattr(plan, each.name) for each in fields(plan) if each.name not in {"question", "traffic"}}


@pytest.fixture(scope="module")
def plain():
    return planned("--rate", "5")


def test_every_option_is_asked_about():
    def words_of(made):
        return {word for option in made.params for word in option.opts if word.startswith("-")}

    served = {"--" + name.replace("_", "-") for name in SERVED}  # of the question, as `predict` asks it
    stored = words_of(storing_options(click.Command("")))
    assert words_of(command) - served - stored - SHOWN - ELSEWHERE == {*SERVICE, *TRAFFIC} - served


@pytest.mark.parametrize("name", SERVICE)
def test_an_option_of_the_service_changes_its_own_field(name, plain, monkeypatch):
    more, wanted = SERVICE[name]
    words = loaded(name, more)
    found = planned(*words)
    assert told(found) == told(plain) | wanted
    assert found.traffic == plain.traffic
    again = from_python(words, monkeypatch)
    assert told(again) == told(found)


@pytest.mark.parametrize("name", TRAFFIC)
def test_an_option_of_the_traffic_changes_its_own_field(name, plain, monkeypatch):
    more, wanted = TRAFFIC[name]
    words = loaded(name, more)
    found = planned(*words)
    assert found.traffic == replace(plain.traffic, **wanted)
    assert told(found) == told(plain)
    assert from_python(words, monkeypatch).traffic == replace(found.traffic, command=None)


def test_a_pool_that_reads_has_its_own_device_and_split(plain, monkeypatch):
    assert plain.readers is None
    words = ("--rate", "5", "--tp", "2", "--prefill-on", "nvidia-t4")
    for more, split in (((), 2), (("--prefill-tp", "4"), 4)):
        for found in (planned(*words, *more), from_python((*words, *more), monkeypatch)):
            assert (found.readers.device.name, found.readers.workload.parallel.tp) == ("nvidia-t4", split)
            assert (found.question.device.name, found.question.workload.parallel.tp) == (DEVICE, 2)


def test_a_trace_comes_as_it_was_or_by_a_rate_or_as_places_allow(tmp_path):
    """From a moment on, faster, and only so many or so long."""
    path = tmp_path / "trace.csv"
    arrivals = 10.0 * np.arange(6)
    rows = (f"{at},{100 + index},{10 + index}" for index, at in enumerate(arrivals))
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows, ""]), encoding="utf-8")

    def demand(*words):
        traffic = planned("--trace", str(path), *words).traffic
        return demand_of(traffic, traffic.steps[0], number=1)

    assert demand().due_s.tolist() == arrivals.tolist()
    assert demand("--speed", "4").due_s.tolist() == (arrivals / 4).tolist()
    later = demand("--from", "20s", "--speed", "2", "--duration", "15s")
    assert (later.due_s.tolist(), later.input_tokens.tolist()) == ([0.0, 5.0, 10.0], [102, 103, 104])
    assert demand("--requests", "2").output_tokens.tolist() == [10, 11]
    assert not len(demand("--concurrency", "3").due_s)
    assert np.allclose(np.diff(demand("--rate", "5", "--arrivals", "constant").due_s), 0.2)
    traffic = planned("--trace", str(path), "--rate", "5").traffic
    other = replace(traffic, seed=traffic.seed + 1)
    drawn = [demand_of(plan, traffic.steps[0], number=1).due_s.tolist() for plan in (traffic, traffic, other)]
    assert drawn[0] == drawn[1] != drawn[2]


WRONG = [  # a word or two too many, or out of bounds, and a word of why
    (("--rate", "1", "--concurrency", "2"), "one of"),
    ((), "what load"),
    (("--rate", "0"), "number for --rate"),
    (("--rate", "1,x"), "number for --rate"),
    (("--concurrency", "1.5"), "whole number"),
    (("--concurrency", "100001"), "100,000"),
    (("--ramp", "1"), "--ramp"),
    (("--rate", "1", "--burstiness", "0.5"), "gamma"),
    (("--rate", "1", "--requests", "1" * 10), "9 digits"),
    (("--rate", "1", "--requests", "0"), "requests"),
    (("--rate", "1", "--requests", "file.csv"), "its own arrivals"),
    (("--rate", "1", "--within"), "objectives"),
    (("--rate", "1", "--cancel", "0.5"), "share and time"),
    (("--rate", "1", "--cancel", "1.5:1s"), "share above 0"),
    (("--rate", "1", "--lora", "0"), "1 or more"),
    (("--rate", "1", "--lora", "1:2:3"), "whole numbers"),
    (("--rate", "1", "--images", "2"), "whole numbers"),
    (("--rate", "1", "--images", "2:9"), "encoder"),
    (("--rate", "1", "--encoder", "1s"), "--images"),
    (("--rate", "1", "--shared-prefix", "x"), "whole numbers"),
    (("--rate", "1", "--autoscale", "1:8"), "no least, most and load"),
    (("--rate", "1", "--autoscale", "1:x:8"), "whole numbers"),
    (("--rate", "1", "--autoscale", "1:65537:8"), "at most 65,536"),
    (("--rate", "1", "--priorities", "0.5,0.4"), "sum to"),
    (("--rate", "1", "--acceptance-spread", "0.1"), "from request to request"),
    (("--rate", "1", "--draft-length", "3"), "no usual share"),
]


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_what_does_not_go_together_is_refused(words, why):
    with pytest.raises(DomainError) as error:
        planned(*words)
    assert why in f"{error.value} {error.value.remedy}"
