"""What the box around a job costs: the same job in turns inside and outside, by the times that it measures itself.

The clean run of a small network on ONNX Runtime is what a box must not slow down; what it takes to make a box and to
start a runner in it is beside it.
"""

import json
import shutil
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from figure import Figure

from inferometer.core.codec import document
from inferometer.formats.synth import synthesise
from inferometer.hub.box.found import means_here
from inferometer.hub.places import device_side
from inferometer.hub.places.following import follow, result_in
from inferometer.hub.places.local import FolderHere
from inferometer.hub.places.requests import Judging, pack_measurement
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.model import MeasureRequest

TURNS, RUNS = 5, 100


def figures():
    if find_spec("onnxruntime") is None or find_spec("onnx") is None or not means_here().real:
        print(f"box: nothing was measured: onnxruntime or onnx is not installed, or {means_here().said}")
        return
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        model = synthesise("squeezenet1.1", Path(folder) / "net.onnx").path
        request = MeasureRequest(
            model=str(model), runtime="onnxruntime", plan=Plan(runs=RUNS, seconds=0.0), shape=False, guarded=False,
            threads=1, energy=False,
        )  # fmt: skip
        work = pack_measurement("bench", request, Judging(predict=False))
        ran = {None: [], "strict": []}
        for _ in range(TURNS):
            for wish, times in ran.items():
                times.append(job_times(work, Path(folder) / "place", wish))
    wholes = {wish: statistics.median(whole for _, whole in times) for wish, times in ran.items()}
    best = {wish: sorted(step for steps, _ in times for step in steps) for wish, times in ran.items()}
    # The fastest hundredth of all steps of all turns: what other processes do falls on the rest.
    inside, outside = (statistics.median(best[wish][: TURNS * RUNS // 100]) for wish in ("strict", None))
    ratio = inside / outside
    note = f"{inside * 1e3:.2f} ms over {outside * 1e3:.2f} ms, fastest hundredth of {TURNS} turns; {means_here().said}"
    held = ratio <= 1.02
    yield Figure(name="step_in_box_over_outside", value=ratio, unit="×", target="≤ 1.02", met=held, note=note)
    more = wholes["strict"] - wholes[None]
    yield Figure(name="job_in_box_beside_outside", value=more, unit="s", target="none", met=True)


def job_times(work, root, wish):
    """The times of the clean run's steps, and of the whole job."""
    folder = root / "jobs" / work.job.id
    for file in work.job.files:
        place = folder / "files" / file.path
        place.parent.mkdir(parents=True)
        shutil.copyfile(work.files[file.sha256], place)
    (folder / "job.json").write_text(json.dumps(document(work.job)))
    begun = time.perf_counter()
    device_side.run_detached(folder, [str(Path(device_side.__file__).parents[2])], {}, wish and {"wish": wish})
    here = FolderHere(folder=folder)
    for _ in follow(here, work.job.id):
        pass
    taken = time.perf_counter() - begun
    result = result_in(here, work.job)
    shutil.rmtree(folder)
    if not result.complete:
        raise SystemExit(f"box: {result.error}\n{result.log}")
    return result.profiles[0].phases[0].samples_s, taken
