"""Measured beside predicted on the machine at hand: `profile` of many models, as a user calls it, with no flag.

    python benchmarks/pairs.py                       what is installed here, on networks and language models that fit
    python benchmarks/pairs.py --cases cuda --budget 450 --journal FILE.jsonl
    python benchmarks/pairs.py --loops [--cases cuda]          the product's generation loop over a bare one
    python benchmarks/pairs.py --before-after --budget 600     before a calibration, after it, after profiles

Every case is a process of its own, as `profile` makes it. A case that would begin after the budget is named and left
out. A line a phase: what it took, what was predicted, and its parts with theirs. The journal keeps each profile without
its layers, one JSON object a line; `--again FILE.jsonl.gz --on nvidia-h200` predicts the cases of a journal anew, as
the code and the data are now, beside what they took then.

`--cases cuda` has the networks of a table that a first release was judged by. Beside them it times what the host of a
GPU takes for one launch, for a graph, and for the bare loop around a captured step, which is what the product's own
loop is held against.

`--before-after` prints a Markdown table: every case is measured once, in a data folder of its own, and predicted three
times: from what is shipped; after a calibration of its engine, which has `--each` seconds or an equal share of what is
left of the budget; and after profiles of the other models. The model itself is left out then: what it took would be
known. What time is left measures the models again: a machine whose pace changed meanwhile cannot be told more truly.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from figure import Figure

from inferometer import profile
from inferometer.api import measure_and_judge
from inferometer.core.codec import document
from inferometer.core.device import LOCAL
from inferometer.core.errors import InferometerError
from inferometer.core.plugins import load_all
from inferometer.core.workload import Workload
from inferometer.engines.base import Ready, Target
from inferometer.known import device as device_named
from inferometer.known.machine.health.host_calls import host_call_s
from inferometer.known.zoo import model as catalog_model
from inferometer.measure.run.beside import without_loop
from inferometer.measure.run.model import MeasureRequest
from inferometer.predict.ask import ask
from inferometer.predict.basis.learned import keep_learned, learned_file, learned_steps, read_learned
from inferometer.predict.basis.roof import roof_for
from inferometer.understand.judging import question_behind

COMPILE, GRAPH, EAGER = "torch-compile", "torch-graph", "torch-eager"
CUDA = (
    ("resnet50", COMPILE, {}), ("llama-3.2-1b", COMPILE, {"prompt": 1024, "generate": 64}),
    ("qwen2.5-0.5b", GRAPH, {"prompt": 300, "generate": 64}), ("vit-b-16", COMPILE, {"batch": 8}),
    ("llama-3.2-3b", COMPILE, {"prompt": 512, "generate": 64}), ("resnet50", COMPILE, {"batch": 32}),
    ("llama-3.2-3b", GRAPH, {"prompt": 512, "generate": 64}), ("bert-base", COMPILE, {"batch": 8}),
    ("convnext-tiny", EAGER, {"batch": 4}), ("llama-3.2-1b", EAGER, {"prompt": 512, "generate": 32}),
    ("mobilenet-v3-large", COMPILE, {}), ("efficientnet-b0", COMPILE, {"batch": 64}),
    ("llama-3.2-3b", COMPILE, {"prompt": 2048, "generate": 64}), ("resnet50", EAGER, {}),
    ("convnext-tiny", COMPILE, {"batch": 4}), ("vit-b-16", GRAPH, {"batch": 8}),
)  # fmt: skip
NETWORKS = ("mobilenet-v2", "resnet18", "squeezenet1.1", "efficientnet-b0", "resnet50", "bert-base")
TEXTS = ("smollm2-135m", "qwen2.5-0.5b")
LENGTHS = {"prompt": 64, "generate": 16}
STEADY = ("forward", "prefill", "decode")
CALIBRATED = ("onnxruntime", "openvino", "litert", "llamacpp")
LOOPS = {"here": (("smollm2-135m", EAGER, 16),), "cuda": (("qwen2.5-0.5b", GRAPH, 300), ("llama-3.2-1b", COMPILE, 1024),
                                                          ("llama-3.2-1b", EAGER, 512))}  # fmt: skip
TURNS = 6  # of each loop: the median of six leaves out what others disturb in two
STAGES = ("before", "calibrated", "after profiles")


def here():
    """Each network and language model on every engine that is installed and opens it."""
    loaded, _ = load_all("inferometer.runtimes")
    ready = [name for name, runtime in loaded.items() if isinstance(runtime.probe(), Ready)]
    arrays = [(model, name, {}) for model in NETWORKS for name in ready if loaded[name].capabilities.arrays]
    return arrays + [(model, name, LENGTHS) for model in TEXTS for name in ready if loaded[name].capabilities.text]


def measured_pair(model, engine, sizes, loop="product"):
    """What a profile says, without its layers; an error in the engine's words where there is none."""
    start = time.perf_counter()
    case = {"model": model, "engine": engine, **sizes}
    try:
        plain = document(profile(model, runtime=engine, shape=False, loop=loop, **sizes))
    except InferometerError as error:
        return {**case, "error": str(error)}
    phases = [{**phase, "ops": [], "samples_s": None, "context": None} for phase in plain["phases"]]
    kept = {key: plain[key] for key in ("environment", "judged_by", "precision", "provenance", "summary", "workload")}
    return {**case, "seconds": time.perf_counter() - start, "phases": phases, **kept}


