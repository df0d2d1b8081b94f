"""What tools measure of a host: its disks, its network, its memory, and how long a command takes."""

import re
from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.core.statistics import median
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.engines.results.assemble import Draft, finish, moved
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import (
    listed,
    mapping,
    milliseconds,
    number,
    numbers,
    optional,
    positive,
    size,
    text,
    whole,
)

_WAYS = ("read", "write", "trim")


class Fio:
    """fio's `--output-format=json`: what a disk reads and writes.

    Shape: axboe/fio, stat.c and HOWTO, "JSON output": `fio version`, `jobs`, one for each job or group, with `read`,
    `write` and `trim`, each with `io_bytes`, `runtime` in milliseconds, `iops` and `lat_ns`. Each job is a profile with
    a phase for each way that moved something.
    """

    name = "fio"
    title = "fio"

    def matches(self, document: Document) -> bool:
        return "fio version" in document.keys and isinstance(document.keys.get("jobs"), list)

    def read(self, document: Document) -> tuple[Profile, ...]:
        version = text(document.keys.get("fio version"))
        shared = mapping(document.keys.get("global options"))
        jobs = listed(document.keys["jobs"], "`jobs`")
        profiles = tuple(finish(_fio_draft(job, shared, version), document) for job in jobs)
        if not profiles:
            raise FormatError("It has no jobs.", remedy="Let fio run one, and save it again.")
        return profiles


def _fio_draft(job: Mapping[str, Any], shared: Mapping[str, Any], version: str | None) -> Draft:
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


fio = Fio()


_SUMS = {"sum_sent": "send", "sum_received": "receive", "sum": "send"}


class Iperf3:
    """iperf3's `--json`: what a network carries.

    Shape: esnet/iperf, src/iperf_api.c: `start` (version, `test_start` with protocol and streams), `intervals`, and
    `end` with `sum_sent` and `sum_received` (TCP) or `sum` (UDP), each with `bytes`, `seconds` and `bits_per_second`; a
    test that failed has an `error`. The phases are send and receive, whose rates differ by what was still under way.
    """

    name = "iperf3"
    title = "iperf3"

    def matches(self, document: Document) -> bool:
        start = mapping(document.keys.get("start"))
        return isinstance(document.keys.get("end"), dict) and ("test_start" in start or "version" in start)

    def read(self, document: Document) -> tuple[Profile, ...]:
        if failed := text(document.keys.get("error")):
            raise FormatError(f"The test failed: {failed}.", remedy="Run it again.")
        start, end = mapping(document.keys["start"]), mapping(document.keys["end"])
        test = mapping(start.get("test_start"))
        protocol = text(test.get("protocol")) or "TCP"
        draft = Draft(tool="iperf3", version=text(start.get("version")), model=ModelFacts(name=f"iperf3 {protocol}"))
        for key, way in _SUMS.items():
            part = mapping(end.get(key))
            nbytes, seconds = positive(part.get("bytes"), f"`{key}.bytes`"), positive(part.get("seconds"), f"`{key}`")
            if nbytes and seconds and all(phase.name != way for phase in draft.phases):
                moved(draft, way, nbytes, seconds)
        if not draft.phases:
            raise FormatError("It carried nothing.", remedy="Check that the server was reached, and run it again.")
        draft.host |= {"protocol": protocol, "streams": text(test.get("num_streams"))}
        lost = optional(mapping(end.get("sum")).get("lost_percent"), "`sum.lost_percent`")
        if lost:
            draft.notes.append(f"{lost:.3g} % of the packets were lost")
        rate = draft.host[f"{draft.phases[-1].name}_bytes_per_s"]
        draft.notes.append(
            f"`--link {format_quantity(rate, 'B/s').replace(' ', '')}` sends between devices at that rate"
        )
        return (finish(draft, document),)


iperf3 = Iperf3()


_HEAD = re.compile(r"^sysbench (\d[\w.-]{0,30})", re.MULTILINE)
_TIME = re.compile(r"^\s+total time(?: taken by event execution)?:\s+([\d.]{1,20})s\s*$", re.MULTILINE)
_MEMORY = re.compile(r"^([\d.]{1,20}) MiB transferred \(([\d.]{1,20}) MiB/sec\)", re.MULTILINE)
_FILES = {"read": re.compile(r"^\s+read, MiB/s:\s+([\d.]{1,20})", re.MULTILINE),
          "write": re.compile(r"^\s+written, MiB/s:\s+([\d.]{1,20})", re.MULTILINE)}  # fmt: skip
_EVENTS = re.compile(r"^\s+events per second:\s+([\d.]{1,20})", re.MULTILINE)
_OPTION = re.compile(
    r"^\s*(Number of threads|block size|operation|scope|Prime numbers limit): (\S{1,20})", re.MULTILINE
)
_CACHED = 32 << 20  # bytes: a block below it stays in a cache


