"""Everything that is detected and checked on each recorded machine (tests/data/hosts), fact by fact.

`hosts_told.json` has it: `python tests/unit/known/test_hosts_told.py` writes it anew (with src and tests on the
path). Read the difference beside the machine's own files: a fact that moved shows there. Each machine is examined twice
two seconds apart with the same counters.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest

from fakes.recorded_machine import load_machine
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.identity import machine_facts
from inferometer.known.machine.health import judge, take
from inferometer.known.machine.local import device_of_host

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
NAMES = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())
TOLD = Path(__file__).parent / "hosts_told.json"


def shortened(value):
    """Without what is not known, which is most of it."""
    if isinstance(value, dict):
        return {str(key): shortened(part) for key, part in value.items() if part not in (None, (), [], {})}
    return [shortened(part) for part in value] if isinstance(value, list | tuple) else value


def written(name):
    machine = load_machine(HOSTS / name)
    host = detect_host(machine)
    times = iter([0.0, 2.0])
    readings = take(machine, host, sleep=lambda _: None, clock=lambda: next(times), calls=lambda: 1e-6)
    found = {
        "host": asdict(host),
        "facts": asdict(machine_facts(machine, host)),
        "device": asdict(device_of_host(host, date="2026-01-01")),
        "checks": {check.code: [check.verdict, check.found, check.numbers] for check in judge(readings)},
    }
    return json.loads(msgspec.json.encode(shortened(found)))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_machine_is_as_it_was_read(name):
    found, told = written(name), json.loads(TOLD.read_text(encoding="utf-8"))[name]
    for part, facts in told.items():
        assert found[part] == facts, part


def test_who_moves_to_another_machine_moves_with_its_counters():
    """The same machine twice has the same facts, and another id by another number alone."""
    machine = load_machine(HOSTS / "raspberry-pi-5")
    facts = machine_facts(machine, detect_host(machine))
    other = replace(machine, files={**machine.files, "/etc/machine-id": "0123456789abcdef0123456789abcdef\n"})
    again = machine_facts(other, detect_host(other))
    assert facts == machine_facts(machine, detect_host(machine))
    assert again.id != facts.id
    assert replace(again, id=facts.id) == facts


if __name__ == "__main__":
    rows = (f" {json.dumps(name)}: {json.dumps(written(name), ensure_ascii=False)}" for name in NAMES)
    TOLD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
