"""How cost grows: CPU seconds beside the size of what is asked, and the exponent between the two.

Models of 10 to 5,000 ops, prompts to a million tokens, sweeps of 1 to 10⁷ rows, stores of 10² to 10⁶ runs, simulations
of 10³ to 10⁷ requests. An exponent of 1 is a cost that grows as the size does, 0 one that does not. It is that of the
larger half of the sizes: what any question costs is not in the way there.

`python benchmarks/growth.py` draws docs/_static/growth.svg and puts the table into docs/performance.md. A size that
would take more than two minutes of CPU, with what has to be made before it can be asked, is left out, and so are those
beyond it; with `--small` nothing takes longer than some seconds.
"""

import math
import random
import sys
import tempfile
import time
from html import escape
from itertools import pairwise
from pathlib import Path

import store
from figure import Figure

import inferometer as im
from inferometer.core.dims import Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.lengths import Lengths
from inferometer.predict.ask import ask
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.run import simulate
from inferometer.store import Filter, open_store
from inferometer.store.upserts import put_new

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- growth: benchmarks/growth.py writes what stands below -->\n"
ON = {"on": "nvidia-h200", "runtime": "torch-compile"}
# What is asked, in what it is counted, the sizes, and how many of them a small run has.
ASKED = {
    "a model's first prediction": ("ops, none of which is like another", (10, 30, 100, 300, 1000, 3000, 5000), 5),
    "a prediction of a long prompt": ("tokens", (10, 100, 1000, 10_000, 100_000, 1_000_000), 6),
    "a sweep": ("rows", (1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000), 7),
    "a page of a store": ("runs", (100, 1000, 10_000, 100_000, 1_000_000), 3),
    "a simulation": ("requests", (1000, 10_000, 100_000, 1_000_000, 10_000_000), 3),
}


def seconds(call, *, at_least=0.02):
    """CPU seconds of a call, the mean of as many as take a moment together."""
    start, calls = time.process_time(), 0
    while not calls or time.process_time() - start < at_least:
        call()
        calls += 1
    return (time.process_time() - start) / calls


def chain(length):
    """A network whose ops all differ in width: nothing that was worked out for one holds for another."""
    widths = [64 + number for number in range(length + 1)]
    ops = tuple(
        Op(
            name=f"layer.{number}", kind="linear", inputs=(_tensor(number, inner),),
            outputs=(_tensor(number + 1, outer),), attributes={"in_features": inner, "out_features": outer},
            weights=(Tensor(name=f"layer.{number}.weight", shape=(outer, inner), role="weight"),),
        )
        for number, (inner, outer) in enumerate(pairwise(widths))
    )  # fmt: skip
    return Graph(
        name=f"chain-{length}", blocks=(Block(name="all", ops=ops),), precision="bf16", inputs=ops[0].inputs,
        outputs=ops[-1].outputs,
    )  # fmt: skip


def _tensor(number, width):
    return Tensor(name=f"x{number}", shape=(Symbol("batch"), width))


def predicted_first(ops):
    graph = chain(ops)
    return seconds(lambda: im.predict(graph, **ON), at_least=0)


def predicted_long(tokens):
    """Of the model with the longest window. The first prediction of it is no prompt's."""
    im.predict("llama-4-scout", **ON, prompt=tokens + 1, generate=1)
    return seconds(lambda: im.predict("llama-4-scout", **ON, prompt=tokens, generate=1), at_least=0)


