"""The page of the workshop names every data file of the wheel, and nothing that is not there."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from workshop.make import ROOT, files_of, read_makers, table

MAKERS = read_makers()
PACKAGE = ROOT / "src" / "inferometer"
SOURCE = {".py", ".pyc", ".html", ".js", ".css", ".svg"}  # what people write, and no data
SCRIPTS = sorted({maker.script for maker in MAKERS if maker.script})


def test_every_data_file_of_the_wheel_comes_from_one_row():
    there = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in SOURCE]
    named = Counter(path for maker in MAKERS for path in files_of(maker.makes, PACKAGE))
    assert set(there) - {Path("py.typed")} == set(named)
    assert {path: count for path, count in named.items() if count > 1} == {}


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.name)
def test_a_row_names_what_is_there(maker):
    assert all(files_of([pattern], PACKAGE) for pattern in maker.makes)
    assert all((PACKAGE / folder).is_dir() for folder in maker.code)
    assert all((ROOT / "workshop" / "recorded" / name).is_file() for name in maker.recorded)
    assert {module for module, *_ in maker.steps} <= {maker.script}
    names = [each.name for each in MAKERS]
    assert all(names.index(other) < names.index(maker.name) for other in maker.after)
    assert maker.how
    assert bool(maker.code) == bool(maker.steps)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_is_for(script):
    if any("torch" in maker.needs for maker in MAKERS if maker.script == script):
        pytest.importorskip("torch", reason="torch is not installed, and the script begins with it")
    done = subprocess.run(
        [sys.executable, "-m", script, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_the_page_has_the_table_of_today():
    page = (ROOT / "workshop" / "README.md").read_text(encoding="utf-8")
    assert table(MAKERS) in page, "workshop/README.md is stale: run `python -m workshop.make --page`"


@pytest.mark.parametrize(
    ("name", "key"), [("priors-forward", "made"), ("priors-tokens", "made"), ("kernels", "date"), ("serving", "date")]
)
def test_a_file_states_the_date_that_the_page_has(name, key):
    maker = next(maker for maker in MAKERS if maker.name == name)
    assert maker.made.startswith(msgspec.json.decode((PACKAGE / maker.makes[0]).read_bytes())[key])
