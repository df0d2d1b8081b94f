"""fio's `--output-format=json`: what a disk reads and writes.

Shape: axboe/fio, stat.c and HOWTO, "JSON output": `fio version`, `jobs`, one for each job or group, with `read`,
`write` and `trim`, each with `io_bytes`, `runtime` in milliseconds, `iops` and `lat_ns`. Each job is a profile with a
phase for each way that moved something.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.units import format_quantity
from inferometer.engines.results.assemble import Draft, finish, moved
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, milliseconds, optional, text, whole

_WAYS = ("read", "write", "trim")


class Fio:
    name = "fio"
    title = "fio"

    def matches(self, document: Document) -> bool:
        return "fio version" in document.keys and isinstance(document.keys.get("jobs"), list)

    def read(self, document: Document) -> tuple[Profile, ...]:
        version = text(document.keys.get("fio version"))
        shared = mapping(document.keys.get("global options"))
        jobs = listed(document.keys["jobs"], "`jobs`")
        profiles = tuple(finish(_draft(job, shared, version), document) for job in jobs)
        if not profiles:
            raise FormatError("It has no jobs.", remedy="Let fio run one, and save it again.")
        return profiles


def _draft(job: Mapping[str, Any], shared: Mapping[str, Any], version: str | None) -> Draft:
    name = text(job.get("jobname")) or "job"
    draft = Draft(tool="fio", version=version, model=ModelFacts(name=f"fio {name}"))
    for way in _WAYS:
        part = mapping(job.get(way))
        nbytes = optional(part.get("io_bytes"), f"`{way}.io_bytes`")
        seconds = milliseconds(part.get("runtime", 0), f"`{way}.runtime`")
        if not nbytes or not seconds:
            continue
        moved(draft, way, nbytes, seconds)
        latency = optional(mapping(part.get("lat_ns")).get("mean"), f"`{way}.lat_ns.mean`")
        draft.host[f"{way}_iops"] = optional(part.get("iops"), f"`{way}.iops`")
        draft.host[f"{way}_latency_s"] = None if latency is None else latency * 1e-9
    if not draft.phases:
        raise FormatError(f"The job {name!r} moved nothing.", remedy="Give it a size or a runtime, and run it again.")
    failed = whole(job.get("error"), "`error`")
    if failed:
        draft.notes.append(f"the job ended with error {failed}")
    own = mapping(job.get("job options"))
    draft.host |= {key: value for key in ("rw", "bs", "iodepth", "direct", "ioengine")
                   if (value := text(own.get(key, shared.get(key))))}  # fmt: skip
    if (
        draft.host.get("rw") == "read" and "read_bytes_per_s" in draft.host
    ):  # a model's file is read from its beginning to its end
        rate = format_quantity(draft.host["read_bytes_per_s"], "B/s").replace(" ", "")
        draft.notes.append(f"`--storage {rate}` loads models at that rate")
    if draft.host.get("direct", "0") == "0":
        draft.notes.append("direct=1 was not set: what is read may come from the system's cache, and not from the disk")
    return draft


importer = Fio()
