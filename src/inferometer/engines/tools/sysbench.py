"""sysbench's report of its tests of memory, files and CPUs.

Shape: akopytov/sysbench 1.0, src/tests/{memory,cpu,fileio}: a heading with the version, the test's options, then
"… MiB transferred (… MiB/sec)" of memory, "read, MiB/s:" and "written, MiB/s:" of files, "events per second:" of CPUs,
and "General statistics" with the total time.
"""

import re

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.engines.results.assemble import Draft, finish, moved
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import number

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


importer = Sysbench()
