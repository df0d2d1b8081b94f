"""A run is read on another machine with the same numbers, findings and words as on its own."""

import json
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fakes.recorded_machine import load_machine
from inferometer.api import explained
from inferometer.core.codec import decode, encode
from inferometer.core.device import Roof, Sourced
from inferometer.core.errors import DomainError
from inferometer.core.profile import Profile, Run
from inferometer.hub.web.downloads import one_file
from inferometer.known.machine.detect import LocalMachine, detect_host, identity
from inferometer.known.machine.detect.identity import machine_facts
from inferometer.known.machine.local import device_of_host
from inferometer.understand.explanation import explanation_document
from inferometer.understand.judging import judge_profile
from inferometer.understand.trying import require_ours
from inferometer.understand.view.explanations import explanation_page
from inferometer.understand.view.exports import markdown
from inferometer.understand.view.profiles import profile_card
from inferometer.understand.view.terminal import draw_card
from unit.understand.explain_cases import threads

HOSTS = Path(__file__).parents[2] / "data" / "hosts"


def made_on(name, *, used):
    """A run with that many threads, judged on the recorded machine."""
    machine = replace(load_machine(HOSTS / name), node=name)
    host = detect_host(machine)
    facts, rate = (
        machine_facts(machine, host),
        Sourced(value=1e11, origin="measured", source="numpy", date="2026-01-01"),
    )
    device = device_of_host(host, date="2026-01-01")
    roof = Roof(machine=facts.id, created="2026-01-01", peaks={"f32": rate}, bandwidth_bytes_per_s=rate)
    measured = threads(used)
    environment = replace(measured.environment, machine=facts, host={})
    run = replace(measured, environment=environment, device=replace(measured.device, name="local", title=facts.cpu))
    judged, _ = judge_profile(run, device, roof=roof)
    return judged


def all_words(profile):
    """Everything that is said about a run."""
    run = Run(id="0123456789ab", project="p", status="finished", created="2026-01-01T00:00:00", profile=profile)
    plain = explanation_document(explained(profile))
    return "\n".join((
        json.dumps(plain), explanation_page(plain, "md"), markdown(profile), draw_card(profile_card(profile)),
        one_file(run, profile),
    ))  # fmt: skip


@pytest.fixture
def elsewhere(monkeypatch):
    """A reader's machine that may not be looked at."""

    def refuse(*_, **__):
        raise AssertionError("the reader's machine was asked")

    def move():
        for name in ("read", "names", "run", "which", "affinity", "module"):
            monkeypatch.setattr(LocalMachine, name, refuse)
        monkeypatch.setattr(os, "cpu_count", refuse)
        monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
        for name in ("cpu_count", "virtual_memory", "getloadavg"):
            monkeypatch.setattr(psutil, name, refuse)
        monkeypatch.setattr(identity, "_detected", refuse)

    return move


@pytest.mark.parametrize(("name", "used"), [("workstation-rtx4090", 64), ("raspberry-pi-5", 1)])
def test_the_same_words_are_said_wherever_it_is_read(elsewhere, name, used):
    profile = made_on(name, used=used)
    assert profile.findings  # so many threads, or so few, are worth a finding
    there = all_words(profile)
    elsewhere()
    assert all_words(decode(encode(profile), Profile)) == there


def test_threads_are_counted_on_the_machines_own_cpus():
    [finding] = [one for one in made_on("workstation-rtx4090", used=64).findings if one.code == "threads.too-many"]
    assert "16 CPUs" in finding.title
    assert made_on("raspberry-pi-5", used=64).environment.machine.logical_cores == 4


def test_local_is_not_the_readers_machine(monkeypatch):
    profile = made_on("raspberry-pi-5", used=64)
    asked = explained(profile, on="local")
    assert asked.findings == profile.findings
    assert "made on raspberry-pi-5" in asked.notes[0]
    with pytest.raises(DomainError, match="another machine, raspberry-pi-5"):
        require_ours(profile)
    monkeypatch.setattr(identity, "_detected", lambda: profile.environment.machine)
    require_ours(profile)  # its own machine tries it
