"""How long the command line takes to answer, against a bare interpreter in the same run, and detecting this machine."""

import sys
from pathlib import Path

from figure import Figure, call_seconds, command_seconds

from inferometer.known.machine.detect import LocalMachine, detect_host

COMMAND = str(Path(sys.executable).with_name("inferometer"))


class Deaf(LocalMachine):
    """Files only: what drivers' programs take is theirs."""

    def run(self, *_):
        return None

    def module(self, _):
        return None


def figures():
    bare, page, listing, formulas, calculation = command_seconds(
        [sys.executable, "-c", "pass"],
        [COMMAND, "--help"],
        [COMMAND, "devices"],
        [COMMAND, "formulas"],
        [COMMAND, "formulas", "calc", "power", "energy=6000", "time=60"],
    )
    ratio = page / bare
    yield Figure(
        name="help_over_bare_python",
        value=ratio,
        unit="×",
        target="≤ 5",
        met=ratio <= 5,
        note=f"{page * 1e3:.1f} ms over {bare * 1e3:.1f} ms",
    )
    yield Figure(name="devices_command", value=listing, unit="s", target="≤ 0.3", met=listing <= 0.3)
    yield Figure(name="formulas_command", value=formulas, unit="s", target="none", met=True)
    yield Figure(name="formulas_calc_command", value=calculation, unit="s", target="none", met=True)
    detecting = call_seconds(lambda: detect_host(Deaf()))
    yield Figure(name="detecting_this_machine", value=detecting, unit="s", target="≤ 0.15", met=detecting <= 0.15)
