"""The fields of the predict page beyond the first few: a field for every flag of the command, in groups."""

from __future__ import annotations

from typing import Any

from inferometer.known.files import names_of
from inferometer.predict.flags import FLAGS, Flag

# What the command asks for beside its flags, and the group of each.
_BESIDE = {
    "prefill_on": Flag("text", "DEVICE", "Read the prompt on another device, which sends its cache over.",
                       "Reading and serving"),
    "users": Flag("whole", "N", "Users of a served model, each with a request under way.", "Reading and serving"),
    "tokens_per_user": Flag("number", "R", "With users: the tokens a second each should see.", "Reading and serving"),
    "size": Flag("texts", "NAME=N", "Any other size that the model leaves open, such as frames=1500.",
                 "Reading and serving"),
    "pp": Flag("whole", "N", "Pipeline parallelism: devices that split the layers.", "Several devices"),
    "ep": Flag("whole", "N", "Expert parallelism: devices that split the experts.", "Several devices"),
    "dp": Flag("whole", "N", "Data parallelism: replicas of the model.", "Several devices"),
    "threads": Flag("whole", "N", "Threads of a CPU.  [default: one per core]", "Host and memory"),
    "priors": Flag("switch", "", "Ignore calibrations: use the datasheet and class priors.", "Host and memory"),
    "calibration": Flag("text", "NAME", "Use this calibration instead of the newest one that fits.", "Host and memory"),
    "what_if": Flag("texts", "CHANGE", "What changes would gain, such as weights=i4, batch=8, memory.bandwidth*=2.",
                    "What if"),
    "edgeprofiler": Flag("switch", "", "Also show what EdgeProfiler would say, by its own formulas.", "What if"),
}  # fmt: skip
FIELDS = {**_BESIDE, **FLAGS}
_NAMED = {  # fields whose values are names of the catalog, or of the files the hub keeps
    "draft": "models", "prefill_on": "devices", "link": "links", "instance": "instances", "grid": "grids", "pue": "pue",
    "calibration": "calibrations",
}  # fmt: skip
_LONG = {"tp": "Tensor parallel", "pp": "Pipeline parallel", "ep": "Expert parallel", "dp": "Replicas", "pue": "PUE",
         "usd_per_hour": "Dollars an hour", "size": "Other sizes", "what_if": "What if",
         "edgeprofiler": "EdgeProfiler"}  # fmt: skip


def field_groups() -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, flag in FIELDS.items():
        said, _, default = flag.help.partition("  [default: ")
        groups.setdefault(flag.group, []).append(
            {
                "name": name,
                "label": _LONG.get(name, name.replace("_", " ").capitalize()),
                "takes": flag.takes,
                "hint": default.rstrip("]") or _example(said),
                "help": said.partition(": `inferometer")[0].rstrip(".:") + ".",
                "list": _NAMED.get(name),
            }
        )
    return [{"title": title, "fields": fields} for title, fields in groups.items()]


def _example(said: str) -> str:
    """What the help gives as an example of a value."""
    return said.partition(", such as ")[2].rstrip(".")


def name_lists() -> dict[str, list[str]]:
    """The names that a browser offers; those of models and devices are on the page already, calibrations come later."""
    later = {"models", "devices", "calibrations"}
    return {"calibrations": [], **{kind: names_of(kind) for kind in _NAMED.values() if kind not in later}}
