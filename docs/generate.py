"""Write the pages of `docs/` that come from the code: formulas, devices, models, commands, settings, checks.

`make docs` runs it; a test fails when a page is not what this would write.
"""

from __future__ import annotations

import sys
import tomllib
from copy import copy
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

import elsewhere

import inferometer
from inferometer import predict
from inferometer.cli import COMMANDS
from inferometer.cli.commands.accuracy import page as accuracy_page
from inferometer.cli.run import cli
from inferometer.core import settings
from inferometer.core.dtypes import DTYPES
from inferometer.core.plugins import GROUPS, listed
from inferometer.core.units import format_quantity
from inferometer.known import devices, grids, instances, links, memory_levels, models, pues
from inferometer.known.formulas.registry import SECTIONS, Formula, all_formulas
from inferometer.known.machine.health import CHECKS
from inferometer.predict.fields import ASKED, AXES, SWEPT, fields_that
from inferometer.understand.findings import pages as finding_pages
from inferometer.understand.view.explanations import page_text
from inferometer.understand.view.listings import device_table, model_table
from inferometer.understand.view.records import device_record, model_record
from inferometer.understand.view.render import render
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent
NOTICE = "<!-- Written by `make docs`; edit the code instead. -->\n"


def pages() -> dict[str, Callable[[], str]]:
    """File name → what writes every generated page."""
    return {
        "formulas.md": formulas_page,
        "devices.md": devices_page,
        "models.md": models_page,
        "reference.md": reference_page,
        "commands.md": commands_page,
        "api.md": api_page,
        "settings.md": settings_page,
        "checks.md": checks_page,
        "plugins.md": plugins_page,
        "findings.md": findings_page,
        "accuracy.md": accuracy_page,
        "../src/inferometer/predict/asked.py": asked_module,
        "elsewhere.md": lambda: _page(elsewhere.page_parts()),
        "field/intensities.md": intensities_page,
        **{f"field/{file.stem}.md": partial(field_page, file) for file in sorted((FOLDER / "tables").glob("*.toml"))},
    }


# What the README shows of commands: none depends on what else is installed, or on the machine.
_SHOWN = {
    "predict": ("predict llama-3.2-3b --on nvidia-h200 --runtime torch-compile --prompt 2048 --generate 128", 7),
    "fit": ("predict --fit llama-3.3-70b --on nvidia-h100-sxm --weights f8e4m3 --tp 2", 9),
}
# Its table of accuracy: rows of docs/accuracy.md, by their first cells.
_STANDING = {
    "H200, a token, PyTorch in a CUDA graph": ("nvidia-h200", "torch-graph", "decode", "bf16", "held out"),
    "H200, a prompt, PyTorch in a CUDA graph": ("nvidia-h200", "torch-graph", "prefill", "bf16", "held out"),
    "CPU, ONNX Runtime": ("intel-emerald-rapids-1-vcpu", "onnxruntime", "forward", "f32", "held out"),
    "CPU, OpenVINO": ("intel-emerald-rapids-1-vcpu", "openvino", "forward", "f32", "held out"),
}
_PUBLISHED = {
    "timm's own table, GPUs never seen": ("timm", "gpu", "torch-eager", "forward", "device left out"),
    "OpenVINO's, GPUs never seen": ("openvino", "gpu", "openvino", "forward", "device left out"),
    "Qualcomm AI Hub's, phones never seen": ("qai-hub", "npu", "qnn", "forward", "device left out"),
    "ncnn's, CPUs never seen": ("ncnn", "cpu", "ncnn", "forward", "device left out"),
    "Hailo's, chips never seen": ("hailo", "npu", "hailort", "stream", "device left out"),
}


def readme(accuracy: str) -> str:
    """The README with what commands print and how true predictions are, as both are today."""
    text = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    filled = {name: _shown(line, most) for name, (line, most) in _SHOWN.items()}
    filled["accuracy"] = _accuracy_in_short(accuracy)
    for name, content in filled.items():
        start, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{content}\n\n{end}{rest.partition(end)[2]}"
    return text


