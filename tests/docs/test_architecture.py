"""The page about the architecture names the wings as the linter has them."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "inferometer"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAYERS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TOLD = re.findall(r"^  (\w+)/  ", PAGE, re.MULTILINE)


def test_the_page_tells_the_wings_in_the_order_of_the_linter():
    floors = [layer.split(" | ") for layer in LAYERS]
    assert sorted(TOLD) == sorted(name for floor in floors for name in floor)
    height = {name: number for number, floor in enumerate(floors) for name in floor}
    assert [height[name] for name in TOLD] == sorted(height.values())


def test_there_is_no_other_wing():
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(TOLD)
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "version.py"}


def test_what_it_sends_a_reader_to_is_there():
    for link in re.findall(r"\]\((src/[^)]*)\)", PAGE):
        assert (ROOT / link).is_file(), link


@cache
def _imports() -> dict[Path, tuple[set[str], list[str]]]:
    """Of each module of ours, what it imports from others anywhere, and what its loading waits for.

    Made once: to parse all of them takes seconds.
    """
    bodies = ((path, ast.parse(path.read_bytes()).body) for path in SOURCE.rglob("*.py"))
    return {path: (set(_imported_from(body)), [*_loaded_with(body)]) for path, body in bodies}


def _imported_from(body: list[ast.stmt]) -> Iterator[str]:
    """Modules and what is taken from them, in functions too."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            yield from (statement.module, *(f"{statement.module}.{alias.name}" for alias in statement.names))
        for part in ("body", "orelse", "finalbody"):
            yield from _imported_from(getattr(statement, part, ()))
        for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _imported_from(branch.body)


def _loaded_with(body: list[ast.stmt]) -> Iterator[str]:
    """The modules whose loading a module's own waits for: imports in functions and for types alone are none."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.If | ast.Try) and "TYPE_CHECKING" not in ast.unparse(statement):
            yield from _loaded_with(statement.body)


def _circle(modules: dict[str, list[str]], module: str, way: tuple[str, ...], left: set[str]) -> tuple[str, ...]:
    """The way from a module back to itself, if there is one; `left` are modules with none."""
    if module in way:
        return (*way[way.index(module) :], module)
    for other in modules[module] if module not in left else ():
        if found := _circle(modules, other, (*way, module), left):
            return found
    left.add(module)
    return ()


def test_every_door_of_a_wing_is_entered_from_outside():
    """The linter refuses what is no door; a door that nobody needs any more is found here."""
    contracts = [
        contract for contract in PROJECT["tool"]["importlinter"]["contracts"] if contract["type"] == "protected"
    ]
    for contract in contracts:
        (wing,) = contract["allowed_importers"]
        inside = SOURCE / wing.rpartition(".")[2]
        entered = {name for path, (names, _) in _imports().items() if inside not in path.parents for name in names}
        assert {door.rpartition(" ")[2] for door in contract["ignore_imports"]} - entered == set()


def test_no_module_waits_for_itself_whichever_is_loaded_first():
    """A tool that follows imports allows such a circle, and so does every test that loads another module before it."""
    files = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
        for path in _imports()
    }
    modules = {
        name: [
            module
            for taken in _imports()[path][1]
            if (module := taken if taken in files else taken.rpartition(".")[0]) in files and module != name
        ]
        for name, path in files.items()
    }
    left: set[str] = set()
    for name in modules:
        assert _circle(modules, name, (), left) == ()


def test_scripts_that_no_test_runs_import_what_is_there():
    """Those that record and measure elsewhere: a name that moved would be missed on that day."""
    scripts = [path for folder in ("benchmarks", "workshop", "tests/data") for path in (ROOT / folder).rglob("*.py")]
    asked = {
        (node.module, alias.name)
        for path in scripts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("inferometer.")
        for alias in node.names
    }
    assert len(asked) > 100
    assert {f"{module}.{name}" for module, name in asked if not is_there(module, name)} == set()


def is_there(module, name):
    """A package's file, or a word of the module's own: what is imported or made there is written there."""
    place = ROOT / "src" / Path(*module.split("."))
    if place.joinpath(f"{name}.py").exists() or place.joinpath(name).is_dir():
        return True
    source = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)
    return source is not None and re.search(rf"\b{name}\b", source.read_text(encoding="utf-8")) is not None


def test_what_shows_a_profile_reads_it_through_its_view_alone():
    """`view_of`, `page_of` and `record_table` lay a profile out; who draws or saves it knows no phase of it."""
    renderers = [
        SOURCE / "understand" / "view" / f"{name}.py" for name in ("exports", "notebook", "render", "terminal")
    ]
    renderers += [SOURCE / "hub" / "web" / "downloads.py", SOURCE / "hub" / "web" / "pages" / "run.py"]
    for path in renderers:
        read = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Attribute)]
        inside = {node.attr for node in read if ast.unparse(node.value) == "profile"}
        assert inside <= {"model", "findings", "provenance", "served"}, path.name
