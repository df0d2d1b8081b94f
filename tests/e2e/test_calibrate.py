"""`inferometer calibrate` with a real engine and probes that take a moment, and a prediction that uses it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.calibrate import command
from inferometer.core.workload import Precision, Workload
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.measure.calibrate import job
from inferometer.measure.calibrate.fitting import assemble
from inferometer.measure.calibrate.fitting.held_against import HeldAgainst
from inferometer.measure.calibrate.probes import models as probe_models
from inferometer.measure.calibrate.run import CalibrationOutcome, calibrate_with
from inferometer.predict.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("onnxruntime")

BUDGET_S, TICK_S = 10.0, 0.8
PROBES = """
[families.bert]
model_type = "bert"
architectures = ["BertModel"]
max_position_embeddings = 128
type_vocab_size = 2
hidden_act = "gelu"
layer_norm_eps = 1e-12
torch_dtype = "float32"

[probes.top]
family = "bert"
role = "ceiling"
runs = [[1, 64]]
config = { hidden_size = 96, intermediate_size = 384, num_hidden_layers = 1, num_attention_heads = 3, vocab_size = 90 }

[probes.tiny]
family = "bert"
role = "overhead"
runs = [[1, 4]]
config = { hidden_size = 16, intermediate_size = 32, num_hidden_layers = 2, num_attention_heads = 2, vocab_size = 64 }

[probes.one]
family = "bert"
runs = [[1, 16], [2, 32]]
config = { hidden_size = 64, intermediate_size = 160, num_hidden_layers = 1, num_attention_heads = 2, vocab_size = 80 }

[probes.two]
family = "bert"
runs = [[1, 24]]
config = { hidden_size = 128, intermediate_size = 320, num_hidden_layers = 1, num_attention_heads = 4, vocab_size = 70 }
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("small")
    table = folder / "probes.toml"
    table.write_text(PROBES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_models.read_probes, "__defaults__", (table,))
        patch.setattr(job, "calibrate_with", measured_so_often)
        # Whether it predicts better than before depends on the machine and the moment, and is not what is tested here.
        patch.setattr(job, "held_against", lambda *_, **__: HeldAgainst(now={"forward": 0.1}, before={"forward": 0.5}))
        patch.setattr(assemble, "without_worse_tables", lambda _subject, calibration, *_: calibration)
        patch.setenv("INFEROMETER_CACHE", str(folder / "cache"))
        patch.setenv("INFEROMETER_DATA", str(folder / "data"))
        yield folder


def measured_so_often(*given: Any, budget_s: float, **more: Any) -> CalibrationOutcome:
    """Time goes by when the clock is read, and not with the machine: a measurement reads it a few times."""
    ticks = itertools.count()
    return calibrate_with(*given, budget_s=BUDGET_S, clock=lambda: next(ticks) * TICK_S, **more)


@pytest.fixture(scope="module")
def first(small: Path) -> dict:
    """The first calibration in that folder: it takes its whole budget, so it is made once."""
    return calibrated()


def calibrated(*more: str) -> dict:
    asked = ["--runtime", "onnxruntime", "--threads", "1", "--budget", "1s", "--no-guard", "--format", "json", *more]
    found = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_a_real_engine_is_calibrated_and_predictions_for_this_machine_use_it(small: Path, first: dict):
    made = first
    assert Path(made["path"]).parent == small / "data" / "calibrations"
    assert {"linear", "attention.prefill", "vector"} <= {table["op_class"] for table in made["tables"]}
    assert made["threads"] == 1
    assert made["versions"]["onnxruntime"]
    assert made["peaks"]["f32"]["value"] > 0
    question = Question(
        graph=read("all-minilm-l6-v2"), device=device("local"), runtime="onnxruntime", had_threads=1,
        workload=Workload(precision=Precision(activations="f32")),
    )  # fmt: skip
    basis = question.basis()
    assert basis.calibration is not None
    assert basis.notes == ()
    assert basis.device.memory.bandwidth_bytes_per_s is not None
    forward = question.answer().phase("forward")
    assert {op.origin for op in forward.ops if op.kind == "linear"} == {"calibrated"}


@pytest.fixture
def journal(small: Path, first: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the first calibration left, for one test alone."""
    monkeypatch.setenv("INFEROMETER_DATA", str(shutil.copytree(small / "data", tmp_path / "data")))
    return tmp_path / "data" / "calibrations" / "journals" / "local-onnxruntime-f32-1-threads"


def test_a_second_run_goes_on_where_the_first_stopped_and_counts_with_the_same_peaks(first: dict, journal: Path):
    done, ceilings = ((journal / name).read_text() for name in ("done.txt", "ceilings.json"))
    again = calibrated()
    assert (journal / "done.txt").read_text().startswith(done)
    assert (journal / "ceilings.json").read_text() == ceilings
    assert again["points"] >= first["points"]
    assert "started_from" not in again["environment"], "its own earlier points are no base"


def test_a_fresh_run_starts_from_the_calibration_and_measures_everything_anew(first: dict, journal: Path):
    done, ceilings = ((journal / name).read_text() for name in ("done.txt", "ceilings.json"))
    anew = calibrated("--fresh")
    assert anew["environment"]["started_from"] == first["content_hash"]
    assert not (journal / "done.txt").read_text().startswith(done + done[:1]), "everything is measured anew"
    assert (journal / "ceilings.json").read_text() != ceilings
