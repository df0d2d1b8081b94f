"""The tutorials, recipes and the workflow run as they stand."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import inferometer as im
from fakes.in_process import measured_here
from inferometer.cli.run import run
from inferometer.measure.bench.guard import NoGuard
from inferometer.measure.run import model as running

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for part in ("questions", "recipes", "tutorials") for page in (ROOT / "docs" / part).glob("*.md"))
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# While tests run no machine is quiet, and two threads would wait for each other in a loop.
QUICK = ["--no-guard", "--runs", "3", "--seconds", "10ms", "--no-predict", "--threads", "1"]
LEFT = ["--leave", "numpy", "--leave", "onnxruntime", "--leave", "onnx"]  # packing them is tested elsewhere
NEEDS = {"spans": "torch"}
posix = pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def folder(tmp_path, own_data, monkeypatch):
    """Where a page's commands run; what they measure runs in this process, which has the engines already."""
    monkeypatch.setattr(running, "isolated", measured_here)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return tmp_path


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom(page, folder):
    if page.stem in NEEDS and find_spec(NEEDS[page.stem]) is None:
        pytest.skip(f"needs {NEEDS[page.stem]}")
    for language, text in blocks(page):
        if language == "console":
            for line in re.findall(r"^\$ (.*)$", text.replace("\\\n", ""), re.MULTILINE):  # a backslash carries on
                enter(line)
        elif (name := re.match(r"# (test_\w+\.py)\n", text)) is not None:
            Path(name[1]).write_text(text)
        else:
            python(text)


def enter(line):
    """A command of ours is run in this process, which has the catalog already; anything else in one of its own."""
    words = shlex.split(line)
    if words[0] == "pytest":
        for word in words:
            if word.startswith("--inferometer-compare="):  # with times that are longer than those of any busy moment
                slow_down(Path(word.partition("=")[2]))
        # Without the other plug-ins of this environment, which take longer to load than the page to run.
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # noqa: TID251 - the child's
        command = [
            sys.executable,
            "-m",
            *words,
            "-p",
            "inferometer.measure.bench.pytest_plugin",
            "--inferometer-no-guard",
        ]
        assert subprocess.run(command, check=False, env=alone).returncode == 0, line
        return
    assert words[0] == "inferometer", line
    quick = [*QUICK, "--no-shape"] if "--against" in words else QUICK
    measures = words[1] == "profile" and "--outputs-only" not in words
    more = quick if measures else LEFT if words[1:3] == ["bundle", "create"] else []
    code = run([*words[1:], *more])
    assert code == 0, line


