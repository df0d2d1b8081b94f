"""Small sweeps for the tests."""

from functools import cache

from inferometer.formats.resolve import read
from inferometer.known import device as device_named
from inferometer.predict.sweep import study_of


@cache
def graph(name="llama-3.2-1b"):
    return read(name)


@cache
def device(name="nvidia-h200"):
    return device_named(name)


def small(*, models=("llama-3.2-1b",), devices=("nvidia-h200", "nvidia-l4"), chunk_rows=1 << 16, options=None, **axes):
    """Two devices, two formats, 2 × 3 × 2 sizes: 48 rows, eight of them beyond the model's window."""
    sizes = {"batch": [1, 8], "prompt": [16, 512, 2048], "context": [100, 200_000]}
    asked = {"runtimes": "ideal", "weights": ["bf16", "q4_0"], **sizes, **axes}  # one that refuses those rows
    named = {"models": [graph(name) for name in models], "devices": [device(name) for name in devices]}
    return study_of({**named, **asked}, chunk_rows=chunk_rows, options=options)
