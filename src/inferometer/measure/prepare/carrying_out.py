"""One step carried out: in a child, into a folder of its own, kept by the content of what went in.

The cache is a folder for each result, named by a hash of the model's files, the step, its tool's version, our own code
that calls the tool, and what it was told. It is complete or absent: a step works in a folder beside it, which takes the
name when all is well and is removed when not, whatever ended it.
"""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from inferometer.core.cache import is_kept
from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity
from inferometer.engines.order import ToolAnswer, ToolOrder
from inferometer.formats.resolve import read
from inferometer.formats.synth.files import require_room
from inferometer.formats.trust import door
from inferometer.measure.prepare.child import ENGINES
from inferometer.measure.prepare.steps import COMPANIONS, COMPILED, SUFFIXES, PrepareStep, require_tool
from inferometer.measure.run.room import available_bytes
from inferometer.version import __version__

Tools = Callable[[PrepareStep, ToolOrder, Path, float], ToolAnswer]

_CHUNK = 1 << 20
_NAME = "model"
_TIMES_IN_MEMORY = 2.5  # of the weights: what a converter holds at once is the model twice, and its own tables
_LOG_LINES = 4


@frozen
class Made:
    """What a step left: a file that opens, the files it consists of, and what the tool said."""

    path: Path
    bytes: int
    seconds: float
    cached: bool
    notes: tuple[str, ...] = ()


def model_files(path: Path) -> tuple[Path, ...]:
    """All files of a model: a folder's, or the file with those beside it that hold its weights."""
    if path.is_dir():
        return tuple(sorted(member for member in path.iterdir() if member.is_file()))
    beside = [path.with_suffix(".bin")] if path.suffix in {".xml", ".param"} else []
    return (path, *(other for other in [*beside, *_external(path)] if other.is_file()))


def _external(path: Path) -> list[Path]:
    """An ONNX file's weights in files of their own."""
    if path.suffix != ".onnx":
        return []
    data = read(str(path)).metadata.get("external_data", {})
    return [path.parent / name for name in data.get("files", ())]


def content_hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
    return digest.hexdigest()


def carry_out(
    step: PrepareStep, order: ToolOrder, folder: Path, *, seconds_at_most: float = 3600.0, tools: Tools | None = None
) -> Made:
    """The step's result, from the cache in `folder` if it was made of the same content before.

    `tools` runs the tool in place of a child of its own, for who has many small orders.
    """
    require_tool(step)
    sources = model_files(order.source)
    size = sum(path.stat().st_size for path in sources)
    place = folder / _key(step, order, sources)
    name = _name(step)
    if is_kept(place / "step.json"):
        _remember(step, place / name)
        known = json.loads((place / "step.json").read_text(encoding="utf-8"))
        return Made(
            path=place / name, bytes=_size(place, step), seconds=known["seconds"], cached=True,
            notes=tuple(known["notes"]),
        )  # fmt: skip
    _require_memory(step, size)
    require_room(folder, 2 * size)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder, ignore_cleanup_errors=True) as made:
        begun = time.monotonic()
        inside = Path(made) / "out"
        inside.mkdir()
        told = replace(order, target=inside / name)
        answer = (tools or _child)(step, told, Path(made), seconds_at_most)
        if answer.error is not None:
            words = f"The step {step.name} ({step.tool}) failed. {_sentence(answer.error)}"
            raise FormatError(words, remedy=answer.remedy)
        seconds = time.monotonic() - begun
        if not told.target.exists():
            raise EngineError(f"The step {step.name} ended well, but {step.tool} left no {name}.")
        known = {"step": step.name, "seconds": seconds, "notes": list(answer.notes)}
        (inside / "step.json").write_text(json.dumps(known), encoding="utf-8")
        with suppress(OSError):  # another process made the same meanwhile: its result is as good
            inside.replace(place)
    _remember(step, place / name)
    return Made(path=place / name, bytes=_size(place, step), seconds=seconds, cached=False, notes=answer.notes)


def _remember(step: PrepareStep, path: Path) -> None:
    """Native code of our own making is opened later without asking; code from elsewhere is not."""
    if step.gives in COMPILED:
        with suppress(OSError):  # a data folder that nobody may write to: then it must be trusted by name
            door.remember(path)


def _name(step: PrepareStep) -> str:
    """Of the file, or of the folder where the format is one."""
    return f"{_NAME}{SUFFIXES.get(step.gives, '')}"


def _size(place: Path, step: PrepareStep) -> int:
    main = place / _name(step)
    if main.is_dir():
        return sum(path.stat().st_size for path in model_files(main))
    beside = [main.with_suffix(COMPANIONS[step.gives])] if step.gives in COMPANIONS else []
    return sum(path.stat().st_size for path in (main, *beside) if path.is_file())


def _key(step: PrepareStep, order: ToolOrder, sources: tuple[Path, ...]) -> str:
    # What calls the tool: a mended call makes another file of the same model.
    module = step.work.partition(":")[0]
    spec = find_spec(module, ENGINES) if module.startswith(".") else None
    calling = content_hash([Path(spec.origin)]) if spec is not None and spec.origin else __version__
    told = {
        "step": step.name, "tool": step.tool_version(), "by": calling, "options": dict(order.options),
        "shapes": {name: list(shape) for name, shape in order.shapes.items()} if step.fixed else {},
        "calibration": content_hash(order.calibration) if step.calibrated else "",
    }  # fmt: skip
    text = json.dumps(told, sort_keys=True) + content_hash(sources)
    return f"{step.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _require_memory(step: PrepareStep, size: int) -> None:
    available, needed = available_bytes(), _TIMES_IN_MEMORY * size
    if available is not None and needed > available:
        raise DomainError(
            f"The step {step.name} would need about {format_quantity(needed, 'B')} of memory for a model of "
            f"{format_quantity(size, 'B')}, and {format_quantity(available, 'B')} are available.",
            remedy="Prepare it on a machine with more memory, and copy the file.",
        )


def _child(step: PrepareStep, order: ToolOrder, folder: Path, seconds_at_most: float) -> ToolAnswer:
    """Run the tool; its whole group ends with us, by Ctrl-C too."""
    asked, answered, log = folder / "order", folder / "answer", folder / "log.txt"
    asked.write_bytes(pickle.dumps((step.work, order)))
    command = [sys.executable, "-m", "inferometer.measure.prepare.child", str(asked), str(answered)]
    with log.open("wb") as printed:
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds_at_most)
        except BaseException as error:
            end_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise too_long(step, seconds_at_most) from None
            raise
    return answer_of(answered, code, log)


def too_long(step: PrepareStep, seconds: float) -> EngineError:
    return EngineError(f"The step {step.name} was ended after {seconds:.0f} s.", remedy="Give it more time.")


def answer_of(answered: Path, code: int, log: Path) -> ToolAnswer:
    """What a child wrote, or how it ended where it wrote nothing."""
    if not answered.is_file():
        how = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        words = "".join(f"\n    {line[:300]}" for line in lines[-_LOG_LINES:])
        ended = f"The tool {how}{f'. What it printed last:{words}' if words else ''}"
        return ToolAnswer(error=ended, remedy=_REMEDY.get(code))
    answer: ToolAnswer = pickle.loads(answered.read_bytes())  # noqa: S301 - written by our own child
    return answer


def end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


_REMEDY = {-9: "It was killed, mostly because the memory ran out: use a machine with more."}


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "\n")) else f"{text}."
