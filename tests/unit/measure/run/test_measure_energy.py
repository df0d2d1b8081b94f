"""The energy of a language model's phases: in clean generations where they are long, repeated where they are short."""

import sys
from dataclasses import replace

import pytest

from fakes.fake_runtime import FakeClock, FakeRuntime, write_arrays, write_text
from fakes.powered_machine import PoweredMachine
from inferometer.core.errors import EngineError
from inferometer.core.profile import Environment
from inferometer.engines.base import Event, Target
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.arrays import measure_arrays
from inferometer.measure.run.energy import TextEnergy, _parts, with_energy
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.texts import measure_text
from inferometer.measure.spans.energy import energy_meter
from inferometer.understand.view.profiles import profile_card
from unit.hub.web.samples import decoder, network

ORDER = TextOrder(prompt=32, generate=11)


class Engine:
    """Reads a prompt at 40 W and makes each token at 20 W; the sensor is read between the two, as a thread would."""

    def __init__(self, machine, prefill_s, token_s, read=lambda: None, *, token_w=20.0, encode_s=None):
        self.clock, self.prefill_s, self.token_s, self.read = machine.clock, prefill_s, token_s, read
        self.token_w, self.encode_s = token_w, encode_s
        self.generations = 0

    def generate(self, order):
        self.generations += 1
        return tuple(self._events(order))

    def _events(self, order):
        if self.encode_s is not None:
            yield self._event("encode", self.encode_s, 40.0, 1)
        if self.prefill_s is not None:
            yield self._event("prefill", self.prefill_s, 40.0, order.prompt)
        self.read()
        for _ in range(order.generate - 1):
            yield self._event("token", self.token_s, self.token_w, 1)

    def _event(self, kind, seconds, watts, tokens):
        start = self.clock.now
        self.clock.draw(seconds, watts=watts)
        return Event(kind=kind, start_ns=start, end_ns=self.clock.now, tokens=tokens, context=0, ids=())


def energy_of(machine, engine, rounds=3):
    meter = replace(energy_meter(machine), clock_ns=machine.clock, sleep=machine.clock.rest, every_s=None)
    energy = TextEnergy(meter=meter.at_rest().for_unit("cpu"), order=ORDER)
    energy.generated(lambda: engine.generate(ORDER), counts=False)
    for _ in range(rounds):
        energy.generated(lambda: engine.generate(ORDER))
    return energy.finished(engine.generate)


def test_short_phases_are_repeated_and_told_apart_by_a_difference():
    machine = PoweredMachine()
    engine = Engine(machine, 0.01, 0.002)
    found = energy_of(machine, engine)
    assert found.joules == {"prefill": pytest.approx(0.4), "decode": pytest.approx(0.04)}
    assert engine.generations > 4
    assert found.facts.reason is None
    assert found.facts.idle_w == pytest.approx(10.0)


def test_long_tokens_are_measured_as_they_come_and_only_the_prompt_is_repeated():
    """Read at the ends alone, a constant power tells the same."""
    machine = PoweredMachine()
    engine = Engine(machine, 0.01, 0.1)
    found = energy_of(machine, engine)
    assert engine.generations == 1 + 3 + 25  # warm-up, the clean ones, and prompts for a quarter of a second
    assert found.joules["prefill"] == pytest.approx(0.4)
    assert found.joules["decode"] == pytest.approx(2.0, rel=0.02)
    assert found.facts.counts["decode"] == 30


def test_time_and_power_of_phases_told_apart_are_their_own():
    """The powers of 40 W and 20 W come out again; what warms up is no time of the measurement."""
    machine = PoweredMachine()
    engine = Engine(machine, 0.01, 0.002)
    meter = replace(energy_meter(machine), clock_ns=machine.clock, sleep=machine.clock.rest, every_s=None)
    energy = TextEnergy(meter=meter.at_rest().for_unit("cpu"), order=ORDER)
    for counts in (False, True, True):
        energy.generated(lambda: engine.generate(ORDER), counts=counts)
    assert energy.spent_s == pytest.approx(2 * (0.01 + 10 * 0.002))
    energy.finished(engine.generate)
    watts = {name: stretch.joules / stretch.seconds for name, stretch in energy.measured.items()}
    assert watts == {"prefill": pytest.approx(40.0), "decode": pytest.approx(20.0)}


def test_a_prompt_that_is_read_in_pieces_is_one_phase_and_tokens_begin_behind_its_last():
    def event(kind, start_ns, end_ns):
        return Event(kind=kind, start_ns=start_ns, end_ns=end_ns, tokens=2, context=0, ids=())

    events = (event("prefill", 5, 10), event("prefill", 12, 20), event("token", 25, 30), event("token", 31, 40))
    assert _parts(events) == {"prefill": (5, 20, 1), "decode": (20, 40, 4)}
    assert _parts(events[2:]) == {"decode": (25, 40, 4)}


def test_tokens_that_are_little_beside_their_prompt_get_no_number():
    machine = PoweredMachine()
    found = energy_of(machine, Engine(machine, 0.2, 0.001))
    assert "decode" not in found.joules
    assert "too little beside its prompt" in found.facts.reason
    assert found.joules["prefill"] == pytest.approx(8.0)


