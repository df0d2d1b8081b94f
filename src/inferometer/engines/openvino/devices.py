"""Devices and precisions as OpenVINO names them, and its exceptions in our sentences."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.engines.base import Target, guard, op_named

_UNITS = {"cpu": "CPU", "gpu": "GPU", "npu": "NPU"}
_CHOOSERS = ("AUTO", "MULTI", "HETERO", "BATCH")  # always there: they divide work among the others


def choose_device(target: Target, available: Sequence[str]) -> str:
    """The device's name: what was named, or the first of the kind asked for, or the CPU."""
    if target.providers:
        name = ",".join(target.providers).upper()
        parts = [part for part in name.replace(":", ",").split(",") if part]
        for part in parts:
            if part not in _CHOOSERS and not _present(part, available):
                raise UnknownNameError("OpenVINO device", part, available, listing=f"Here: {', '.join(available)}.")
        return name
    kind, _, index = (target.unit or "cpu").partition(":")
    if kind not in _UNITS:
        raise UnknownNameError("kind of unit", kind, _UNITS, listing=f"Known: {', '.join(_UNITS)}.")
    if index and not index.isdecimal():
        raise DomainError(f"The unit {target.unit!r} must be a kind and a number, as in gpu:1.")
    name = _UNITS[kind] + (f".{index}" if index else "")
    if not _present(name, available):
        raise EngineError(
            f"OpenVINO was asked to run on {target.unit!r}, and finds here only {', '.join(available)}.",
            remedy="Install the driver of the device, or choose another unit.",
        )
    return name


def _present(name: str, available: Sequence[str]) -> bool:
    """`GPU` is there where `GPU.0` is, and the other way round."""
    return any(name in {there, there.partition(".")[0], f"{there}.0"} for there in available)


def unit_of(device: str) -> str:
    kind = device.partition(".")[0].casefold()
    return kind if kind in _UNITS else "cpu"


def precision_hint(asked: str | None, *, all_f32: bool) -> str | None:
    """f32 for models in f32, since the engine's own choice may be f16 or bf16; None leaves it to the engine."""
    return asked or ("f32" if all_f32 else None)


def placement_note(asked: str, got: Sequence[str]) -> tuple[str, ...]:
    """Where it runs elsewhere than it was asked to, or the choice was left to the engine."""
    names = ", ".join(got)
    kinds = {part.partition(".")[0] for part in got}
    if asked.partition(":")[0] in _CHOOSERS:
        return (f"{asked} was asked for; the engine chose {names}.",)
    if got and asked.partition(".")[0] not in kinds:
        return (f"{asked} was asked for, and the engine runs on {names}.",)
    return ()


# The engine's exceptions in our sentences, shortened to what they say.

_NOISE = re.compile(r"^(Exception from |Check '.*' failed at |FrontEnd API failed with |Summary:|Model wasn't fully)")
_OPS = (
    re.compile(r"No conversion rule found for operations: (?P<op>[\w.:-]+)"),
    re.compile(r"ONNX node '<Node\((?P<op>\w+)\): (?P<node>[^>]*)>'"),
    re.compile(r"Conversion is failed for: (?P<op>[\w.]+)"),
    re.compile(r"operation of type (?P<op>\w+) name (?P<node>\S+)"),
    re.compile(r"node '?(?P<op>opset\d+::\w+) (?P<node>[^ ']+)"),
)


def engine_words(text: str) -> str:
    """Without the engine's own file names, on one line."""
    lines = (line.strip().removeprefix("-- ") for line in text.splitlines())
    kept = [line for line in lines if line and not _NOISE.match(line)]
    return " ".join(kept) or " ".join(text.split()) or "no reason given"


def fault_of(path: Path, doing: str, error: Exception) -> EngineError:
    words = engine_words(str(error))
    op = op_named(words, _OPS, which=0)  # it lists all that went wrong
    about = f" at {op}" if op else ""
    return EngineError(
        f"OpenVINO {doing} {str(path)!r}{about}: {words.rstrip('.')}.",
        remedy="Check that the file is whole and its operators are among those OpenVINO supports.",
    )


guarded = partial(guard, fault_of)