def predicted_again(row, on):
    """The row of a journal with today's predictions, of its phases and of their parts, in place of those of its day."""
    if "phases" not in row:
        return row
    sizes = {name: row[name] for name in ("batch", "prompt", "generate", "image") if name in row}
    asked = {"on": on, "runtime": row["engine"], "weights": row["precision"]["weights"], **sizes}
    host = row["environment"]["host"]  # as `profile` takes its own host's speed
    try:
        question = ask(row["model"], **asked)
    except InferometerError as error:  # a network that is not in the catalog, or at another size
        return {**row, "error": str(error)}
    today = replace(question, host_call_s=host.get("call_s"), host_module_s=host.get("module_s")).answer()
    phases = []
    for phase in row["phases"]:
        expected = today.phase(phase["name"])
        if phase["name"] in STEADY and expected is not None:
            measured = {part["name"] for part in phase["parts"]}
            expected = without_loop(expected) if row["environment"]["host"].get("loop") == "bare" else expected
            parts = expected.parts if measured else {}
            inside = sum(seconds for name, seconds in parts.items() if name == "run" or name not in measured)
            beside = {**parts, "run": inside} if parts else {}
            told_parts = [{**part, "predicted_s": beside.get(part["name"])} for part in phase["parts"]]
            phases.append({**phase, "predicted_s": expected.time_s, "parts": told_parts})
    return {**row, "phases": phases}


def told(row):
    """The lines of one pair."""
    sizes = " ".join(f"{name} {row[name]}" for name in ("batch", "prompt", "generate") if name in row)
    if "error" in row:
        return [f"{row['model']} {row['engine']} {sizes}: {row['error']}"]
    lines = []
    for phase in row["phases"]:
        if phase["name"] not in STEADY:
            continue
        predicted = phase["predicted_s"]
        off = "no prediction" if predicted is None else f"predicted {predicted * 1e3:9.4f} ms"
        share = "" if predicted is None else f" {predicted / phase['time_s'] - 1:+7.1%}"
        lines.append(f"{row['model']:20} {row['engine']:14} {sizes:24} {phase['name']:8}"
                     f" {phase['time_s'] * 1e3:9.4f} ms {off}{share}")  # fmt: skip
        for part in phase["parts"]:
            beside = "" if part["predicted_s"] is None else f" predicted {part['predicted_s'] * 1e6:9.1f} us"
            lines.append(f"{'':62}{part['name']:8} {part['time_s'] * 1e6:9.1f} us{beside}")
    return lines


def errors_of(rows):
    """How far each phase's prediction is off, as a share of what it took."""
    return [
        phase["predicted_s"] / phase["time_s"] - 1
        for row in rows
        for phase in row.get("phases", ())
        if phase["name"] in STEADY and phase["predicted_s"] is not None
    ]


def figures(rows=None):
    """For `benchmarks/run.py`: the middle and the worst of all pairs of this machine."""
    rows = [measured_pair(*case) for case in here()] if rows is None else rows
    off = [abs(share) for share in errors_of(rows)]
    if off:
        yield Figure(name="pairs: median error", value=100 * statistics.median(off), unit="%", target="5",
                     met=statistics.median(off) <= 0.05, note=f"{len(off)} phases")  # fmt: skip
        yield Figure(name="pairs: worst error", value=100 * max(off), unit="%", target="20", met=max(off) <= 0.2)


