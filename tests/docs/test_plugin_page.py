"""The engine that docs/plugins.md teaches, installed from the page itself and asked everything ours are asked."""

import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
FILE = re.compile(r"^`([\w.]+)`: .*?\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
SIZES = (64, 128, 10)


@pytest.fixture(scope="module")
def inferometer(tmp_path_factory):
    """The command, with the plug-in as pip would leave it; in a folder with a model."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("models")
    files = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    entries = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in given.items())
        for group, given in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(entries) + "\n")
    random = np.random.default_rng(0)
    arrays = {}
    for place, shape in enumerate(pairwise(SIZES)):
        arrays |= {f"w{place}": random.standard_normal(shape, dtype=np.float32)}
        arrays |= {f"b{place}": np.zeros(shape[1], dtype=np.float32)}
    np.savez(folder / "digits.npz", **arrays)
    ours = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]  # noqa: TID251 - the child's, not our settings
    paths = [str(Path(path).absolute()) for path in (site, *ours)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}  # noqa: TID251 - as above

    def run(*arguments):
        asked = [sys.executable, "-m", "inferometer", *arguments]
        done = subprocess.run(
            asked, capture_output=True, text=True, cwd=folder, env=environment, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_is_listed_and_seen_by_the_doctor(inferometer):
    rows = {row["name"]: row for row in json.loads(inferometer("runtimes", "--format", "json"))}
    assert rows["numpy-mlp"] | {"state": "ready", "version": "1.0", "formats": ["mlp"]} == rows["numpy-mlp"]
    assert "numpy-mlp 1.0" in inferometer("doctor", "--interval", "50ms")


def test_it_is_predicted_for_its_own_files_and_for_any_model(inferometer):
    own = json.loads(inferometer("predict", "digits.npz", "--on", "raspberry-pi-5", "--format", "json"))
    assert own["runtime"] == "numpy-mlp"  # nothing else opens the format
    (forward,) = [phase for phase in own["phases"] if phase["name"] == "forward"]
    assert forward["time_s"] > 6 * 1.3e-6  # two layers of three calls
    asked = ("predict", "resnet50", "--on", "raspberry-pi-5", "--runtime", "numpy-mlp", "--format", "json")
    assert json.loads(inferometer(*asked))["runtime"] == "numpy-mlp"


def test_it_is_profiled_beside_its_prediction_and_explained(inferometer):
    quick = ("--no-guard", "--no-store", "--runs", "3", "--seconds", "0.01s", "--predict", "--on", "raspberry-pi-5")
    inferometer("profile", "digits.npz", *quick, "-o", "digits.json")
    explained = json.loads(inferometer("explain", "digits.json", "--format", "json"))
    assert "is not known" not in json.dumps(explained)
    text = inferometer("explain", "digits.json")
    assert "numpy-mlp" in text
    assert "prediction" in text
