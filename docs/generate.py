"""Write the pages of `docs/` that come from the code: formulas, devices, models, commands, settings, checks.

`make docs` runs it; a test fails when a page is not what this would write.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent))

import elsewhere

from inferometer import settings
from inferometer.catalog import devices, grids, instances, links, memory_levels, models, pues
from inferometer.catalog.health import CHECKS
from inferometer.cli import COMMANDS
from inferometer.cli.accuracy import page as accuracy_page
from inferometer.cli.run import cli
from inferometer.core.dtype import DTYPES
from inferometer.explain.pages import pages as finding_pages
from inferometer.formulas.registry import SECTIONS, Formula, all_formulas
from inferometer.plugins import GROUPS, listed
from inferometer.report.explanations import page_text
from inferometer.report.listings import device_table, model_table
from inferometer.report.records import device_record, model_record
from inferometer.report.render import render
from inferometer.report.table import Column, ReportTable
from inferometer.units import format_quantity

FOLDER = Path(__file__).parent
NOTICE = "<!-- Written by `make docs`; edit the code instead. -->\n"


def pages() -> dict[str, str]:
    """File name → text of every generated page."""
    return {
        "formulas.md": formulas_page(),
        "devices.md": devices_page(),
        "models.md": models_page(),
        "reference.md": reference_page(),
        "commands.md": commands_page(),
        "settings.md": settings_page(),
        "checks.md": checks_page(),
        "plugins.md": plugins_page(),
        "findings.md": findings_page(),
        "accuracy.md": accuracy_page(),
        "elsewhere.md": _page(elsewhere.page_parts()),
    }


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
    with click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100) as context:
        return f"```text\n{command.get_help(context)}\n```"


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
  [catalog/data/engines](../src/inferometer/catalog/data/engines/llamacpp.toml) has ours.

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

An engine of ours is made the same way: a file in `catalog/data/engines`, a package in `runtimes`, and in
`pyproject.toml` an entry point and an extra with what it installs; `tests/contract/runtime_cases_NAME.py` puts it
through the suite that every runtime passes."""


def _rows(headings: tuple[str, ...], rows: object) -> str:
    columns = tuple(Column(key=heading, heading=heading) for heading in headings)
    return render(ReportTable(columns=columns, rows=tuple(dict(zip(headings, row, strict=True)) for row in rows)), "md")


def _text(sourced: object, unit: str) -> str:
    return "–" if sourced is None else format_quantity(float(sourced), unit)


def _page(parts: list[str]) -> str:
    return NOTICE + "\n" + "\n\n".join(parts) + "\n"


def main() -> int:
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
