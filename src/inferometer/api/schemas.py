"""JSON Schemas of the documents that `--format json` prints, made from the values that the documents are made from.

A document that is a value has the value's fields; one that is put together (a comparison, a load test) has fields of
several values, picked here by name. Fields may be added at any time, so that nothing forbids others.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import msgspec

from inferometer.core.errors import UnknownNameError

Plain = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NUMBER: Plain = {"type": "number"}
_NUMBERS: Plain = {"type": ["number", "null"]}
_COUNT: Plain = {"type": "integer"}
_TEXT: Plain = {"type": "string"}
_TEXT_OR_NULL: Plain = {"type": ["string", "null"]}
_TEXTS: Plain = {"type": "array", "items": _TEXT}


def schema_of(name: str) -> Plain:
    """The schema of a document, by the name that `SCHEMAS` has for it."""
    if name not in SCHEMAS:
        raise UnknownNameError("schema", name, SCHEMAS, listing="`inferometer schema` lists them.")
    about, make = SCHEMAS[name]
    made = make()
    return {"$schema": DRAFT, "title": f"inferometer {name}", "description": about, **made}


def _definitions(*kinds: type) -> Plain:
    """The schemas of some values and of what they hold, by the values' names."""
    _, found = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    return found


def _picked(definition: Plain, names: Iterable[str]) -> Plain:
    return {name: definition["properties"][name] for name in names}


def _list_of(name: str) -> Plain:
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}


def _object(properties: Plain, defs: Plain | None = None, *, optional: Iterable[str] = ()) -> Plain:
    """An object that always has the properties, but for the optional ones."""
    required = [name for name in properties if name not in set(optional)]
    made: Plain = {"type": "object", "properties": properties, "required": required}
    return {**made, "$defs": defs} if defs else made


def _coded(kind: type) -> Plain:
    """A document that the codec writes: every field is there. A profile shows its precision beside its workload."""
    from inferometer.core.codec import SCHEMAS as CODED  # noqa: PLC0415 - listing the names needs no values

    defs = _definitions(kind)
    profile = defs.get("Profile")
    if profile is not None:
        for name in ("precision", "parallel"):  # no field of a workload is required
            profile["properties"][name] = defs["Workload"]["properties"].pop(name)
        phase = defs["Phase"]["properties"]  # which lists its parts, each with its prediction beside it
        phase.pop("predicted_parts")
        phase["parts"] = {
            "type": "array", "items": _object({"name": _TEXT, "time_s": _NUMBERS, "predicted_s": _NUMBERS}),
        }  # fmt: skip
    root = defs.pop(kind.__name__)
    schema = CODED[kind]
    return _object({"schema": {"const": str(schema)}, **root["properties"]}, defs)


_PUBLISHED: Plain = {"type": "array", "description": "Of a prediction: what others measured."}

_RATES = ("rtf", "images_per_s", "energy_j_per_token", "energy_j_per_token_low", "energy_j_per_token_high")


def _profile() -> Plain:
    from inferometer.core.profile import Profile  # noqa: PLC0415 - as above

    made = _coded(Profile)
    made["properties"]["published"] = _PUBLISHED
    made["$defs"]["Headline"]["properties"] |= dict.fromkeys(_RATES, _NUMBERS)
    return made


def _run() -> Plain:
    """The run's document; `runs show` adds how it went."""
    from inferometer.core.profile import Run  # noqa: PLC0415 - as above

    made = _coded(Run)
    story = dict.fromkeys(("kind", "started", "ended", "author", "note", "reason", "link"), _TEXT_OR_NULL)
    made["properties"] |= {**story, "metrics": {"type": "array", "items": {"type": "object"}}}
    return made


def _of_codec(module: str, name: str) -> Callable[[], Plain]:
    def made() -> Plain:
        return _coded(getattr(import_module(module), name))

    return made


def _comparison() -> Plain:
    from inferometer.measure.bench.compare import Comparison  # noqa: PLC0415 - as above

    defs = _definitions(Comparison)
    whole = defs.pop("Comparison")
    main = _picked(defs["ComparedMetric"], ("verdict", "ratio", "low", "high", "p_value", "reason"))
    return _object({**main, **whole["properties"]}, defs)


def _fit() -> Plain:
    from inferometer.predict.fitting import MemoryFit  # noqa: PLC0415 - as above

    properties = _definitions(MemoryFit)["MemoryFit"]["properties"]
    return _object({name: kind for name, kind in properties.items() if name != "notes"})


def _serving() -> Plain:
    from inferometer.predict.served.question import ServingAnswer  # noqa: PLC0415 - as above

    properties = _definitions(ServingAnswer)["ServingAnswer"]["properties"]
    made = {"schema": {"const": "inferometer.serving/1"}, **properties, "published": _PUBLISHED}
    return _object(made, optional=("published",))


