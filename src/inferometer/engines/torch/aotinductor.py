"""Exported PyTorch programs compiled ahead of time: AOTInductor's packages, which run without compiling again.

The package holds a library for one kind of processor and its weights, and no graph. The program without its weights is
laid beside them, so that the package can be read, and a list of the layers that each kernel stands for.
"""

from __future__ import annotations

import json
import logging
import platform
import tempfile
import time
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json
from inferometer.engines.torch.convert import first_line, fixed_program
from inferometer.engines.torch.kernels import compiled_name
from inferometer.engines.torch.modules import program_port, stored_precision
from inferometer.engines.torch.provenance import call_name
from inferometer.formats.torch.reader import ABOUT, PROGRAM, SCHEMA, described
from inferometer.formats.trust.archive import open_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.engines.order import ToolOrder

_KERNELS = "data/aotinductor/model/kernel_information.json"
# Kernels show themselves to the profiler, which costs little while it is off, and the compiler tells their nodes.
_SETTINGS = {"cpp.enable_kernel_profile": True, "trace.provenance_tracking_level": 1}
_QUANTISED = "quantized_decomposed"


def compile_package(order: ToolOrder) -> Iterator[str]:
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    program = fixed_program(order)
    logging.getLogger("torch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    quantised = any(_QUANTISED in str(node.target) for node in program.graph.nodes)
    # Quantised products are put together from their parts only in a graph whose weights are constants.
    settings = {**_SETTINGS, **({"freezing": True} if quantised else {})}
    begun = time.monotonic()
    try:
        torch._inductor.aoti_compile_and_package(  # noqa: SLF001 - the only name it has
            program, package_path=str(order.target), inductor_configs=settings
        )
    except Exception as error:
        raise _refused(error) from error
    seconds = time.monotonic() - begun
    calls = _add_program(order.target, program, torch)
    yield f"Compiled once, in {seconds:.0f} s, for {_machine()} and PyTorch {torch.__version__}; it runs nowhere else."
    if not calls:
        yield "This PyTorch does not say what its kernels stand for: they will have no layer."


def _machine() -> str:
    return f"{platform.machine()} on {platform.system()}"


def _refused(error: Exception) -> FormatError:
    words = first_line(error)
    if "Cxx" in type(error).__name__ or "compiler" in words.casefold():
        return FormatError(f"PyTorch found no C++ compiler: {words}.", remedy="Install one, such as g++ or clang.")
    return FormatError(
        f"PyTorch cannot compile it: {words}.", remedy="Run it with torch-eager, or prepare it for another engine."
    )


def _add_program(package: Path, program: Any, torch: Any) -> list[tuple[str, list[str]]]:
    """Put the program, without its weights, and what is known of the kernels into the package."""
    told = described(open_archive(package))
    users = program.graph_signature.user_inputs
    ports = [program_port(node) for node in program.graph.nodes if node.name in users]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(package, "a") as archive:
        saved = Path(folder) / "program.pt2"
        torch.export.save(program, str(saved))
        root = archive.namelist()[0].partition("data/aotinductor/")[0]
        calls = _calls(archive, root, program)
        with zipfile.ZipFile(saved) as parts:
            for name in parts.namelist():
                if name.endswith(".json"):
                    archive.writestr(f"{root}{PROGRAM}{name.partition('/')[2]}", parts.read(name))
        about = {
            "schema": SCHEMA, "torch": str(torch.__version__), "machine": platform.machine(),
            "system": platform.system(), "instructions": told.get("instructions", ""), "unit": told.get("unit", "cpu"),
            "precision": stored_precision(program), "calls": calls,
            "inputs": [(port.name, port.dtype, port.shape) for port in ports],
        }  # fmt: skip
        archive.writestr(f"{root}{ABOUT}", json.dumps(about))
    return calls


def _calls(archive: zipfile.ZipFile, root: str, program: Any) -> list[tuple[str, list[str]]]:
    """Each kernel in order, with the modules, or nodes outside all modules, that it stands for."""
    if f"{root}{_KERNELS}" not in archive.namelist():
        return []
    layers = {node.name: _layer(node) for node in program.graph.nodes if node.op == "call_function"}
    told = parse_json(archive.read(f"{root}{_KERNELS}"))
    calls = []
    for kernel in sorted(told, key=lambda name: int(name.rpartition(":")[2])):
        nodes = told[kernel].get("pre_grad_nodes", ())
        calls.append((compiled_name(call_name(kernel)), list(dict.fromkeys(layers[n] for n in nodes if n in layers))))
    return calls


def _layer(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack and stack[-1][0] else str(node.name)