def _shown(line: str, most: int) -> str:
    printed = CliRunner().invoke(cli, line.split(), catch_exceptions=False).stdout
    lines = [text.rstrip() for text in printed.splitlines()]
    more = ["…"] if len(lines) > most else []
    return "\n".join(["```console", f"$ inferometer {line}", *lines[:most], *more, "```"])


def _accuracy_in_short(page: str) -> str:
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in page.splitlines() if "|" in line]
    rows = []
    for title, key in _STANDING.items():
        row = next((row for row in cells if row[:5] == key), None)
        if row is not None:
            rows.append((title, row[5], row[6], _best_peer(cells, key[1], key[2]) if "h200" in key[0] else "–"))
    for title, key in _PUBLISHED.items():
        row = next((row for row in cells if row[:5] == key), None)
        if row is not None:
            rows.append((title, row[5], row[8], f"{row[13]} (a roofline)"))
    return _rows(("what is predicted", "times", "median error", "beside it"), rows)


def _best_peer(cells: list[tuple[str, ...]], runtime: str, phase: str) -> str:
    """The tool that errs least where tools were asked most, with our error on the same cases."""
    theirs = [row for row in cells if len(row) == 7 and row[1:3] == (phase, runtime)]
    if not theirs:
        return "–"
    most = max(int(row[3]) for row in theirs)
    best = min((row for row in theirs if int(row[3]) == most), key=lambda row: float(row[4].rstrip("%")))
    return f"{best[4]} ({best[0]}, on {most} of them; ours there {best[6]})"


def formulas_page() -> str:
    parts = [
        "# Formulas",
        """Every formula is a function with keyword arguments in SI base units; numbers or numpy arrays.
`inferometer formulas calc NAME key=value …` takes units.""",
    ]
    for section, title in SECTIONS.items():
        parts.append(f"## {title} (`formulas.{section}`)")
        parts += [_formula(formula) for formula in all_formulas().values() if formula.section == section]
    return _page(parts)


def _formula(formula: Formula) -> str:
    example = ", ".join(f"{name}={value}" for name, value in formula.example.items())
    head = f"### `{formula.name}`\n\n{formula.row}. Source: {formula.source}.\n\n`{formula.signature}`"
    return f"{head}\n\n{formula.doc}\n\nExample: `{formula.name}({example})` = `{formula.answer}`"


def devices_page() -> str:
    vendors: dict[str, list[dict[str, object]]] = {}
    for device in devices().values():
        vendors.setdefault(device.vendor, []).append(device_record(device))
    return _page([
        "# Devices",
        f"""{len(devices())} rows. Peaks are dense. A dash is unknown. `inferometer devices show NAME` prints the
source, date and origin of every number, and the groups of cores that a peak follows from.""",
        *(f"## {vendor}\n\n{render(device_table(vendors[vendor]), 'md')}" for vendor in sorted(vendors, key=str.lower)),
    ])  # fmt: skip


def models_page() -> str:
    table = model_table(model_record(model) for model in models().values())
    return _page(
        ["# Models", f"{len(table.rows)} rows. `inferometer models show NAME` prints one.", render(table, "md")]
    )


