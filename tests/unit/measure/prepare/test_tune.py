"""Settings tried in turns: what is faster beyond doubt is kept and proven once more, and every try is told."""

from pathlib import Path

import pytest

from inferometer.core.errors import DomainError, EngineError
from inferometer.core.profile import Verification
from inferometer.engines.host import threads_of
from inferometer.known.engines import engine
from inferometer.measure.bench.compare import ComparedMetric
from inferometer.measure.prepare.run import PrepareRequest
from inferometer.measure.prepare.search import Setting, tune
from inferometer.understand.view.prepared import tuned_table

SPINNING, ARENA = "session.intra_op.allow_spinning", "enable_cpu_mem_arena"
FILE, ASKED = Path("net.onnx"), PrepareRequest(model="net.onnx", runtime="onnxruntime", threads=2)


def times(request):
    """Faster without spinning; faster still without the arena, but only while threads spin; no other provider."""
    if request.providers:
        raise EngineError(f"This build has no {request.providers[0]}.")
    spins, arena = request.options.get(SPINNING) != "0", request.options.get(ARENA) != "0"
    return (1.0 if spins else 0.8) * (0.9 if spins and not arena else 1.0)


def in_turns(before, after):
    ratio = times(after) / times(before)
    verdict = "faster" if ratio < 0.98 else "slower" if ratio > 1.02 else "same"
    return ComparedMetric(name="latency", verdict=verdict, reason="", ratio=ratio, low=0.99 * ratio, high=1.01 * ratio)


def right(_request, _reference):
    return Verification(status="verified")


def tuned(request=ASKED, **known):
    return tune(FILE, request, **{"budget_s": 60.0, "measure": in_turns, "check": right} | known)


def test_a_setting_is_held_against_the_best_before_it_and_the_whole_against_the_engines_choice():
    found = tuned()
    rows = {row.change: row for row in found.tried}
    assert [name for name, row in rows.items() if row.kept] == [f"{SPINNING}=0"]
    assert rows[f"{ARENA}=0"].gain == pytest.approx(1.0), "over what was kept before, and not over the default"
    assert found.whole.gain == pytest.approx(1 / 0.8)
    assert found.whole.low < found.whole.gain < found.whole.high
    assert found.setting.flags == f"--threads 2 --option {SPINNING}=0"
    assert found.document()["flags"] == found.setting.flags
    table = tuned_table(found)
    assert table.columns[0].key == "change"
    assert [row["change"] for row in table.rows] == [*rows, found.whole.change]
    assert table.note == f"Open it with {found.setting.flags}."


def test_what_the_build_has_not_is_a_row_with_the_reason():
    refused = [row for row in tuned().tried if row.verdict == "refused"]
    assert [row.change for row in refused] == [f"providers={name}" for name in engine("onnxruntime").tuned["providers"]]
    assert "has no OpenVINO" in refused[0].reason


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        ({"check": lambda *_: Verification(status="failed", reason="other outputs")}, "wrong"),
        ({"measure": lambda a, b: in_turns(a, b) if a.options else lucky(a, b)}, "same"),
    ],
)
def test_what_is_wrong_or_was_luck_is_not_kept(known, verdict):
    LUCK[:] = [True]
    found = tuned(**known)
    assert (found.whole.verdict, found.whole.kept) == (verdict, False)
    assert found.setting == Setting(threads=2)
    assert "own choice stays" in tuned_table(found).note


LUCK = []


def lucky(before, after):
    """The first that is measured looks faster, and is not when it is measured again."""
    if not LUCK:
        return ComparedMetric(name="latency", verdict="same", reason="", ratio=1.0)
    LUCK.clear()
    return in_turns(before, after)


def test_threads_are_tried_unless_they_are_asked_for_and_none_after_the_budget():
    open_threads = tuned(PrepareRequest(model="net.onnx", runtime="onnxruntime"))
    counts = {row.change for row in open_threads.tried if row.change.startswith("threads=")}
    assert f"threads={threads_of(None)}" not in counts
    assert not any(row.change.startswith("threads=") for row in tuned().tried)
    late = iter([0.0, *[100.0] * 99])
    found = tuned(clock=lambda: next(late))
    assert {(row.verdict, row.reason) for row in found.tried} == {("not tried", "the budget is used up")}
    assert (found.whole, found.setting) == (None, Setting(threads=2))


def test_another_device_is_not_tuned_here():
    with pytest.raises(DomainError, match="not this machine"):
        tuned(PrepareRequest(model="net.onnx", runtime="onnxruntime", device="nvidia-l4"))


@pytest.mark.parametrize("words", [("--dry",), ("--no-measure",), ("--search",)])
def test_tuning_without_measuring_one_file_is_refused(answered, words):
    done = answered("prepare", "squeezenet1.1", "--for", "onnxruntime", "--tune", *words)
    assert done.returncode == 2
    assert "tuned by measuring one file" in done.stderr


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_what_is_tuned_is_what_a_job_may_set(name):
    described = engine(name)
    assert described.tuned
    assert set(described.tuned) - {"providers"} <= described.job_options
