"""The public surface: what it has, and what importing it costs."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inferometer
from fakes.every import every

HEAVY = [
    "torch", "onnxruntime", "onnx", "openvino", "ai_edge_litert", "xllamacpp", "fastapi", "sqlalchemy", "dask",
    "distributed", "asyncssh", "vl_convert", "scipy", "pyarrow", "mcp",
]  # fmt: skip
SOURCE = Path(inferometer.__file__).parent
SLOW_FOR_HELP = [*HEAVY, "numpy", "msgspec", "psutil", "click"]


def test_the_public_names_are_these_and_all_of_them_load():
    assert sorted(inferometer.__all__) == list(inferometer.__all__)
    for name in inferometer.__all__:
        assert getattr(inferometer, name) is not None
    assert dir(inferometer) == sorted(inferometer.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        inferometer.frobnicate  # noqa: B018 - the access is the test


def test_every_lazy_name_is_typed_and_listed():
    lazy = {name for names in inferometer._HOMES.values() for name in names}
    assert lazy | {"__version__"} == set(inferometer.__all__)


MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(inferometer.__path__, "inferometer.")
    if not module.name.endswith(("__main__", ".migrations.env"))  # run by Python and by Alembic, imported by nobody
)


@pytest.mark.installed
@every(MODULES)
def test_what_a_module_says_is_public_is_there(name):
    module = importlib.import_module(name)
    assert all(hasattr(module, public) for public in getattr(module, "__all__", ()))


def imported_by(*arguments):
    """The modules a fresh interpreter has after running something."""
    code = f"import sys, runpy; sys.argv = {list(arguments)!r}; {{}}; print(*sys.modules, file=sys.stderr)"
    run = "import inferometer" if not arguments else "from inferometer.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code.format(run)], capture_output=True, text=True, timeout=240, check=True
    )
    return {name.partition(".")[0] for name in result.stderr.split()}


def test_importing_inferometer_imports_no_library():
    assert imported_by().isdisjoint(SLOW_FOR_HELP)


def test_the_front_page_imports_no_library_at_all():
    assert imported_by("inferometer", "--help").isdisjoint(SLOW_FOR_HELP)


def test_every_commands_help_imports_none_of_the_heavy_ones():
    code = """
import sys
from inferometer.cli import COMMANDS
from inferometer.cli.run import run
for command in COMMANDS:
    try:
        run([command, "--help"])
    except SystemExit:
        pass
print(*sys.modules, file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert {name.partition(".")[0] for name in result.stderr.split()}.isdisjoint([*HEAVY, "numpy"])


def test_explaining_imports_no_tool_that_would_carry_advice_out():
    code = "import inferometer.understand.explanation, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert not [name for name in result.stdout.split() if name.startswith("inferometer.measure.prepare")]


def test_listing_runtimes_imports_no_engine():
    code = "from inferometer.cli.run import run; run(['runtimes']); import sys; print(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert {name.partition(".")[0] for name in result.stderr.split()}.isdisjoint(HEAVY)


# Packages that are an edge as a whole: who imports one of their modules wants the library.
EDGES = {
    "hub": {"fastapi"},
    "hub/places/ssh": {"asyncssh"},
    "store": {"sqlalchemy"},
    "engines/onnxruntime": {"onnxruntime"},
    "engines/openvino": {"openvino"},
    "engines/openvino_genai": {"openvino"},
}


TOP_IMPORT = re.compile(r"^(?:import|from)\s+(\w+)", re.MULTILINE)  # not indented; one library a line, as ruff holds


def test_heavy_libraries_are_imported_at_their_edge_only_when_used():
    source = Path(inferometer.__file__).parent
    for file in source.rglob("*.py"):
        place = file.relative_to(source).parent.as_posix()
        inside = [names for edge, names in EDGES.items() if place == edge or place.startswith(f"{edge}/")]
        allowed = set().union(*inside) if file.name != "__init__.py" else set()
        tops = set(TOP_IMPORT.findall(file.read_text(encoding="utf-8")))
        assert (tops - allowed).isdisjoint(HEAVY), f"{file.relative_to(source)} imports {tops} when it is imported"


def test_every_verb_says_what_it_takes_and_gives():
    """What editors and notebooks complete from, packages that are verbs too included."""
    for name in inferometer.__all__:
        value = getattr(inferometer, name)
        if callable(value) and not isinstance(value, type):
            signature = inspect.signature(value)
            assert signature.return_annotation is not inspect.Signature.empty, name
            for parameter in signature.parameters.values():
                assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter.name})"


def test_a_value_is_frozen_in_one_way():
    """`@frozen` is that decorator without what it costs at start; it takes no part in inheritance, so those stay."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    bases = {
        base.strip().partition("[")[0].rpartition(".")[2]
        for text in texts.values()
        for listed in re.findall(r"^ *class \w+\(([^)]*)", text, re.MULTILINE)
        for base in listed.split(",")
    }
    classes = [
        (path, node)
        for path, text in texts.items()
        if "frozen=True" in text  # parsing all of them would take seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    left = sorted(
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path, node in classes
        if "dataclass(frozen=True, slots=True, kw_only=True)" in map(ast.unparse, node.decorator_list)
        and not node.bases
        and node.name not in bases
    )
    assert left == [], "write `@frozen` (core/frozen.py) in place of the standard decorator"