def reference_page() -> str:
    return _page([
        "# Reference tables",
        "## Number formats",
        _rows(("format", "bits stored", "computed in"), (
            (name, f"{float(entry.bits):g}", ", ".join(entry.arithmetic)) for name, entry in DTYPES.items()
        )),
        "## Links",
        "Bandwidth is one way, per device.",
        _rows(("link", "what", "bandwidth", "latency"), (
            (name, link.title, _text(link.bandwidth_bytes_per_s, "B/s"), _text(link.latency_s, "s"))
            for name, link in links().items()
        )),
        "## Cloud instances",
        _rows(("instance", "devices", "region", "on demand", "as of"), (
            (name, f"{row.count} × {row.device}", row.region or "–", _text(row.usd_per_hour, "USD/h"),
             row.usd_per_hour.date if row.usd_per_hour else "–")
            for name, row in instances().items()
        )),
        "## Memory hierarchy",
        _rows(("level", "latency", "bandwidth"), (
            (row.title, f"{_text(row.latency_low_s, 's')} to {_text(row.latency_high_s, 's')}",
             f"{_text(row.bandwidth_low_bytes_per_s, 'B/s')} to {_text(row.bandwidth_high_bytes_per_s, 'B/s')}")
            for row in memory_levels().values()
        )),
        "## Carbon intensity",
        _rows(("grid", "where", "g/kWh", "as of"), (
            (name, row.title, f"{row.carbon_g_per_kwh.value:g}", row.carbon_g_per_kwh.date)
            for name, row in grids().items()
        )),
        "## Power usage effectiveness",
        _rows(("row", "whose", "PUE", "as of"), (
            (name, row.title, f"{row.pue.value:g}", row.pue.date) for name, row in pues().items()
        )),
    ])  # fmt: skip


_CASES = {
    "resnet50, batch 1": ("resnet50", "forward", {"batch": 1}),
    "resnet50, batch 32": ("resnet50", "forward", {"batch": 32}),
    "bert-base, 512 tokens": ("bert-base", "forward", {"prompt": 512}),
    "llama-3.1-8b, prompt of 2048": ("llama-3.1-8b", "prefill", {"prompt": 2048, "generate": 2}),
    "llama-3.1-8b, a token": ("llama-3.1-8b", "decode", {"context": 2048}),
    "llama-3.1-8b, 32 tokens at once": ("llama-3.1-8b", "decode", {"context": 2048, "batch": 32}),
}
_RIDGES = ("raspberry-pi-5", "nvidia-jetson-orin-nano-super", "apple-m4-gpu", "nvidia-l4", "nvidia-h200")


def intensities_page() -> str:
    """Operations a byte of real models, op by op, from the same work rules that predictions are priced by."""
    cases = {title: _intensities(*case) for title, case in _CASES.items()}
    kinds = dict.fromkeys(kind for found in cases.values() for kind in found)
    ridges = ((name, *_ridge(name)) for name in _RIDGES)
    return _page([
        "# Arithmetic intensities",
        """Operations for each byte moved, of the ops of real models in bf16, each byte counted once. Where an intensity
is below a device's ridge (its peak over its bandwidth), memory bounds the op; above it, arithmetic does.""",
        "## By kind of op",
        _rows(("kind", *cases), ((kind, *(cases[case].get(kind, "–") for case in cases)) for kind in kinds)),
        "## Ridges",
        _rows(("device", "arithmetic", "peak", "bandwidth", "ridge"), ridges),
        """So an elementwise op is bound by memory everywhere, a decoded token nearly everywhere, a prompt or a large
convolution by arithmetic. `inferometer models show MODEL` has the work of every layer, `inferometer explain RUN` where
each of yours stands, and `inferometer formulas show ridge_point` the formula.""",
    ])  # fmt: skip


def _intensities(model: str, phase_name: str, sizes: dict[str, int]) -> dict[str, str]:
    profile = predict(model, on="nvidia-h200", runtime="ideal", weights="bf16", **sizes)
    phase = profile.phase(phase_name)
    work: dict[str, tuple[float, float]] = {}
    for op in phase.ops if phase is not None else ():
        flops, moved = work.get(op.kind, (0.0, 0.0))
        work[op.kind] = (flops + (op.flops or 0.0), moved + (op.bytes or 0.0))
    return {kind: f"{flops / moved:.3g}" for kind, (flops, moved) in work.items() if moved}