def test_generations_that_draw_less_than_their_prompts_alone_give_tokens_no_number():
    """As a sensor may say whose readings drift."""
    found = energy_of(machine := PoweredMachine(), Engine(machine, 0.01, 0.002, token_w=-1.0))
    assert (set(found.joules), found.joules["prefill"]) == ({"prefill"}, pytest.approx(0.4))
    assert "take too little energy beside its prompt" in found.facts.reason


def test_an_engine_that_tells_of_no_prompt_has_the_energy_of_its_tokens_alone():
    machine = PoweredMachine()
    engine = Engine(machine, None, 0.002)
    found = energy_of(machine, engine)
    assert found.joules == {"decode": pytest.approx(0.04)}
    assert engine.generations == 4 + 13, "the clean ones, and whole generations of 20 ms for a quarter of a second"


@pytest.mark.parametrize("token_s", [0.002, 0.1])
def test_of_a_model_with_an_encoder_no_energy_is_told(token_s):
    machine = PoweredMachine()
    engine = Engine(machine, 0.01, token_s, encode_s=0.5)
    found = energy_of(machine, engine)
    assert (found.joules, engine.generations) == ({}, 4)


def test_an_engine_that_fails_meanwhile_keeps_its_times():
    machine = PoweredMachine()
    engine = Engine(machine, 0.01, 0.002)
    meter = replace(energy_meter(machine), clock_ns=machine.clock, every_s=None).for_unit("cpu")
    energy = TextEnergy(meter=meter, order=ORDER)
    energy.generated(lambda: engine.generate(ORDER))

    def refuse(_):
        raise EngineError("no more")

    assert "no more" in energy.finished(refuse).facts.reason


def test_without_a_sensor_nothing_is_repeated():
    machine = PoweredMachine(readable=False)
    engine = Engine(machine, 0.01, 0.002)
    found = energy_of(machine, engine)
    assert (found.joules, engine.generations) == ({}, 4)
    assert "root only" in found.facts.reason


class Drawing(FakeClock):
    """The fake engine's clock: while it works, the machine draws 20 W."""

    def __init__(self, machine):
        self.machine = machine

    def __call__(self):
        return self.machine.clock.now * 1e-9

    def ns(self):
        return self.machine.clock.now

    def advance(self, seconds):
        self.machine.clock.draw(seconds, watts=20.0)


def told(monkeypatch, measure, order):
    """What the child tells of the energy of an order, on a machine with a counter."""
    machine, answers = PoweredMachine(), []
    meter = replace(energy_meter(machine), clock_ns=machine.clock, sleep=machine.clock.rest, every_s=None)
    monkeypatch.setattr(sys.modules[measure.__module__], "energy_meter", lambda _: meter)
    measure(order, FakeRuntime(clock=Drawing(machine)), lambda name, value: answers.append((name, value)))
    return [value for name, value in answers if name == "energy"]


def ordered(path, *text, **more):
    target = Target(path=path, format="fake", text=bool(text), context=64, sizes={"batch": 1})
    plan = Plan(warmup=1, runs=3, seconds=0.0, calls=1)
    return MeasureOrder(runtime="fake", target=target, plan=plan, text=text, guarded=False, shape=False, **more)


def test_the_child_measures_a_step(monkeypatch, tmp_path):
    path = write_arrays(tmp_path / "m.fake")
    [found] = told(monkeypatch, measure_arrays, ordered(path, energy=True))
    assert found.joules["forward"] == pytest.approx(2.1e-3 * 20.0)
    assert found.facts.idle_w == pytest.approx(10.0)
    assert told(monkeypatch, measure_arrays, ordered(path)) == []  # nobody asked


def test_the_child_measures_every_length(monkeypatch, tmp_path):
    path = write_text(tmp_path / "m.fake", context_s=0.0, sample_s=0.0)
    lengths = (TextOrder(prompt=8, generate=9), TextOrder(prompt=32, generate=9))
    found = told(monkeypatch, measure_text, ordered(path, *lengths, energy=True))
    assert [energy.order for energy in found] == list(lengths)
    layers_s = 2e-3
    for energy in found:
        assert energy.joules["prefill"] == pytest.approx(20.0 * (layers_s + 1e-4 * energy.order.prompt), rel=0.02)
        assert energy.joules["decode"] == pytest.approx(20.0 * layers_s, rel=0.02)


def test_a_request_is_its_prompt_and_each_token_after_the_first():
    machine = PoweredMachine()
    found = energy_of(machine, Engine(machine, 0.01, 0.002))
    text = decoder()
    text = replace(text, workload=replace(text.workload, generate=11), environment=Environment())
    profile = with_energy(text, [found], ORDER)
    assert profile.phase("decode").energy_j == pytest.approx(0.04)
    assert profile.summary.energy_j == pytest.approx(0.4 + 10 * 0.04)
    card = profile_card(profile)
    assert ("energy", "800 mJ", "a request, 40 mJ a token, 10 W at rest") in card.facts
    assert with_energy(text, [found], None) == text  # of another length
    half = replace(found, joules={"prefill": 0.4})
    assert with_energy(text, [half], ORDER).summary.energy_j is None
    assert with_energy(network(), [], None) == network()