def swept(rows):
    prompts = min(rows, 1000)
    asked = {"batch": list(range(1, rows // prompts + 1)), "prompt": list(range(1, prompts + 1))}

    def sweep():
        found = im.sweep("llama-3.2-1b", ON["on"], runtimes=ON["runtime"], **asked)
        for part in found.parts:  # as many of the rows at a time as are worked out at once
            for name in ("tpot_s", "energy_j", "peak_memory_bytes"):
                part.column(name)

    return seconds(sweep)


def listed(runs):
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "runs.db") as opened:
        draw = random.Random(7)  # noqa: S311 - test data
        for number in range(store.PROJECTS + 1):
            opened.create_project(f"project-{number}")
        for start in range(0, runs, store.CHUNK):
            rows = [store.row(index, draw) for index in range(start, min(start + store.CHUNK, runs))]
            opened.database.write(lambda connection, rows=rows: put_new(connection, "runs", rows))
        return seconds(lambda: opened.list(Filter(), sort="-latency"))


def simulated(requests):
    traffic = LoadPlan(
        url="simulated", steps=(LoadStep(arrivals=Arrivals(rate_per_s=40)),), requests=requests,
        prompt=Lengths(kind="lognormal", mean=512, deviation=256),
        generate=Lengths(kind="lognormal", mean=128, deviation=64),
    )  # fmt: skip
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    return seconds(lambda: simulate(SimulationPlan(question=question, traffic=traffic)), at_least=0)


MOST_S = 120.0  # of CPU, for one size
TAKEN = dict(zip(ASKED, (predicted_first, predicted_long, swept, listed, simulated), strict=True))


def exponent(sizes, taken):
    """The slope between logarithms, by least squares, over the larger half."""
    half = len(sizes) // 2
    x, y = ([math.log(value) for value in values[half:]] for values in (sizes, taken))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def measured(*, small):
    """By what is asked: its sizes, as far as they take no longer than `MOST_S`, and what each takes."""
    im.predict("llama-3.2-1b", **ON)  # what is imported on first use is no size's
    for name, (_, sizes, few) in ASKED.items():
        taken, spent = [], 0.0
        for before, size in pairwise((sizes[0], *(sizes[:few] if small else sizes))):
            if spent * size / before > MOST_S:
                break
            start = time.process_time()
            taken.append(TAKEN[name](size))
            spent = time.process_time() - start
        yield name, sizes[: len(taken)], taken


def figures():
    for name, sizes, taken in measured(small=True):
        found = exponent(sizes, taken)
        yield Figure(
            name=f"growth of {name}", value=found, unit="exponent", target="≤ 1.2", met=found <= 1.2,
            note=f"{sizes[-1]:,} {ASKED[name][0]} take {taken[-1]:.3g} s",
        )  # fmt: skip


def drawn(found, width=250, height=170):
    """Panels side by side, logarithmic on both axes, a dot for each size."""
    panels = []
    for number, (name, sizes, taken) in enumerate(found):
        x, y = ([math.log10(value) for value in values] for values in (sizes, taken))
        low, high = math.floor(min(y)), math.ceil(max(y) + 1e-9)
        across = [46 + (each - x[0]) / (x[-1] - x[0]) * (width - 70) for each in x]
        down = [30 + (high - each) / (high - low) * (height - 70) for each in y]
        dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in zip(across, down, strict=True))
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True))
        ticks = "".join(
            f'<text x="40" y="{30 + (high - each) / (high - low) * (height - 70) + 4:.1f}" text-anchor="end">'
            f"10{_raised(each)} s</text>"
            for each in range(low, high + 1)
        )
        ends = (
            f'<text x="{across[0]:.0f}" y="{height - 20}">{sizes[0]:,}</text><text x="{across[-1]:.0f}" '
            f'y="{height - 20}" text-anchor="end">{sizes[-1]:,} {escape(ASKED[name][0].split(",")[0])}</text>'
        )
        power = _raised(round(exponent(sizes, taken), 1))
        title = f'<text x="0" y="14" font-weight="600">{escape(name)}: n{power}</text>'
        place = f"translate({12 + number % 3 * (width + 12)} {8 + number // 3 * (height + 8)})"
        panels.append(
            f'<g transform="{place}">{title}{ticks}{ends}<g fill="#0072B2">{dots}</g>'
            f'<polyline points="{line}" fill="none" stroke="#0072B2"/></g>'
        )
    across, down = 3 * (width + 12) + 12, -(-len(panels) // 3) * (height + 8) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down}" viewBox="0 0 {across} {down}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="11"><title>How cost grows</title>'
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>{"".join(panels)}</svg>\n'
    )


def _raised(number):
    return f'<tspan dy="-4" font-size="8">{number:g}</tspan><tspan dy="4">&#8203;</tspan>'


def main():
    found = []
    lines = ["| what | counted in | from | to | takes then | exponent |", "|---|---|---|---|---|---|"]
    for name, sizes, taken in measured(small="--small" in sys.argv):
        found.append((name, sizes, taken))
        span = f"{sizes[0]:,} | {sizes[-1]:,} | {taken[-1]:.2g} s"
        lines.append(f"| {name} | {ASKED[name][0]} | {span} | {exponent(sizes, taken):.2f} |")
        print(lines[-1], flush=True)
    (DOCS / "_static" / "growth.svg").write_text(drawn(found), encoding="utf-8")
    page = DOCS / "performance.md"
    before, _ = page.read_text(encoding="utf-8").split(MARK)
    page.write_text(before + MARK + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
