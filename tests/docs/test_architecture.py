"""The page about the architecture names the wings as the linter has them."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    source = ROOT / "src" / "inferometer"
    assert {path.parent.name for path in source.glob("*/__init__.py")} == set(TOLD)
    assert {path.name for path in source.glob("*.py")} == {"__init__.py", "__main__.py", "version.py"}


def test_what_it_sends_a_reader_to_is_there():
    for link in re.findall(r"\]\((src/[^)]*)\)", PAGE):
        assert (ROOT / link).is_file(), link