def python(text):
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WORKFLOW = yaml.safe_load((ROOT / "examples" / "ci" / "performance.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in WORKFLOW["jobs"]["speed"]["steps"] if "run" in step}
GH = """#!/bin/sh
case "$1 $2" in
  "run list") echo 42 ;;
  "run download") test "$3" = 42 && mkdir -p "$7" && cp "$ARTIFACTS/$5"/* "$7" ;;
esac
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory, roofs):
    """A folder in which the workflow has measured its model, and in which its result is the reference."""
    folder = tmp_path_factory.mktemp("workflow")
    shutil.copytree(roofs, folder / "data" / "roofs")
    step = runner_in(folder)
    for name in ("Build the model", "Measure"):
        assert (done := step(name)).returncode == 0, done.stderr
    uploaded = next(
        s["with"] for s in WORKFLOW["jobs"]["speed"]["steps"] if s.get("with", {}).get("name") == "reference"
    )
    (folder / "artifacts" / uploaded["name"]).mkdir(parents=True)
    shutil.copy(folder / uploaded["path"], folder / "artifacts" / uploaded["name"])
    assert step("Fetch the reference").returncode == 0
    return folder


def runner_in(folder):
    """Runs the lines of a step as GitHub would, with the artifacts in a folder."""
    programs = {"inferometer": f'#!/bin/sh\nexec "{sys.executable}" -m inferometer "$@"\n', "gh": GH}
    for name, text in programs.items():
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    variables = {
        **os.environ,  # noqa: TID251 - the child's
        **WORKFLOW["env"],
        "OPTIONS": "--no-guard --no-predict --no-shape --runs 8 --seconds 10ms",
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",  # noqa: TID251 - as above
        "PYTHONPATH": str(ROOT / "src"),
        "INFEROMETER_DATA": str(folder / "data"),
        "ARTIFACTS": str(folder / "artifacts"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }

    def step(name, **more):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        return subprocess.run(
            command, cwd=folder, env={**variables, **more}, capture_output=True, text=True, check=False
        )

    return step


@pytest.fixture
def workflow(measured, tmp_path):
    """A copy for one test, and what runs steps in it."""
    folder = Path(shutil.copytree(measured, tmp_path / "workflow"))
    return folder, runner_in(folder)


@posix
@pytest.mark.slow
def test_the_workflow_passes_the_same_model(workflow):
    _, step = workflow
    same = step("Fail if it is slower")
    assert same.returncode == 0, same.stdout + same.stderr


@posix
@pytest.mark.slow
def test_the_workflow_fails_a_slower_model(workflow):
    folder, step = workflow
    slow_down(folder / "result.json")
    slower = step("Fail if it is slower")
    assert slower.returncode == 1, slower.stdout + slower.stderr
    assert "slower" in (folder / "summary.md").read_text()


@posix
@pytest.mark.slow
def test_the_workflow_writes_a_report(workflow):
    folder, step = workflow
    assert step("Write the report").returncode == 0
    assert (folder / "report.html").stat().st_size > 1000


def slow_down(path):
    """Every time of a result so much longer that no noise of a busy machine hides it."""
    plain = json.loads(path.read_text())
    for phase in plain["phases"]:
        phase["time_s"] *= 100
        phase["samples_s"] = [100 * seconds for seconds in phase.get("samples_s") or []] or None
    path.write_text(json.dumps(plain))


def test_the_workflow_installs_extras_that_there_are_and_stops_where_a_line_fails():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked = re.search(r"inferometer\[([\w,]+)\]", STEPS["Install"]["run"])[1].split(",")
    assert set(asked) <= set(extras)
    assert WORKFLOW["defaults"]["run"]["shell"] == "bash"  # GitHub then adds -e and pipefail, which `| tee` needs


@pytest.mark.slow
def test_the_notebook_runs_and_shows_tables_and_charts(folder, monkeypatch):
    """Its cells, by the shell that a notebook's process has, in this process: it has what they import."""
    monkeypatch.setattr(im, "bench", partial(im.bench, guard=NoGuard()))  # as `QUICK` says
    nbformat = pytest.importorskip("nbformat")
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell, shown = shells.InteractiveShell(), []
    for cell in nbformat.read(ROOT / "docs" / "tutorials" / "notebook.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            result = shell.run_cell(cell.source).result
            shown.append(shell.display_formatter.format(result)[0] if result is not None else {})
    assert sum("<table" in data.get("text/html", "") for data in shown) >= 5
    assert any("<svg" in data.get("image/svg+xml", "") for data in shown)
    assert all(len(data.get("text/plain", "")) < 2000 for data in shown)


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "code", "told"), [("1 + 1", 0, "2"), ("1 / 0", 1, None)])
def test_a_notebook_is_executed_in_place_unless_a_cell_fails(cell, code, told, tmp_path):
    """By the script itself, which starts a process for it as Jupyter does."""
    nbformat = pytest.importorskip("nbformat")
    made = nbformat.v4
    path = tmp_path / "one.ipynb"
    nbformat.write(made.new_notebook(cells=[made.new_code_cell(cell)]), path)
    script = ROOT / "docs" / "execute_notebook.py"
    done = subprocess.run([sys.executable, str(script), str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    (read,) = nbformat.read(path, as_version=4).cells
    assert [output.data["text/plain"] for output in read.outputs] == ([told] if told else [])
    assert "execution" not in read.metadata
