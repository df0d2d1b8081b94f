"""Numbers at which an answer changes, each from both sides."""

import pytest

from inferometer.core.errors import DomainError
from inferometer.known import engines
from inferometer.known.engines import scheduler_of
from inferometer.known.machine.detect.linux import parse_cpuinfo, parse_meminfo
from inferometer.known.machine.health.check import grade


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.9, "good"), (1.0, "warn"), (1.9, "warn"), (2.0, "bad"), (3.0, "bad"), (-1.0, "good")]
)
def test_a_number_that_should_be_small_is_graded_from_its_limits_on(value, verdict):
    assert grade(value, warn_at=1.0, bad_at=2.0) == verdict


def test_blocks_of_cpuinfo_without_a_number_are_the_boards():
    text = "processor : 0\nmodel : a\n\nprocessor : 3\nmodel : b\n\nprocessor : -1\nRevision : r\n\nHardware : h\n"
    found = parse_cpuinfo(text)
    assert {index: block["model"] for index, block in found.cpus.items()} == {0: "a", 3: "b"}
    assert (found.board["Revision"], found.board["Hardware"]) == ("r", "h")


def test_sizes_of_meminfo_are_bytes_and_what_is_none_is_left_out():
    text = "MemTotal: 16 kB\nHugePages_Total: none\nSwapFree: 0 kB\n"
    assert parse_meminfo(text) == {"MemTotal": 16 * 1024, "SwapFree": 0}


class Rules:
    def __init__(self, engine, since):
        self.engine, self.since = engine, since


@pytest.mark.parametrize(
    ("engine", "version", "since"),
    [
        ("a", None, "0.10"), ("a", "0.10", "0.10"), ("a", "0.9.5", "0.9"), ("a", "0.9", "0.9"), ("a", "0.8", "0.9"),
        ("a", "1.0", "0.10"), ("b", None, "0.1"), ("b", "0.5", "0.1"),
    ],
)  # fmt: skip
def test_rules_are_those_of_the_newest_version_that_is_not_newer(monkeypatch, engine, version, since):
    known = [Rules("b", "0.1"), Rules("a", "0.10"), Rules("a", "0.9")]
    monkeypatch.setattr(engines, "schedulers", lambda: {str(place): rules for place, rules in enumerate(known)})
    found = scheduler_of(engine, version)
    assert (found.engine, found.since) == (engine, since)
    with pytest.raises(DomainError, match="scheduler of c"):
        scheduler_of("c")
