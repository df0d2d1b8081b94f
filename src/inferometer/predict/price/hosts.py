"""The host that starts a GPU's kernels: how fast it is, over the one that the prices were measured on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.calibration import Calibration
    from inferometer.predict.options import Options
    from inferometer.predict.price.step import StepPrice

# Compiled prompts of six models on hosts of 0.73 to 1.94 µs a call: a host whose calls take twice as long, mostly since
# another has the other half of its core, launches in 1.4 times the time.
_LAUNCHES_FOLLOW = 0.5
# The same host, quiet, takes so long for a call and for a small module of eager PyTorch: on an H200's in eight quiet
# profiles. What twelve eager decoders took followed the module's time, read between their runs, from 15 to 31 µs.
_QUIET_CALL_S, _QUIET_MODULE_S = 0.75e-6, 14.8e-6
# Standard deviation of the logarithm of a step that waits for a host that was read while the model ran: eager decoders
# and networks of two runs on an H200 with 26 models, the middle half of them within 5 %.
_READ_SPREAD = 0.09
# A forward of a network is short, and has few kinds of module: eight in ten of 34 such profiles lie within 0.19 of a
# logarithm, where 75 prompts and steps of decoders lie within 0.11.
FORWARD_DOUBT = 1.6
WORTH_SAYING = 0.05  # of a step: waiting for less changes little


def host_speed_of(options: Options, calibration: Calibration | None) -> float:
    """1 where nothing is said of the host. A figure of a host can be compared only with the figure of another."""
    if options.host_speed is not None:
        return options.host_speed
    if options.host_call_s is None:
        return 1.0
    if calibration is None or calibration.host_call_s is None:
        what = (
            "priors come from" if calibration is None else f"the calibration of {calibration.created[:10]} was made on"
        )
        raise DomainError(
            f"How fast the host is that {what} was not recorded, so one of "
            f"{format_quantity(options.host_call_s, 's', digits=3)} a call cannot be compared with it.",
            remedy="Give a ratio, such as --host-speed 0.8 for a slower host, or calibrate on that host.",
        )
    # Seconds over seconds: a host that takes longer for a call than the calibrated one is slower than 1.
    return float((calibration.host_call_s / options.host_call_s) ** _LAUNCHES_FOLLOW)


def host_spread_of(options: Options) -> float | None:
    """How far a step that waits for a host of the speed asked for may be off; None where its speed is not known."""
    return None if options.host_speed is None else _READ_SPREAD


def speed_by_module(module_s: float, calibrated_call_s: float) -> float:
    """How fast a host is over the calibrated one, by what it took for a small module while the model ran.

    A kernel of a model takes as many such modules whatever slows the host, others on its core among it.
    """
    calibrated_module_s = _QUIET_MODULE_S * (calibrated_call_s / _QUIET_CALL_S) ** _LAUNCHES_FOLLOW
    return float(f"{calibrated_module_s / module_s:.3g}")


def waits_for_host(step: StepPrice) -> bool:
    """Whether the device waits for its host for a share of the step that is worth saying."""
    if isinstance(step.host_s, float):
        return False
    # An op of a block that runs thirty times waits thirty times.
    return bool((step.counts[:, None] * step.host_s).sum() > WORTH_SAYING * step.total("time_s").sum())


def host_note(phases: Iterable[str], options: Options, calibration: Calibration | None) -> str:
    """Which host an answer assumes, where phases wait for it."""
    named = " and ".join(phases)
    waits = f"{named} {'wait' if ' and ' in named else 'waits'} for the host to start kernels"
    if options.host_speed is not None:
        return f"{waits}; it is taken as {options.host_speed:g} times as fast as the one that was measured."
    if options.host_call_s is not None:
        return f"{waits}; it is taken as one of {format_quantity(options.host_call_s, 's', digits=3)} a call."
    if calibration is None:
        whose = "a usual server is assumed"
    else:
        figure = calibration.host_call_s
        known = "" if figure is None else f" ({format_quantity(figure, 's', digits=3)} a call)"
        whose = f"the one that was calibrated on {calibration.created[:10]}{known} is assumed"
    return f"{waits}; {whose}. On another host, give --host-speed: `inferometer doctor` reads it."