class Sysbench:
    """sysbench's report of its tests of memory, files and CPUs.

    Shape: akopytov/sysbench 1.0, src/tests/{memory,cpu,fileio}: a heading with the version, the test's options, then "…
    MiB transferred (… MiB/sec)" of memory, "read, MiB/s:" and "written, MiB/s:" of files, "events per second:" of CPUs,
    and "General statistics" with the total time.
    """

    name = "sysbench"
    title = "sysbench"

    def matches(self, document: Document) -> bool:
        head = document.data[:4096].decode("utf-8", errors="replace")
        return _HEAD.search(head) is not None and b"General statistics" in document.data

    def read(self, document: Document) -> tuple[Profile, ...]:
        report = document.text
        heading, took = _HEAD.search(report), _TIME.search(report)
        seconds = number(took[1], "the total time") if took else 0.0
        if not seconds:
            raise FormatError("It does not tell how long the test took.", remedy="Keep the whole report.")
        options = dict(_OPTION.findall(report))
        draft = Draft(tool="sysbench", version=heading[1] if heading else None, host={**options})
        if threads := options.get("Number of threads", "").strip():
            draft.threads = int(threads) if threads.isdecimal() else None
        if memory := _MEMORY.search(report):
            draft.model = ModelFacts(name="sysbench memory")
            nbytes = number(memory[1], "what was transferred") * 2**20
            rate = moved(draft, options.get("operation", "write"), nbytes, seconds) if nbytes else 0.0
            # Blocks are of 1 KiB unless sysbench is told otherwise, which measures a cache
            block = options.get("block size", "")
            size = parse_quantity(block, "B") if re.fullmatch(r"\d{1,12}[KMGT]iB", block) else None
            if size is not None and size < _CACHED:
                draft.notes.append(
                    f"blocks of {block} stay in a cache, so this is not the memory's rate: use --memory-block-size=256M"
                )
            elif rate:
                draft.notes.append(f'in a device file of your own: bandwidth = "{format_quantity(rate, "B/s")}"')
        elif rates := {way: found[1] for way, pattern in _FILES.items() if (found := pattern.search(report))}:
            draft.model = ModelFacts(name="sysbench fileio")
            for way, rate_text in rates.items():
                if rate_mib := number(rate_text, f"the rate of {way}"):
                    moved(draft, way, rate_mib * 2**20 * seconds, seconds)
        elif events := _EVENTS.search(report):
            draft.model = ModelFacts(name="sysbench cpu")
            draft.host["events_per_s"] = rate = number(events[1], "the events per second")
            draft.notes.append(f"{rate:.6g} events a second")
            draft.phases.append(Phase(name="run", time_s=seconds, statistic="sum"))
        if not draft.phases:
            raise FormatError("It moved nothing.", remedy="Tests of memory, fileio and cpu are read.")
        return (finish(draft, document),)


sysbench = Sysbench()


class Hyperfine:
    """hyperfine's `--export-json`.

    Shape: sharkdp/hyperfine, src/benchmark/benchmark_result.rs: `results`, one for each command, with `mean`, `median`,
    `min`, `max`, `stddev`, `user` and `system` in seconds, `times` of every run, `exit_codes`, and in newer versions
    `memory_usage_byte`. Each command is a profile with the phase run, as `inferometer bench` gives it, so that the two
    can be compared.
    """

    name = "hyperfine"
    title = "hyperfine"

    def matches(self, document: Document) -> bool:
        results = document.keys.get("results")
        if not isinstance(results, list) or not results:
            return False
        first = mapping(results[0])
        return "command" in first and ("times" in first or "median" in first)

    def read(self, document: Document) -> tuple[Profile, ...]:
        results = listed(document.keys["results"], "`results`")
        return tuple(finish(_hyperfine_draft(result), document) for result in results)


def _hyperfine_draft(result: Mapping[str, Any]) -> Draft:
    command = text(result.get("command"))
    draft = Draft(tool="hyperfine", command=command)
    if command:
        draft.model = ModelFacts(name=command)
    times = numbers(result.get("times"), "`times`")
    middle = optional(result.get("median"), "`median`")
    if middle is None and not times:
        raise FormatError(f"The result of {command!r} holds no time.")
    draft.phases.append(
        Phase(
            name="run",
            time_s=middle if middle is not None else median(times or ()),
            statistic="median",
            samples_s=times,
        )
    )
    memory = numbers(result.get("memory_usage_byte"), "`memory_usage_byte`")
    if memory:
        draft.headline["peak_memory_bytes"] = size(max(memory), "`memory_usage_byte`")
    codes = result.get("exit_codes")
    failed = sum(code != 0 for code in codes) if isinstance(codes, list) else 0
    if failed:
        draft.notes.append(f"{failed} of {len(codes or ())} runs ended with an exit code other than 0")
    draft.host |= {
        f"{name}_s": value for name in ("user", "system") if (value := optional(result.get(name), f"`{name}`"))
    }
    return draft


hyperfine = Hyperfine()
