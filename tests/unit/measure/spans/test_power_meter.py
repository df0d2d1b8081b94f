"""Meters that the user names: plugs in every maker's JSON, and logs whose clock is right, off, or moving."""

from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from fakes.powered_machine import PoweredMachine
from inferometer.core.errors import DomainError
from inferometer.measure.spans.energy import EnergyMeter, energy_meter
from inferometer.measure.spans.power_meter import MeterLog, named_meter, plug_watts
from inferometer.measure.spans.sensors import Sensors

EPOCH = 1_790_000_000.0


@pytest.mark.parametrize(
    "answer",
    [
        {"id": 0, "output": True, "apower": 12.5, "voltage": 230.1, "aenergy": {"total": 100.0}},  # Switch.GetStatus
        {"switch:0": {"id": 0, "apower": 12.5}},  # Shelly.GetStatus
        {"em1:0": {"act_power": 12.5}},
        {"power": 12.5, "is_valid": True, "total": 4711},  # /meter/0 of the first generation
        {"meters": [{"power": 12.5}], "relays": [{"ison": True}]},
        {"StatusSNS": {"Time": "2026-11-18T01:00:00", "ENERGY": {"Total": 3.185, "Power": 12.5}}},  # Tasmota's Status 8
        {"power_w": 12.5},
    ],
)
def test_the_watts_are_found_wherever_a_maker_puts_them(answer):
    assert plug_watts(answer) == 12.5


@pytest.mark.parametrize("answer", [{"power": True}, {"Power": "on"}, {"output": False}, [], "12", {"meters": []}])
def test_what_is_no_number_is_no_power(answer):
    assert plug_watts(answer) is None


@pytest.fixture
def plug():
    """A plug on this machine that says whatever the test puts into `answers`, the last for ever."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            text = answers[0] if len(answers) == 1 else answers.pop(0)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    answers = ['{"apower": 40.0}']
    server = HTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/rpc/Switch.GetStatus?id=0", answers
    server.shutdown()
    server.server_close()


def test_a_plug_counts_alone_and_is_waited_for(plug, monkeypatch):
    url, _ = plug
    monkeypatch.setenv("INFEROMETER_POWER_METER", url)
    machine = PoweredMachine(gpu=True)
    meter = replace(energy_meter(machine), clock_ns=machine.clock, sleep=machine.clock.rest, every_s=None).at_rest()
    assert [(channel.name, channel.covers) for channel in meter.channels] == [("plug", "whole machine")]
    assert (meter.least_s, meter.too_slow(1.0)) == (10.0, None)
    _, window = meter.over(lambda: machine.clock.draw(10.0))
    assert window.joules() == pytest.approx(400.0)


@pytest.mark.parametrize("text", ['{"output": true}', "no JSON", "[" * 100_000])
def test_a_plug_that_says_no_watts_is_refused_with_what_to_ask_it(plug, text):
    url, answers = plug
    answers[:] = [text]
    with pytest.raises(DomainError, match="does not answer with watts") as raised:
        named_meter(url)
    assert "Switch.GetStatus" in raised.value.remedy


def test_a_plug_that_is_not_there_is_refused():
    with pytest.raises(DomainError, match="does not answer"):
        named_meter("http://127.0.0.1:9/")


class Meter:
    """Writes a row each second of a clock that moves when told. Its own clock is `offset` off, and gains by `rate`."""

    def __init__(self, path, *, offset=0.0, rate=0.0, header="time,power_w", row="{at:.3f},{watts}"):
        self.path, self.offset, self.rate, self.row = path, offset, rate, row
        self.now, self.written, self.watts, self.silent = 0.0, 0, 20, False
        path.write_text(f"{header}\n")
        self.pass_s(5.0)

    def pass_s(self, seconds):
        self.now += seconds
        while self.written < self.now:
            at = EPOCH + self.written + self.offset + self.rate * self.written
            if not self.silent:
                with self.path.open("a") as file:
                    file.write(self.row.format(at=at, watts=self.watts, volts=self.watts / 5, amperes=5.0) + "\n")
            self.written += 1

    def log(self):
        return MeterLog(
            self.path, wall_s=lambda: EPOCH + self.now, clock_ns=lambda: round(self.now * 1e9), sleep=self.pass_s
        )

    def meter(self):
        channel = self.log().channel()
        sensors = Sensors(channels=(channel,), missing={}, close=lambda: None)
        clock = lambda: round(self.now * 1e9)  # noqa: E731 - one line
        return EnergyMeter(sensors=sensors, channels=(channel,), clock_ns=clock, sleep=self.pass_s, every_s=None)

    def work(self, seconds=20.0, watts=100):
        self.watts = watts
        self.pass_s(seconds)
        self.watts = 20


@pytest.mark.parametrize("offset", [0.0, -37.0, 4000.0])
def test_a_log_is_read_by_its_own_clock_and_one_that_is_off_is_corrected_and_told(tmp_path, offset):
    logger = Meter(tmp_path / "meter.csv", offset=offset)
    meter = logger.meter().at_rest()
    _, window = meter.over(logger.work)
    assert window.joules() == pytest.approx(2000.0, rel=0.1)  # one row of 20 at either end
    assert meter.idle_w() == pytest.approx(20.0)
    covers = meter.facts({}).sensors[0].covers
    assert ("was corrected" in covers) == bool(offset)
    assert not offset or ("behind" if offset < 0 else "ahead of") in covers


def test_a_meter_whose_clock_drifts_is_refused_and_says_so(tmp_path):
    logger = Meter(tmp_path / "meter.csv", rate=-0.2)
    meter = logger.meter()
    _, window = meter.over(logger.work)
    assert window.joules() is None
    assert "moved" in meter.trouble
    assert "time server" in meter.trouble


def test_a_hole_in_a_log_is_no_power(tmp_path):
    logger = Meter(tmp_path / "meter.csv")
    meter = logger.meter()

    def with_a_hole():
        logger.work(3.0)
        logger.silent = True
        logger.work(10.0)
        logger.silent = False

    _, window = meter.over(with_a_hole)
    assert window.joules() is None
    assert "has a hole of 11 s" in meter.trouble


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Timestamp,Power [mW],note", "{at:.3f},{watts}000,fine"),
        ("epoch,Volts,Amps", "{at:.3f},{volts},{amperes}"),
        ("time,watts", "{at:.0f}000,{watts}"),  # milliseconds
    ],
)
def test_columns_and_units_are_read_as_they_are_named(tmp_path, header, row):
    logger = Meter(tmp_path / "meter.csv", header=header, row=row)
    assert logger.log().channel().read() == pytest.approx(20.0)


def test_a_row_that_is_half_written_or_garbage_is_left_out(tmp_path):
    logger = Meter(tmp_path / "meter.csv")
    with logger.path.open("a") as file:
        file.write("garbage\n1,2,3\n2026-13-45T99:00,4\n")
    log = logger.log()
    with logger.path.open("a") as file:
        file.write(f"{EPOCH + 9},9")
    assert log.channel().read() == 20.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "has the columns a, b"),
        ("time,watts\n", "has 0 rows"),
        ("time,watts\n1790000002,1\n1790000001,1\n", "go back"),
        ("time,watts\n1790000001,1\n1790000002,1\n", "does not grow"),
    ],
)
def test_a_log_that_is_none_is_refused_in_a_sentence(tmp_path, text, words):
    path = tmp_path / "meter.csv"
    path.write_text(text)
    with pytest.raises(DomainError, match=words):
        MeterLog(path, sleep=lambda _: None)


def test_a_log_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DomainError, match="cannot be read"):
        named_meter(str(tmp_path / "nowhere.csv"))
