"""Each finding at the edge of its rule, and every number it tells of its example.

`findings_told.json` has those numbers: `python tests/unit/understand/test_finding_edges.py` writes it anew (with src
and tests on the path). Read the difference: the examples are made of numbers that can be done by hand.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fakes.every import every
from inferometer.core.profile import Environment, Headline, Phase, Verification
from inferometer.predict.gains import Gain
from inferometer.understand.findings import findings_of
from unit.understand import explain_cases as cases
from unit.understand.explain_cases import (
    CPU,
    GPU,
    PAIRS,
    case_of,
    computing,
    forward,
    moving,
    op,
    profile,
    sampled,
    text,
)

TOLD = Path(__file__).parent / "findings_told.json"
NUMBERS = ("severity", "phase", "stake_s", "evidence", "gain", "gain_low", "gain_high", "gain_of", "changes")


def priced(change, phase):
    """Another gain for each change, and no two of its numbers alike."""
    size = 1.5 + sum(map(ord, change)) % 7 / 10
    return Gain(change=change, phase=phase, before_s=1.0, after_s=1 / size, gain=size, low=0.9 * size, high=1.2 * size,
                throughput_gain=8 * size, fits=True)  # fmt: skip


def numbers(finding):
    told = {name: value for name, value in asdict(finding).items() if name in NUMBERS and value not in (None, (), {})}
    return json.loads(json.dumps(told), parse_float=lambda text: float(f"{float(text):.9g}"))


def told_of(code):
    found, _, device = PAIRS[code]
    rows = {}
    for name, more in (("plain", {}), ("priced", {"price": priced})):
        rows[name] = next(numbers(one) for one in findings_of(case_of(found, device, **more)) if one.code == code)
    if rows["plain"] == rows["priced"]:
        del rows["priced"]
    return rows


@every(sorted(PAIRS))
def test_a_finding_tells_the_numbers_of_its_example(code):
    wanted = json.loads(TOLD.read_text())[code]
    assert flat(told_of(code)) == {path: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
                                   for path, value in flat(wanted).items()}  # fmt: skip


def flat(document, path=()):
    if not isinstance(document, dict):
        return {path: document}
    return {at: value for key, inner in document.items() for at, value in flat(inner, (*path, key)).items()}


def attending(share):
    return text(0.1, 0.01, ops=(moving(0.01 * (1 - share)), moving(0.01 * share, kind="attention")))


def kept(share):
    return profile(forward(computing(1 - share), op("t", "copy", share)))


def converted(share):
    return profile(forward(computing(1 - share), op("dq", "dequantize", share)))


def copied(share):
    return profile(forward(parts={"write": share - 0.02, "run": 1 - share, "read": 0.02}))


def gap(share):
    return profile(forward(computing(1 - share)))


def once(seconds):
    return cases.one_time(seconds)


def first_token(times):
    return text(0.05 * times, 0.05)


def computes(share):
    return profile(forward(computing(share), moving(1 - share)))


def moves(share):
    return profile(forward(moving(share), computing(1 - share)))


def busiest(times):
    """Four experts, the busiest `times` the mean of all."""
    rest = (4 - times) / 3
    return cases.experts(0.1 * times, *(0.1 * rest,) * 3)


EDGES = [  # code, profile by a number, where it is not found yet, where it is, device
    ("attention.grows", attending, 0.29, 0.31, CPU),
    ("communication.bound", cases.parallel, 0.149, 0.151, CPU),
    ("layout.moves", kept, 0.099, 0.101, CPU),
    ("quantisation.overhead", converted, 0.049, 0.051, CPU),
    ("host.copies", copied, 0.099, 0.101, GPU),
    ("host.gap", gap, 0.149, 0.151, CPU),
    ("load.dominates", once, 2.49, 2.51, CPU),
    ("latency.first-token", first_token, 4.99, 5.01, CPU),
    ("memory.does-not-fit", cases.in_memory, 15.99e9, 16.01e9, CPU),
    ("memory.nearly-full", cases.in_memory, 14.3e9, 14.5e9, CPU),
    ("placement.fallback", cases.units, 0.019, 0.021, None),
    ("threads.too-few", cases.threads, 5, 4, CPU),
    ("threads.too-many", cases.threads, 8, 9, CPU),
    ("utilisation.low", cases.beside, 1.49, 1.51, CPU),
    ("experts.imbalance", busiest, 1.49, 1.51, CPU),
    ("compute.bound", computes, 0.49, 0.51, CPU),
    ("memory.bound", moves, 0.49, 0.51, CPU),
    ("memory.kv-cache", cases.cached, 980, 990, CPU),
    ("launch.bound", lambda count: cases.small_ops(count, 1e-4), 19, 20, CPU),
    ("batch.small", lambda intensity: cases.on_gpu("memory", intensity), 126, 124, GPU),
]


@pytest.mark.parametrize(("code", "made", "below", "above", "device"), EDGES, ids=[edge[0] for edge in EDGES])
def test_a_finding_begins_at_its_edge(code, made, below, above, device):
    def codes(number):
        return {finding.code for finding in findings_of(case_of(made(number), device))}

    assert code not in codes(below)
    assert code in codes(above)


def found(code, one, device=CPU, **more):
    return next((finding for finding in findings_of(case_of(one, device, **more)) if finding.code == code), None)


def test_only_a_measurement_is_slow():
    assert found("utilisation.low", cases.beside(4.0)) is not None
    assert found("utilisation.low", replace(cases.beside(4.0), kind="predicted")) is None
    near_floor = profile(forward(computing(1.0), predicted_s=0.25, floor_s=0.34))
    assert found("utilisation.low", near_floor) is None, "less than three times its physics"


def test_the_slow_phase_that_costs_a_request_most_is_told():
    slow = text(1.0, 0.1, generate=41)
    prefill, decode = slow.phases
    both = replace(slow, phases=(replace(prefill, predicted_s=0.1), replace(decode, predicted_s=0.05)))
    assert found("utilisation.low", both).phase == "decode", "0.05 s forty times are more than 0.9 s once"


def test_what_loads_at_a_disks_rate_waits_for_it():
    def load(seconds=2.0, **more):
        return profile(Phase(name="load", time_s=seconds, **more), forward(computing(0.5), seconds=0.5))

    told = found("load.storage-bound", load(bytes=4e9, bound="storage"))
    assert told.evidence["bytes"] == 4e9, "the bytes it read, not those of the model"
    assert told.evidence["rate_bytes_per_s"] == 2e9
    assert found("load.storage-bound", load(bound="storage")).evidence["bytes"] == 10e9
    assert found("load.storage-bound", load(seconds=0.9, bound="storage")) is None
    assert found("load.storage-bound", load(bytes=1e15)) is None, "faster than any disk"
    low = told.evidence["storage_low_bytes_per_s"]
    assert found("load.storage-bound", load(bytes=2.0 * low * 0.51)) is not None
    assert found("load.storage-bound", load(bytes=2.0 * low * 0.49)) is None
    assert found("load.storage-bound", load(bytes=4e9, bound="compute")) is None


def test_an_accelerator_is_what_some_ops_ran_on_or_what_was_asked_for():
    everything = profile(forward(op("a", "sort", 0.5)), summary=Headline(latency_s=1.0))
    assert "Nothing ran on the GPU" in found("placement.fallback", everything, GPU).title
    assert found("placement.fallback", everything, CPU) is None
    assert found("placement.fallback", replace(everything, kind="predicted"), GPU) is None
    asked = replace(everything, provenance=replace(everything.provenance, command="inferometer profile m --unit npu:0"))
    assert "Nothing ran on the NPU" in found("placement.fallback", asked, CPU).title
    dispatch = profile(forward(op("a", "linear", 0.5, unit="gpu"), op("b", "sort", 0.4)), runtime="torch-eager")
    assert found("placement.fallback", dispatch, GPU) is None
    assert found("placement.fallback", replace(dispatch, runtime="onnxruntime"), GPU) is not None
    starts = profile(forward(op("a", "linear", 0.5, unit="gpu"), op("b", "sort", 0.4, device_s=0.1)))
    assert found("placement.fallback", starts, GPU) is None


def test_several_devices_have_as_many_times_the_arithmetic_of_another_format():
    one = cases.on_gpu("compute", 500)
    for count in (1, 2, 8):
        several = replace(one, device=replace(one.device, count=count))
        assert found("compute.bound", several, GPU).changes == ("precision=i8",)


def test_a_wait_for_the_host_is_not_made_up_for_by_ops_that_overlap():
    overlapping = profile(forward(op("a", "linear", 0.8, device_s=0.5), op("b", "linear", 0.5, device_s=0.5)))
    assert found("host.gap", overlapping, GPU).evidence["gap_s"] == pytest.approx(0.3)


def test_runs_that_scatter_or_were_disturbed_are_noisy():
    wide = tuple(0.01 * (1 + 0.4 * (n % 2)) for n in range(20))
    assert found("environment.noisy", sampled(wide)) is not None
    assert found("environment.noisy", sampled(wide[:4])) is None
    assert found("environment.noisy", sampled(tuple(0.01 * (1 + 0.1 * (n % 2)) for n in range(20)))) is None
    quiet = replace(sampled(cases.steady(40)), environment=Environment(disturbed=None))
    assert found("environment.noisy", quiet) is None


def test_wrong_outputs_come_first_and_tell_how_far_off_they_are():
    wrong = Verification(
        status="failed", reference="torch", max_abs=0.1, max_rel=0.5, cosine=0.9, top_1=0.8, nll_drift=0.3
    )
    first = findings_of(case_of(profile(forward(moving(1.0)), verification=wrong), CPU))[0]
    assert (first.code, first.severity) == ("outputs.wrong", "critical")
    assert first.evidence == {"max_abs": 0.1, "max_rel": 0.5, "cosine": 0.9, "same_best": 0.8, "nll_drift_nats": 0.3}


if __name__ == "__main__":
    TOLD.write_text(json.dumps({code: told_of(code) for code in sorted(PAIRS)}, indent=1) + "\n")
