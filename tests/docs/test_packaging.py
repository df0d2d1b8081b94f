"""The wheel and the sdist build, and what the wheel installs runs by itself, away from this folder."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakes.once import lend_bytecode, made_once
from release_check import LARGEST

ROOT = Path(__file__).parents[2]
QUICK = ("--no-guard", "--runs", "3", "--seconds", "0", "--warmup", "1", "--size", "image=64")
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


@pytest.fixture(scope="module")
def wheel():
    (made,) = built("wheel").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def sdist():
    (made,) = built("sdist").glob("*.tar.gz")
    return made


def built(kind):
    """Made in this environment: nothing is downloaded."""
    if find_spec("hatchling") is None:
        pytest.skip("needs hatchling")
    return made_once(kind, partial(build, kind))


def build(kind, folder):
    """As `hatchling build` does it, but that an sdist is packed quickly and not tightly: that is most of its time."""
    quickly = (
        "import functools, gzip; gzip.GzipFile = functools.partial(gzip.GzipFile, compresslevel=1)\n"
        "from hatchling.cli import hatchling; hatchling()"
    )
    command = [sys.executable, "-c", quickly, "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_has_all_of_the_package_and_nothing_else(wheel):
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("inferometer-")}
    ours = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "inferometer").rglob("*")
        if path.is_file()
    }
    assert shipped == {name for name in ours if "__pycache__" not in name}
    assert wheel.stat().st_size <= LARGEST


@pytest.mark.slow
def test_the_sdist_has_what_a_contributor_needs(sdist):
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"src", "tests", "docs", "examples", "README.md", "LICENSE", "pyproject.toml"} <= tops


def test_the_container_file_builds_from_what_the_project_has():
    """There is no engine of containers here: its words are held against the files and names that they need."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (version,) = set(re.findall(r"^FROM docker\.io/library/python:(3\.\d+)-slim", text, re.MULTILINE))
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    (extras,) = re.findall(r"inferometer-\*\.whl\)\[([\w,-]+)\]", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert all((ROOT / source).exists() for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE))
    entry = text.index('ENTRYPOINT ["inferometer"]')
    assert text.rindex("USER inferometer") < entry, "nobody runs it as root"
    left_out = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv", "build"} <= set(left_out), "an image has no history and no environment of this machine"


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory, roofs):
    """Runs the command of an environment that has the wheel alone.

    What it depends on is lent by this one, since nothing is downloaded; so is what this machine was measured to reach.
    """
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(roofs, folder / "data" / "roofs")
    venv.create(folder / "venv", with_pip=False)
    binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}  # noqa: TID251 - the child's
    outside |= {"INFEROMETER_DATA": str(folder / "data"), "INFEROMETER_CACHE": str(folder / "cache")}

    def printed(*command):
        done = subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    python = binaries / "python"
    printed(
        sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel
    )
    site = Path(printed(python, "-c", SITE))
    lend_bytecode(site / "inferometer")
    (site / "lent.pth").write_text(printed(sys.executable, "-c", SITE) + "\n")
    assert printed(python, "-c", "import inferometer; print(inferometer.__file__)").startswith(str(site))
    return lambda *words: printed(binaries / "inferometer", *words)


@pytest.mark.slow
def test_an_installed_wheel_predicts(installed):
    assert "nvidia-h200" in installed("predict", "llama-3.2-1b", "--on", "nvidia-h200")


@pytest.mark.slow
def test_an_installed_wheel_measures(installed):
    """It does what the demo does, with a model that is made and measured in a moment."""
    told = installed("profile", "squeezenet1.1", "--runtime", "onnxruntime", "--predict", *QUICK)
    assert "of the clean run" in told
    assert re.search(r"latency .* median of \d+", told), told