def before_after(arguments):
    """The table's lines: each phase of each case with its three predictions, and how true they are by stage."""
    os.environ["INFEROMETER_DATA"] = str(Path(arguments.folder, "data").resolve())  # noqa: TID251 - the bench's own
    os.environ["INFEROMETER_LEARN"] = "1"  # noqa: TID251 - as above
    subprocess.run([sys.executable, "-m", "inferometer", "calibrate", "--forget"], check=True)
    cpu = device_named(f"{LOCAL}:cpu")
    roof, runs, rows = roof_for(cpu, fresh=True), [], []
    chosen = sorted(cases_of(arguments), key=lambda case: case[0] not in TEXTS) if arguments.cases == "here" else None
    for model, engine, sizes in chosen or cases_of(arguments):
        if engine in CALIBRATED and time.monotonic() < arguments.until - 0.6 * arguments.budget:
            asked = MeasureRequest(model=model, runtime=engine, workload=Workload(**sizes), shape=False)
            try:
                run = measure_and_judge(asked, predict=False)
            except InferometerError as error:
                print(f"{model} {engine}: {error}", flush=True)
                continue
            question, _ = question_behind(run.profile, run.graph, cpu, roof=roof, sizes=run.sizes)
            runs.append((model, engine, run.profile, question))
            rows += phases_of(model, engine, run.profile, question)
    keep_rows(rows, arguments.journal)
    engines = [name for name in CALIBRATED if any(engine == name for _, engine, _, _ in runs)]
    for place, name in enumerate(engines):
        left = arguments.until - time.monotonic()
        share = max(20.0, min(left, arguments.each or left / (len(engines) - place)))
        busy = ["--no-guard"] if arguments.busy else []
        command = ["calibrate", "--runtime", name, "--device", cpu.name, "--budget", f"{share:.0f}s", *busy]
        subprocess.run([sys.executable, "-m", "inferometer", *command], check=False)
    calibrated = {name: read_learned(learned_file(cpu.name, name)) for name in engines}
    for stage in STAGES[1:]:
        for model, engine, measured, question in runs:
            # What the calibration measured whole teaches, as it does for a user, unless it is this model.
            lines = [line for line in calibrated[engine] if line.model != measured.model.name]
            for other, ran_by, done, asked in runs if stage == STAGES[2] else ():
                if ran_by == engine and other != model:
                    lines += learned_steps(done, replace(asked, learned=False))
            path = learned_file(cpu.name, engine)
            path.unlink(missing_ok=True)
            keep_learned(path, lines)
            add_stage(rows, stage, (model, engine), question)
        keep_rows(rows, arguments.journal)
    for model, engine, sizes in [case for case in cases_of(arguments) if tuple(case[:2]) in {run[:2] for run in runs}]:
        if time.monotonic() < arguments.until:
            again = measure_and_judge(
                MeasureRequest(model=model, runtime=engine, workload=Workload(**sizes), shape=False), predict=False
            ).profile
            for row in rows:
                phase = again.phase(row["phase"]) if (row["model"], row["engine"]) == (model, engine) else None
                if phase is not None:
                    row["again"] = phase.time_s
            keep_rows(rows, arguments.journal)
    return [*table_of(rows), "", *(line for stage in STAGES for line in summaries_of(rows, stage))]


def keep_rows(rows, journal):
    """What is there so far: a later stage may be cut off."""
    if journal:
        journal.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def phases_of(model, engine, measured, question):
    """A row a phase that repeats, with what is predicted now."""
    rows = [{"model": model, "engine": engine, "phase": phase.name, "seconds": phase.time_s,
             "quiet": measured.environment.disturbed is False}
            for phase in measured.phases if phase.name in STEADY]  # fmt: skip
    add_stage(rows, STAGES[0], (model, engine), question)
    return rows


def add_stage(rows, stage, case, question):
    predicted = question.answer()
    for row in rows:
        phase = predicted.phase(row["phase"])
        if (row["model"], row["engine"]) == case and phase is not None:
            row[stage] = (phase.time_s, phase.low_s, phase.high_s)


