"""The process that makes probes: it stays for the next order, and a tool that ends it costs one order."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from inferometer.core.errors import EngineError, FormatError
from inferometer.engines.order import ToolOrder
from inferometer.measure.calibrate.probes.workshop import Workshop
from inferometer.measure.prepare.carrying_out import Made, carry_out
from inferometer.measure.prepare.steps import PrepareStep

if TYPE_CHECKING:
    from pathlib import Path

TOOL = """
import os, time

def make(order):
    order.target.write_text("made")
    yield str(os.getpid())

def end(order):
    print("the tool's last words", flush=True)
    os._exit(3)

def wait(order):
    time.sleep(60)
"""


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "tool.py").write_text(TOOL, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "out").mkdir()

    def carried_out(function: str, content: str, tools: Workshop, *, seconds: float = 30.0) -> Made:
        source = tmp_path / f"{content}.txt"
        source.write_text(content, encoding="utf-8")
        step = PrepareStep(
            name=function, title=function, takes=("x",), gives="x", packages=("pytest",), modules=("pytest",),
            extra="x", work=f"made_up.tool:{function}",
        )  # fmt: skip
        told = ToolOrder(source=source, target=source, format="x")
        return carry_out(step, told, tmp_path / "out", seconds_at_most=seconds, tools=tools)

    return carried_out


def test_one_process_makes_all_and_another_follows_one_that_ended(order, tmp_path: Path):
    with closing(Workshop()) as tools:
        first, second = (order("make", content, tools) for content in "ab")
        assert first.notes == second.notes, "the same process made both"
        with pytest.raises(FormatError, match=r"ended with code 3.*\n.*the tool's last words"):
            order("end", "c", tools)
        third = order("make", "d", tools)
        assert third.path.read_text(encoding="utf-8") == "made"
        assert third.notes != first.notes
        with pytest.raises(EngineError, match="ended after"):
            order("wait", "e", tools, seconds=0.3)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".partial")]