def _can_i_run() -> Plain:
    from inferometer.predict.placing import RunnableForm  # noqa: PLC0415 - as above

    properties = {
        "schema": {"const": "inferometer.can-i-run/1"},
        **dict.fromkeys(("model", "device", "runtime"), _TEXT),
        "host": _TEXT_OR_NULL,
        "context": _COUNT,
        "capacity_bytes": _NUMBERS,
        "forms": _list_of("RunnableForm"),
        "notes": _TEXTS,
        "quality": _TEXT_OR_NULL,
    }
    return _object(properties, _definitions(RunnableForm))


def _alarm() -> Plain:
    from inferometer.understand.series import Alarm  # noqa: PLC0415 - as above

    defs = _definitions(Alarm)
    properties = defs.pop("Alarm")["properties"]
    return _object({"schema": {"const": "inferometer.alarm/1"}, **properties, "told": {"type": "boolean"}}, defs)


def _plan() -> Plain:
    """Of requests a second; a plan of frames a second has less beside its plans."""
    from inferometer.serving.plans.asked import FrontPoint, ServingPlan  # noqa: PLC0415 - as above
    from inferometer.serving.plans.edge import EdgePlan  # noqa: PLC0415 - as above
    from inferometer.serving.plans.tiers import EdgeTier  # noqa: PLC0415 - as above

    defs = _definitions(ServingPlan, EdgePlan, EdgeTier, FrontPoint)
    either = {"anyOf": [{"$ref": "#/$defs/ServingPlan"}, {"$ref": "#/$defs/EdgePlan"}]}
    properties = {
        "schema": {"const": "inferometer.plan/1"},
        "plans": {"type": "array", "items": either},
        "why_not": _TEXT_OR_NULL,
        "candidates": _COUNT,
        "simulated": _COUNT,
        "rejected": _TEXTS,
        "by_device": _list_of("ServingPlan"),
        "front": _list_of("FrontPoint"),
        "notes": _TEXTS,
        "edge": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/EdgeTier"}]},
        "apart": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/ServingPlan"}]},
    }
    return _object(properties, defs, optional=properties.keys() - {"schema", "plans", "why_not"})


def _load() -> Plain:
    from inferometer.core.served import Level, LevelFigures, Served  # noqa: PLC0415 - as above
    from inferometer.understand.view.load_tests import SCHEMA  # noqa: PLC0415 - as above

    defs = _definitions(Level, LevelFigures, Served)
    figures = dict(defs["LevelFigures"]["properties"])
    summary = {name: figures.pop(name) for name in ("ttft_s", "itl_s", "tpot_s", "e2e_s")}
    of_level = (
        "name", "rate_per_s", "concurrency", "windows", "counting", "tokens_per_chunk", "client", "server", "messages",
        "interrupted",
    )  # fmt: skip
    level = {**_picked(defs["Level"], of_level), **figures, "summary": _object(summary)}
    of_service = ("endpoint", "api", "streamed", "loop", "arrivals", "lengths", "prompts")
    properties = {
        "schema": {"const": SCHEMA},
        "kind": {"enum": ["predicted", "measured"]},
        "model": _TEXT,
        "device": _TEXT,
        "runtime": _TEXT_OR_NULL,
        **_picked(defs["Served"], of_service),
        "headline": _TEXT,
        **level,
        **dict.fromkeys(("knee", "saturated", "within"), _TEXT_OR_NULL),
        "levels": {"type": "array", "items": _object(level)},
        "notes": _TEXTS,
    }
    return _object(properties, {name: each for name, each in defs.items() if name != "Served"})


def _explanation() -> Plain:
    from inferometer.core.finding import Finding  # noqa: PLC0415 - as above
    from inferometer.core.profile import Headline  # noqa: PLC0415 - as above
    from inferometer.understand.explanation import SCHEMA  # noqa: PLC0415 - as above

    defs = _definitions(Finding, Headline)
    rows = {"type": "array", "items": {"type": "object"}}
    phase = _object({"name": _TEXT, "time_s": _NUMBER})
    table = {
        "by": _TEXT, "phase": _TEXT_OR_NULL, "whole_s": _NUMBERS, "remainder_s": _NUMBERS, "remainder": _TEXT_OR_NULL,
        "rows": rows,
    }  # fmt: skip
    properties = {
        "schema": {"const": SCHEMA},
        "kind": {"enum": ["predicted", "measured"]},
        **dict.fromkeys(("model", "device", "headline"), _TEXT),
        "runtime": _TEXT_OR_NULL,
        "workload": {"type": "object", "additionalProperties": {"type": "integer"}},
        "summary": {"$ref": "#/$defs/Headline"},
        "once": {"type": "array", "items": phase},
        "attribution": {"type": "array", "items": _object(table)},
        "roofline": {"type": "object"},
        "findings": _list_of("Finding"),
        **dict.fromkeys(("next", "notes"), _TEXTS),
        **dict.fromkeys(("residual", "tried"), rows),
    }
    return _object(properties, defs, optional=("residual", "tried"))