def table_of(rows):
    yield f"| model | engine | phase | measured | {' | '.join(STAGES)} | measured again |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        told = [f"{row[stage][0] / row['seconds'] - 1:+.0%}" if stage in row else "–" for stage in STAGES]
        told.append(f"{row['again'] / row['seconds'] - 1:+.0%}" if "again" in row else "–")
        quiet = "" if row["quiet"] else " (disturbed)"
        yield (f"| {row['model']} | {row['engine']} | {row['phase']} | {row['seconds'] * 1e3:.4g} ms{quiet} "
               f"| {' | '.join(told)} |")  # fmt: skip


def summaries_of(rows, stage):
    """Of all rows, and of those of each engine; beside them what the machine itself differed by meanwhile."""
    yield summary_of(rows, stage)
    off = [abs(row["again"] / row["seconds"] - 1) for row in rows if "again" in row]
    if off and stage == STAGES[-1]:
        yield f"the same measured again: median {statistics.median(off):.1%}, worst {max(off):.0%} ({len(off)} phases)"
    for engine in sorted({row["engine"] for row in rows}):
        yield f"  {engine}: {summary_of([row for row in rows if row['engine'] == engine], stage)}"


def summary_of(rows, stage):
    """How far predictions of a stage are off, and how many of its intervals hold what was measured."""
    known = [(row["seconds"], *row[stage]) for row in rows if stage in row and row[stage][1]]
    if not known:
        return f"{stage}: no prediction"
    off = [abs(time_s / seconds - 1) for seconds, time_s, _, _ in known]
    held = sum(low_s <= seconds <= high_s for seconds, _, low_s, high_s in known) / len(known)
    wide = statistics.median((high_s - low_s) / time_s for _, time_s, low_s, high_s in known)
    return (f"{stage}: median {statistics.median(off):.1%}, worst {max(off):.0%}, intervals hold {held:.0%} "
            f"and are {wide:.0%} wide ({len(known)} phases)")  # fmt: skip


def launch_costs():
    """Seconds of the host for a kernel of its own, for a graph of n kernels, and until a device has answered."""
    torch = import_module("torch")
    x = torch.ones(8, device="cuda")
    costs = {"host_call_s": host_call_s(), "gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}

    def median_s(work, count=50):
        seconds = []
        for _ in range(count):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def chain(count):
        for _ in range(count):
            x.add_(1.0)

    costs["launch_s"] = median_s(lambda: chain(200)) / 200
    costs["empty_synchronize_s"] = median_s(torch.cuda.synchronize)
    stream, pinned = torch.cuda.current_stream(), torch.zeros(8).pin_memory()
    costs["copy_and_wait_s"] = median_s(lambda: (pinned.copy_(x, non_blocking=True), stream.synchronize()))
    logits = torch.randn(1, 128256, device="cuda", dtype=torch.bfloat16)
    costs["argmax_128256_and_wait_s"] = median_s(lambda: (logits.argmax(-1, keepdim=True), stream.synchronize()))
    capture = import_module("inferometer.engines.torch.capture").capture_graph
    for count in (10, 100, 500, 1000):
        replay, _ = capture(torch, lambda count=count: chain(count))
        replay()
        costs[f"graph_{count}_launch_s"] = median_s(replay)
        costs[f"graph_{count}_whole_s"] = median_s(lambda replay=replay: (replay(), stream.synchronize()))
    return costs


def loops(model, engine, prompt, generate, *, folder):
    """The product's loop over the bare one: the same session and passes, in turns, a token of each.

    By the wall's clock, and on a CPU by the processor's too, which other programs disturb less. The first of each kind
    is left out: it prepares.
    """
    base = import_module("inferometer.engines.base")
    loaded, _ = load_all("inferometer.runtimes")
    place = Path(folder) / model
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(dict(catalog_model(model).config)), encoding="utf-8")
    session = loaded[engine].open(Target(path=place, format="config", text=True))
    request = base.Request(prompt=tuple(range(5, 5 + prompt)), generate=generate)
    seconds = {"product": [], "bare": []}
    for turn in range(2 * TURNS + 2):
        name = ("product", "bare", "bare", "product")[turn % 4]
        cpu_s = time.process_time()
        events = list(session.generate(replace(request, bare=name == "bare")))
        cpu_s = time.process_time() - cpu_s
        steps = [event for event in events if event.kind == "token"]
        tokens = sum(event.tokens for event in steps)
        parts = {part: sum(event.parts[part] for event in steps) / tokens for part in steps[0].parts}
        wall_s = (steps[-1].end_ns - steps[0].start_ns) * 1e-9 / tokens
        seconds[name].append({"wall_s": wall_s, "cpu_s": cpu_s / generate, "parts_s": parts})
    unit = session.opened.unit
    session.close()
    kept = {name: rounds[1:] for name, rounds in seconds.items()}
    ratios = {
        clock: statistics.median(each[clock] for each in kept["product"])
        / statistics.median(each[clock] for each in kept["bare"])
        for clock in ("wall_s", "cpu_s")
    }
    return {"loops": model, "engine": engine, "prompt": prompt, "generate": generate, "unit": unit,
            "product_over_bare": ratios, "rounds": kept}  # fmt: skip


