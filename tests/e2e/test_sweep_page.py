"""What docs/sweeps.md says can be run, runs: its blocks in their order, in one folder."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

from inferometer.predict.sweep import AXES, COLUMNS, DETAILS
from inferometer.predict.sweep.spec import parse_spec

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(console|python|toml)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
NEEDED = {".svg": "vl_convert", ".parquet": "pyarrow"}


def commands(text):
    return [line.removeprefix("$ ") for line in text.splitlines()]


def run(text):
    found = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, encoding="utf-8", timeout=240, check=False
    )
    assert found.returncode == 0, found.stderr


def test_every_block_runs_after_those_before_it(tmp_path, answered, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, text in BLOCKS:
        if kind == "toml":
            assert parse_spec(text, "grid.toml").details
            (tmp_path / "grid.toml").write_text(text, encoding="utf-8")
        elif kind == "python":
            run(text)
        else:
            run_commands(text, answered)


def run_commands(text, answered):
    """All but those that need what is not installed."""
    for line in commands(text):
        if any(end in line and importlib.util.find_spec(name) is None for end, name in NEEDED.items()):
            continue
        name, *arguments = shlex.split(line)
        assert name == "inferometer"
        found = answered(*arguments)
        assert found.returncode == 0, found.stderr


def test_the_page_has_every_axis_and_column():
    for name in (*AXES, *COLUMNS):
        assert name in PAGE
    for name in DETAILS:
        like = re.sub(r"^(prefill|decode)_", "forward_", re.sub(r"^(ttft|tpot|e2e)", "latency", name))
        assert name in PAGE or like in PAGE  # "and the same of …"
