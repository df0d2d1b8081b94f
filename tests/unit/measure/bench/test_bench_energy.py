"""Long runs are measured in joules as they are collected, short ones afterwards, back to back."""

from dataclasses import replace

import pytest

from fakes.powered_machine import PoweredMachine
from inferometer.measure.bench.energy import MeteredSubject
from inferometer.measure.bench.guard import NoGuard
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.run import measure
from inferometer.measure.bench.subject import RunOutcome
from inferometer.measure.spans.energy import energy_meter
from inferometer.understand.view.measured import measurement_card


class Working:
    """Each run takes so long, and draws so much meanwhile."""

    name = "it"

    def __init__(self, machine, seconds, watts=30.0, *, calls=1):
        self.machine, self.seconds, self.watts, self.calls = machine, seconds, watts, calls
        self.runs = 0

    def run(self, *, watched=False):  # noqa: ARG002 - the seam's signature
        self.runs += 1
        self.machine.clock.draw(self.seconds * self.calls, watts=self.watts)
        return RunOutcome(seconds=self.seconds, calls=self.calls)

    def close(self):
        pass


def measured(machine, subject, runs=4):
    clock = machine.clock
    meter = replace(energy_meter(machine), clock_ns=clock, sleep=clock.rest, every_s=None)
    plan = Plan(runs=runs, seconds=0.0, warmup=2)
    seconds = lambda: clock.now * 1e-9  # noqa: E731 - the clock in the loop's unit
    return measure([subject], plan, guard=NoGuard(), meter=meter, clock=seconds, sleep=clock.rest)[0]


def test_long_runs_are_measured_as_they_are_collected():
    machine = PoweredMachine()
    subject = Working(machine, 0.5)
    found = measured(machine, subject)
    assert subject.runs == 2 + 4  # none more than without a meter
    assert found.energy_j == pytest.approx(15.0)
    assert (found.profile.summary.energy_j, found.profile.phases[0].energy_j) == (found.energy_j, found.energy_j)
    facts = found.profile.environment.energy
    assert (facts.idle_w, facts.counts["run"], facts.window_s["run"]) == (pytest.approx(10.0), 4, pytest.approx(2.0))


def test_short_runs_are_repeated_for_as_long_as_the_sensor_needs():
    machine = PoweredMachine()
    subject = Working(machine, 1e-3, calls=10)
    found = measured(machine, subject)
    assert found.energy_j == pytest.approx(0.03)  # of one call
    assert found.environment.energy.counts["run"] == 250
    assert len(found.samples_s) == 4  # the times are those of the loop alone


def test_a_slow_sensor_gives_no_number_but_the_reason():
    machine = PoweredMachine(battery="Discharging", readable=False)
    subject = Working(machine, 1e-3)
    found = measured(machine, subject)
    assert found.energy_j is None
    assert "battery BAT0 changes only every 2 s" in found.environment.energy.reason
    assert subject.runs == 6


def test_without_a_sensor_the_card_says_so_once_in_its_small_print():
    machine = PoweredMachine(readable=False)
    found = measured(machine, Working(machine, 1e-3))
    card = measurement_card(found)
    assert [note for note in card.sources if "Energy is not measured" in note] == list(card.sources)
    assert not any(label == "energy" for label, *_ in card.facts)
    assert found.environment.reasons == ()  # no warning


def test_the_card_shows_joules_beside_the_draw_at_rest():
    machine = PoweredMachine()
    card = measurement_card(measured(machine, Working(machine, 0.5)))
    assert ("energy", "15 J", "a run, 10 W at rest") in card.facts
    assert card.sources == (
        "Energy is of CPU package (rapl package-0) and includes the draw at rest; measured over 2 s of run.",
    )


def test_a_gpu_counts_for_a_command_that_kept_it_busy():
    machine = PoweredMachine(gpu=True)
    subject = Working(machine, 2.0)
    subject.run = lambda **_: machine.clock.draw(2.0, watts=30.0, gpu_watts=300.0) or RunOutcome(seconds=2.0)
    assert measured(machine, subject).energy_j == pytest.approx(660.0)


def test_a_run_that_fails_meanwhile_costs_only_its_energy():
    machine = PoweredMachine()
    subject = Working(machine, 1e-3)
    meter = replace(energy_meter(machine), clock_ns=machine.clock, sleep=machine.clock.rest, every_s=None)
    metered = MeteredSubject(subject=subject, meter=meter)
    metered.run()
    subject.run = lambda **_: RunOutcome(seconds=None, error="no")
    found = metered.energy("run")
    assert found.energy_j is None
    assert "failed" in found.facts.reason