def _atlas() -> Plain:
    from inferometer.known.atlas import PublishedMeasurement  # noqa: PLC0415 - as above

    known = dict(_definitions(PublishedMeasurement)["PublishedMeasurement"]["properties"])
    known |= {
        **dict.fromkeys(("device", "model", "metric", "unit"), _TEXT),
        **dict.fromkeys(("runtime", "version", "weights", "chip_unit", "date"), _TEXT_OR_NULL),
        "batch": {"type": ["integer", "null"]},
        **dict.fromkeys(("value", "seconds"), _NUMBER),
        **dict.fromkeys(("low_s", "high_s"), _NUMBERS),
        "source": _object(dict.fromkeys(("key", "title", "url", "licence"), _TEXT)),
    }
    always = {
        "device", "model", "runtime", "version", "weights", "batch", "metric", "value", "unit", "source", "date",
    }  # fmt: skip
    row = _object(known, optional=set(known) - always)
    return _object({"schema": {"const": "inferometer.atlas/1"}, "rows": {"type": "array", "items": row}})


def _model() -> Plain:
    from inferometer.core.sizes import OpenSize  # noqa: PLC0415 - as above
    from inferometer.core.workload import Precision  # noqa: PLC0415 - as above
    from inferometer.predict import Footprint  # noqa: PLC0415 - as above

    defs = _definitions(Precision, OpenSize, Footprint)
    count, by_name = {"type": ["integer", "null"]}, {"type": "object", "additionalProperties": {"type": "integer"}}
    properties = {
        "schema": {"const": "inferometer.model/1"},
        "name": _TEXT,
        "architecture": _TEXT_OR_NULL,
        **dict.fromkeys(("parameters", "weight_bytes"), _COUNT),
        **dict.fromkeys(("weight_bytes_by_format", "sizes"), by_name),
        "kv_bytes_per_token": count,
        **dict.fromkeys(("flops", "bytes"), _NUMBERS),
        "precision": {"$ref": "#/$defs/Precision"},
        "open_sizes": _list_of("OpenSize"),
        "memory": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Footprint"}]},
        "notes": _TEXTS,
        "coverage": {"type": "object"},
        "layers": {"type": "array", "items": {"type": "object"}},
    }
    return _object(properties, defs)


def _sweep() -> Plain:
    from inferometer.predict.sweep import COLUMNS  # noqa: PLC0415 - as above

    cell: Plain = {"type": ["number", "string", "boolean", "null"]}
    return {"type": "array", "items": _object(dict.fromkeys(COLUMNS, cell))}


SCHEMAS: dict[str, tuple[str, Callable[[], Plain]]] = {
    "alarm": ("Whether a run is slower than its series: `inferometer runs watch`.", _alarm),
    "atlas": ("What others measured: `inferometer atlas`.", _atlas),
    "calibration": (
        "What a device reached.",
        _of_codec("inferometer.core.calibration", "Calibration"),
    ),
    "can-i-run": ("Which forms of a model fit: `inferometer can-i-run`.", _can_i_run),
    "comparison": ("Whether one run is faster: `inferometer compare`.", _comparison),
    "device": ("A device: `inferometer devices show`.", _of_codec("inferometer.core.device", "Device")),
    "explanation": ("Where the time goes: `inferometer explain`.", _explanation),
    "fit": ("What fits into memory: `inferometer predict --fit`.", _fit),
    "job": ("A measurement as data, as a hub hands it to an agent.", _of_codec("inferometer.core.job", "Job")),
    "job-result": ("What an agent sends back.", _of_codec("inferometer.core.job", "JobResult")),
    "load": ("A service under load: `inferometer load`.", _load),
    "model": ("A model's layers: `inferometer models show`.", _model),
    "plan": ("Ways to serve a model: `inferometer plan`.", _plan),
    "profile": ("A prediction or a measurement: `inferometer predict`, `profile`, `bench`.", _profile),
    "run": ("A stored run: `inferometer runs show`.", _run),
    "serving": ("The steady state of a served model: `inferometer predict --users`.", _serving),
    "simulation": ("A service under load, simulated: `inferometer simulate`; as `load`.", _load),
    "sweep": ("A row a configuration: `inferometer sweep`.", _sweep),
    "trace": ("Spans of a program: `Profiler.export`.", _of_codec("inferometer.core.trace", "Trace")),
}
