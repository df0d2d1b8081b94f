"""Devices with round numbers."""

import sys

import pytest

from inferometer.core import Device, Link, Memory, Sourced
from inferometer.core.kept import Kept
from inferometer.predict.basis.engine_tables import calibrating
from inferometer.predict.price import deviations


def stated(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026")


WIRE = Link(
    name="wire", title="A wire", kind="test", bandwidth_bytes_per_s=stated(100e9), latency_s=stated(1e-6)
)  # fmt: skip


def machine(**given):
    """1 TFLOP/s in bf16, 0.5 in f32, 100 GB/s, 16 GB, 100 W: a GPU."""
    values = {
        "name": "machine", "title": "A machine", "vendor": "nobody", "unit": "gpu", "kind": "server",
        "peaks": {"bf16": stated(1e12), "f32": stated(0.5e12)},
        "memories": (Memory(level="dram", capacity_bytes=stated(16e9), bandwidth_bytes_per_s=stated(100e9)),),
        "host_link": Link(name="bus", title="A bus", kind="test", bandwidth_bytes_per_s=stated(10e9)),
        "peer_link": WIRE, "power_w": stated(100.0),
    }  # fmt: skip
    return Device(**values | given)


MACHINE = machine()


def with_cache(capacity, bandwidth=None):
    """The machine with a cache beside its memory."""
    cache = Memory(
        level="l2",
        capacity_bytes=stated(capacity),
        bandwidth_bytes_per_s=None if bandwidth is None else stated(bandwidth),
    )
    return machine(memories=(*MACHINE.memories, cache))


@pytest.fixture(autouse=True)
def without_fit(monkeypatch):
    """Prices by the class priors alone: what a fit says of published steps changes with every table that joins it."""
    nothing = deviations.Deviations(made="", base={}, covered={}, levels={}, variances={})
    monkeypatch.setattr(deviations, "known_deviations", lambda **_: nothing)
    deviations._fitted.cache_clear()
    yield
    deviations._fitted.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def priors_alone():
    """As `without_fit`, for devices of the catalog, and serving engines by the forms of their kernels.

    What was answered of such devices before, by fits and tables, is forgotten; so is what is answered here.
    """
    with pytest.MonkeyPatch.context() as patch:
        take_fits_away(patch.setattr)
        yield
    forget_answers()


def take_fits_away(put=setattr):
    nothing = deviations.Deviations(made="", base={}, covered={}, levels={}, variances={})
    put(deviations, "known_deviations", lambda **_: nothing)
    put(calibrating, "tables_folder", lambda: None)
    forget_answers()


def forget_answers():
    """Empty whatever of ours keeps what was worked out before."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(("inferometer.predict", "inferometer.serving", "inferometer.hub")):
            for value in vars(module).values():
                if isinstance(value, Kept):
                    value._entries.clear()
                    value._weight = 0
                elif hasattr(value, "cache_clear"):
                    value.cache_clear()