def _ridge(name: str) -> tuple[str, ...]:
    device = devices()[name]
    arithmetic = next(name for name in ("bf16", "f16", "f32") if name in device.peaks)
    peak, bandwidth = device.peaks[arithmetic], device.memory.bandwidth_bytes_per_s if device.memory else None
    ridge = "–" if bandwidth is None else f"{peak.value / bandwidth.value:.3g} FLOP/B"
    return arithmetic, _text(peak, "FLOP/s"), _text(bandwidth, "B/s"), ridge


def field_page(file: Path) -> str:
    """A page of `tables/*.toml`: what the field knows, with its sources, and what answers it here."""
    page = tomllib.loads(file.read_text(encoding="utf-8"))
    parts = [f"# {page['title']}", page["about"]]
    for table in page["tables"]:
        parts += [f"## {table['title']}", _field_table(table)]
    if file.stem == "edge":
        parts += ["## Accelerators by operations a joule", _EDGE_CHIPS, _edge_chips()]
    return _page(parts)


def _field_table(table: dict[str, Any]) -> str:
    """Cells are Markdown as they stand: they have links and code."""
    columns: dict[str, str] = table["columns"]
    lines = [f"| {' | '.join(columns.values())} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(row[key].replace('|', chr(92) + '|') for key in columns)} |" for row in table["rows"]]
    return "\n".join(lines)


_EDGE_CHIPS = """Dense 8-bit peaks of the catalog's accelerators of up to 60 W whose power is their own, best first.
`inferometer devices show NAME` has the source of each."""


def _edge_chips() -> str:
    chips = [
        (device, watts, peak.value / watts.value)
        for device in devices().values()
        if device.unit != "cpu" and (peak := device.peaks.get("i8")) and not device.shares_power
        and (watts := device.busy_w or device.power_w) and 0 < watts.value <= 60
    ]  # fmt: skip
    chips.sort(key=lambda chip: -chip[-1])
    return _rows(("device", "8-bit peak", "power", "operations a joule"), (
        (device.name, _text(device.peaks["i8"], "OP/s"), _text(watts, "W"), format_quantity(ratio, "OP/J"))
        for device, watts, ratio in chips
    ))  # fmt: skip


# The Python interface by what it is for. Every public name stands here once; a test holds that.
_API = {
    "Predict": ("predict", "fit", "can_i_run", "sweep", "atlas"),
    "Measure": ("profile", "verify", "bench", "Plan", "Guard", "NoGuard", "Profiler", "calibrate_from"),
    "Serve": ("simulate", "plan", "load"),
    "Prepare": ("prepare",),
    "Understand": ("explain", "compare", "chart", "export"),
    "Look up": ("device", "devices", "model", "models", "read", "detect_host", "dtype"),
    "Values": ("Profile", "Device", "Graph", "Work", "Workload"),
    "Text and files": ("encode", "decode", "format_quantity", "parse_quantity", "InferometerError"),
}
# What the verbs return or take, and lives deeper.
_FURTHER = (
    "inferometer.core.profile.Phase", "inferometer.core.profile.OpTime", "inferometer.core.profile.Headline",
    "inferometer.measure.bench.compare.Comparison", "inferometer.measure.bench.compare.ComparedMetric",
    "inferometer.measure.bench.measurement.Measurement",
    "inferometer.understand.explanation.Explanation", "inferometer.core.finding.Finding",
    "inferometer.predict.sweep.rows.Rows", "inferometer.predict.memory.fit.Fit", "inferometer.predict.placing.Runnable",
    "inferometer.predict.placing.RunnableForm", "inferometer.predict.options.Options",
    "inferometer.hub.web.downloads.DrawnChart", "inferometer.measure.prepare.run.Prepared",
)  # fmt: skip


def api_page() -> str:
    """Directives that the site's generator turns into signatures and docstrings."""
    parts = [
        "# Python",
        """`import inferometer as im`: these are names of `im`, loaded when they are first used. Values are frozen,
numbers are in SI base units. Notebooks show profiles, comparisons, devices, sweeps and explanations as tables.""",
    ]
    for title, names in _API.items():
        parts += [f"## {title}", *(_directive(_home(name)) for name in names)]
    return _page([*parts, "## What they return and take", *(_directive(path) for path in _FURTHER)])