def loop_figures(rows):
    """What the product's loop adds to each bare one. On a CPU the processor's time counts."""
    for row in rows:
        share = row["product_over_bare"]["cpu_s" if row["unit"] == "cpu" else "wall_s"] - 1
        yield Figure(name=f"loop over a bare one: {row['loops']}, {row['engine']}", value=100 * share, unit="%",
                     target="3", met=share <= 0.03, note=f"{row['unit']}, {TURNS} turns")  # fmt: skip


def cuda_extras(arguments):
    """What of a GPU's host no profile shows by itself."""
    yield {"costs": launch_costs()}
    for model, engine, prompt in LOOPS["cuda"]:
        if time.monotonic() < arguments.until:
            yield loops(model, engine, prompt, 64, folder=arguments.folder)


def cases_of(arguments):
    if arguments.cases in ("here", "cuda"):
        return CUDA if arguments.cases == "cuda" else here()
    return json.loads(Path(arguments.cases).read_text(encoding="utf-8"))


def kept(arguments):
    """The rows as they come: of a journal, or measured until the budget is spent."""
    if arguments.again:
        text = (gzip.open if arguments.again.endswith(".gz") else open)(arguments.again, "rt", encoding="utf-8").read()
        rows = (row for row in map(json.loads, text.splitlines()) if "phases" in row)
        yield from rows if arguments.on is None else (predicted_again(row, arguments.on) for row in rows)
        return
    for case in cases_of(arguments)[arguments.skip :]:
        if time.monotonic() > arguments.until:
            print(f"left out, the budget is spent: {' '.join(map(str, case))}", flush=True)
            continue
        yield measured_pair(*case, arguments.loop)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="here", help="here, cuda, or a JSON file of [model, engine, {sizes}]")
    parser.add_argument("--budget", type=float, default=1800.0, help="seconds after which no case begins")
    parser.add_argument("--loops", action="store_true", help="what the product's loop adds to a bare one")
    parser.add_argument("--loop", choices=("product", "bare"), default="product", help="bare: passes alone")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="go on after the first N cases")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--before-after", action="store_true", help="a table of three predictions for each case")
    parser.add_argument("--busy", action="store_true", help="with --before-after: calibrate whatever else runs")
    parser.add_argument("--each", type=float, metavar="SECONDS", help="with --before-after: for each calibration")
    parser.add_argument("--again", metavar="JOURNAL", help="print what a journal holds, and measure nothing")
    parser.add_argument("--on", metavar="DEVICE", help="with --again: predict its cases anew, for this device")
    parser.add_argument("--folder", default="build/pairs", help="where configs for bare loops are written")
    arguments = parser.parse_args()
    arguments.until = time.monotonic() + arguments.budget
    if arguments.before_after:
        arguments.budget = min(arguments.budget, 600.0)
        arguments.until = time.monotonic() + arguments.budget
        print("\n".join(before_after(arguments)))
        return
    if arguments.loops:
        cases = LOOPS["cuda" if arguments.cases == "cuda" else "here"]
        found = [loops(*case, 16, folder=arguments.folder) for case in cases]
        print("\n".join(map(str, (json.dumps(found, indent=1), *loop_figures(found)))))
        return
    rows = []
    extras = () if arguments.cases != "cuda" or arguments.again or arguments.skip else cuda_extras(arguments)
    for source in (extras, kept(arguments)):
        for row in source:
            rows.append(row)
            print("\n".join(told(row)) if "model" in row else json.dumps(row, indent=1), flush=True)
            if arguments.journal:
                with arguments.journal.open("a", encoding="utf-8") as journal:
                    journal.write(json.dumps(row) + "\n")
    for figure in figures(rows):
        print(figure)


if __name__ == "__main__":
    sys.exit(main())
