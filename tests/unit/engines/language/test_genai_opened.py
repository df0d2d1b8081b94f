"""What is said of a folder of ONNX Runtime GenAI that was opened: how long that took, and what it was made for."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.engines.base import Target
from inferometer.engines.onnxruntime_genai import convert

session = pytest.importorskip("inferometer.engines.onnxruntime_genai.session", reason="it is not installed")


@pytest.mark.parametrize("instrument", [False, True])
@pytest.mark.parametrize(
    ("options", "notes"),
    [([], ()), ([{"cuda": {}}, {"dml": {}}], ("The folder was made for cuda, dml; it was run on the CPU.",))],
)
def test_a_folder_is_loaded_in_the_time_between_two_looks_at_the_clock(monkeypatch, instrument, options, notes):
    asked = []
    decoder = {"filename": "net.onnx", "session_options": {"provider_options": options}}
    monkeypatch.setattr(session, "_checked", lambda _, name: Path("/models") / name)
    monkeypatch.setattr(session, "config_of", lambda _: {"model": {"decoder": decoder}})
    monkeypatch.setattr(session, "load_model", lambda folder, plan: asked.append((folder, plan)) or "model")
    recorder = SimpleNamespace(session="watched model")
    monkeypatch.setattr(session, "ProfileRecorder", lambda plan, begin: asked.append((begin.args[0], plan)) or recorder)
    monkeypatch.setattr(session, "version", lambda package: f"{package} 1")
    monkeypatch.setattr(session, "GenaiSession", lambda *given: given)
    clock = iter([10.0, 12.5])
    target = Target(path=Path("m"), format="onnxruntime-genai", text=True, threads=3, instrument=instrument)
    _, folder, _, model, opened, watching = session.open_session(target, "small", clock=lambda: next(clock))
    assert [(stage.name, stage.seconds) for stage in opened.stages] == [("load", 2.5)]
    assert (opened.threads, opened.notes) == (3, notes)
    assert set(opened.versions) == {"onnxruntime-genai", "onnxruntime"}
    ((loaded, plan),) = asked
    assert (loaded, folder, plan.path, plan.threads) == (folder, Path("/models/small"), folder / "net.onnx", 3)
    assert (model, watching) == (("watched model", recorder) if instrument else ("model", None))


@pytest.mark.parametrize(
    ("printed", "reason"),
    [("Traceback\n  ValueError: no such layer.\n\nbye\n", "ValueError: no such layer"), ("one\n two. \n", "two"),
     ("KeyError: a\nRuntimeException: b\nend", "RuntimeException: b"), (" \n", "it gave no reason")],
)  # fmt: skip
def test_a_builders_reason_is_its_last_error_or_its_last_line(printed, reason):
    assert convert._reason(printed) == reason