def _home(name: str) -> str:
    """Where a public name is defined: a package that is a verb too is documented by its function."""
    value = getattr(inferometer, name)
    if isinstance(value, ModuleType):
        value = getattr(import_module(f"{value.__name__}.verbs"), name)
    return f"{value.__module__}.{value.__qualname__}"


def _directive(path: str) -> str:
    module, _, name = path.rpartition(".")
    what = getattr(import_module(module), name)
    kind, options = ("class", "   :members:\n") if isinstance(what, type) else ("function", "")
    return f"```{{eval-rst}}\n.. auto{kind}:: {path}\n{options}```"


def commands_page() -> str:
    parts = [
        "# Commands",
        "Data goes to stdout, words to stderr. Exit codes: 0 done, 1 a gate failed, 2 you can fix it.",
    ]
    context = click.Context(cli, info_name="inferometer", **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is None:
            raise LookupError(name)
        parts.append(f"## `inferometer {name}`")
        parts.append(_help(command, context, name))
        parts += _inner_helps(command, context, name)
    return _page(parts)


def _inner_helps(command: click.Command, parent: click.Context, name: str) -> list[str]:
    """The help of a group's commands, and of theirs."""
    if not isinstance(command, click.Group):
        return []
    context = click.Context(command, info_name=name, parent=parent)
    parts = []
    for child_name, child in command.commands.items():
        parts += [_help(child, context, child_name), *_inner_helps(child, context, child_name)]
    return parts


def _help(command: click.Command, parent: click.Context, name: str) -> str:
    shown = copy(command)
    vars(shown)["_help_option"] = None  # click keeps the one of the first context that a command was used in
    with click.Context(shown, info_name=name, parent=parent, max_content_width=100, terminal_width=100) as context:
        return f"```text\n{shown.get_help(context)}\n```"


_FILE = """The configuration file is TOML; the environment comes before it:

```toml
machine = "lab-pi"
```"""


def settings_page() -> str:
    rows = ((f"`{s.name}`", s.default or "unset", s.meaning) for s in settings.SETTINGS)
    return _page(
        [
            "# Settings",
            "Environment variables; there are no others.",
            _rows(("name", "default", "meaning"), rows),
            _FILE,
        ]
    )


def checks_page() -> str:
    parts = ["# Checks", "What `inferometer doctor` looks at, and what to do about it."]
    parts += [f"## `{code}`\n\n**{topic.title}.** {topic.about}" for code, topic in CHECKS.items()]
    return _page(parts)


def findings_page() -> str:
    parts = ["# Findings", "What a profile may carry as a finding; `inferometer explain CODE` prints one of these."]
    return _page([*parts, *(page_text(asdict(page), "md") for page in finding_pages().values())])


def plugins_page() -> str:
    parts = [
        "# Plug-ins",
        """A plug-in is an entry point of its group, in any installed package.
Ours are declared in `pyproject.toml` the same way.""",
    ]
    for group, meaning in GROUPS.items():
        names = ", ".join(f"`{plugin.name}`" for plugin in listed(group) if plugin.package == "inferometer")
        parts.append(f"## `{group}`\n\n{meaning}\n\nBuilt in: {names or 'none yet'}.")
    return _page([*parts, *_engine_of_your_own()])


def _engine_of_your_own() -> list[str]:
    """A whole plug-in, as it stands in examples/plugin; a test installs what the page shows, and uses it."""
    folder = FOLDER.parent / "examples" / "plugin"
    texts = {name: (folder / name).read_text(encoding="utf-8").strip() for name in _PLUGIN}
    kinds = {"toml": "toml", "py": "python"}
    blocks = [
        f"`{name}`: {words}\n\n```{kinds[name.rpartition('.')[2]]}\n{texts[name]}\n```"
        for name, words in _PLUGIN.items()
    ]
    return ["## An engine of your own", _PLUGIN_INTRODUCTION, *blocks, _PLUGIN_USE]


_PLUGIN = {
    "numpy_mlp.toml": "the descriptor.",
    "numpy_mlp.py": "the reader and the runtime.",
    "pyproject.toml": "the entry points.",
}
_PLUGIN_INTRODUCTION = """A complete engine in three files: it opens perceptrons in NumPy archives and runs them.

- A **reader** turns a file into a `Graph`, so that models of a new format can be predicted. An engine that opens a
  format we read needs none.
- A **runtime** loads a model and takes one step at a time. Warm-up, repetition, clocks and statistics are not its
  business: every engine is measured by the same code.
- A **descriptor** says what the engine opens, needs and does to a graph. The runtime's attribute `engine` is the path
  of a TOML file with a row `[engines.NAME]`, or an `EngineDescriptor`. Without one the engine can be measured, and not
  predicted. Only `title` is required; every number has a source.
  [core/engine.py](../src/inferometer/core/engine.py) says what each key means, and
  [engines](../src/inferometer/engines/llamacpp/llamacpp.engine.toml) has ours.

The rest follows from the descriptor: the engine is chosen for files in its format, predicted with its overheads,
listed by `runtimes`, seen by `doctor`, advised in formats that it has, and calibrated where it says with what."""
_PLUGIN_USE = """Then `pip install .`, and:

```console
$ inferometer runtimes
$ inferometer predict digits.npz --on raspberry-pi-5
$ inferometer profile digits.npz --predict -o digits.json
$ inferometer explain digits.json
$ inferometer doctor
```

An engine of ours is made the same way: a folder in `engines` with its row and its session, and in
`pyproject.toml` an entry point and an extra with what it installs; `tests/contract/runtime_cases_NAME.py` puts it
through the suite that every runtime passes."""


def _rows(headings: tuple[str, ...], rows: object) -> str:
    columns = tuple(Column(key=heading, heading=heading) for heading in headings)
    return render(ReportTable(columns=columns, rows=tuple(dict(zip(headings, row, strict=True)) for row in rows)), "md")


def _text(sourced: object, unit: str) -> str:
    return "–" if sourced is None else format_quantity(float(sourced), unit)


_ASKED = '''"""The keywords of questions and sweeps, with their types. `make docs` writes it: edit `predict.fields`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device, Link
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph


class AskedOfAll(TypedDict, total=False):
    """What holds for every row of a sweep; what is absent or None is left to the model, the device and the engine."""

{of_all}


class Asked(AskedOfAll, total=False):
    """What a question may be asked with."""

{asked}


class Swept(AskedOfAll, total=False):
    """The lists whose combinations a sweep predicts, beside its models and devices."""

{swept}


class AskedOfService(TypedDict, total=False):
    """What serves a model in a simulation: an engine on its devices."""

{served}
'''


def asked_module() -> str:
    def lines(kinds: dict[str, str]) -> str:
        return "\n".join(f"    {name}: {kind}" for name, kind in kinds.items())

    return _ASKED.format(
        of_all=lines({name: field.kind for name, field in SWEPT.items() if name not in AXES}),
        asked=lines({name: field.kind for name, field in ASKED.items() if name not in SWEPT or name in AXES}),
        swept=lines({name: field.listed for name, field in AXES.items()}),
        served=lines({name: field.kind for name, field in fields_that(door="simulate").items()}),
    )


def _page(parts: list[str]) -> str:
    return NOTICE + "\n" + "\n\n".join(parts) + "\n"


def main() -> int:
    written = {name: write() for name, write in pages().items()}
    for name, text in written.items():
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/{name}\n")
    (FOLDER.parent / "README.md").write_text(readme(written["accuracy.md"]), encoding="utf-8")
    sys.stdout.write("README.md\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
