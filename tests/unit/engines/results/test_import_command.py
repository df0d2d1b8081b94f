import csv
import io
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.import_ import command
from inferometer.core.codec import decode
from inferometer.core.errors import FormatError, InferometerError, UnknownNameError
from inferometer.core.profile import Profile
from inferometer.engines.results import detect
from inferometer.measure.bench.files import load_profile
from unit.engines.results.sources import DATA, OURS, SAMPLES, parsed, written


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    """The importers of this tree, also where an older installation has registered others."""
    monkeypatch.setattr(detect, "usable", lambda _: (tuple(OURS.values()), ()))


def run(*arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_sample_in_every_form(name):
    for form in ("table", "json", "csv", "md"):
        result = run(DATA / name, "--format", form)
        assert result.exit_code == 0, form
        assert result.stdout.strip(), form


def test_one_result_is_a_document_and_several_are_a_list():
    one = run(DATA / "qai_hub.json", "--format", "json").stdout
    assert decode(one, Profile).summary.peak_memory_bytes == 39406592
    several = json.loads(run(DATA / "hyperfine.json", "--format", "json").stdout)
    assert [entry["model"]["name"] for entry in several] == ["./old --size 8", "./new --size 8"]
    assert {entry["schema"] for entry in several} == {"inferometer.profile/1"}
    assert {entry["kind"] for entry in several} == {"measured"}


def test_csv_has_a_row_for_each_op():
    rows = list(csv.DictReader(io.StringIO(run(DATA / "qai_hub.json", "--format", "csv").stdout)))
    assert [(row["op"], row["unit"]) for row in rows] == [
        ("model/truediv", "cpu"), ("model/conv", "npu"), ("model/conv_1", "npu"),
    ]  # fmt: skip
    assert float(rows[1]["time_s"]) == pytest.approx(900e-6)


def test_csv_without_ops_has_a_row_for_each_phase():
    rows = list(csv.DictReader(io.StringIO(run(DATA / "hyperfine.json", "--format", "csv").stdout)))
    assert [(row["model"], row["phase"], row["samples"]) for row in rows] == [
        ("./old --size 8", "run", "3"), ("./new --size 8", "run", "2"),
    ]  # fmt: skip


def test_the_table_shows_the_headline_the_phases_and_the_slowest_ops():
    shown = run(DATA / "qai_hub.json", "--device", "Galaxy S24").stdout
    for part in ("Galaxy S24", "latency", "3.652 ms", "warm_load", "model/truediv", "npu", "by the number of ops"):
        assert part in shown
    assert shown.index("model/truediv") < shown.index("model/conv")


def test_a_saved_profile_is_what_compare_reads(tmp_path):
    out = tmp_path / "new folder" / "s24.json"
    result = run(DATA / "qai_hub.json", "--model", "resnet50", "--out", out)
    assert load_profile(out).model.name == "resnet50"
    assert "Saved resnet50" in result.stderr
    assert "Saved" not in result.stdout


def test_several_results_are_saved_in_numbered_files(tmp_path):
    run(DATA / "hyperfine.json", "-o", tmp_path / "bench.json")
    names = {path.name: load_profile(path).model.name for path in tmp_path.iterdir()}
    assert names == {"bench-1.json": "./old --size 8", "bench-2.json": "./new --size 8"}


def test_the_imported_file_is_not_written_over(tmp_path):
    path = written(tmp_path, parsed("qai_hub.json"))
    with pytest.raises(InferometerError, match="would be overwritten"):
        run(path, "--out", path.parent / "." / path.name)
    assert json.loads(path.read_text()) == parsed("qai_hub.json")


def test_mistakes_are_sentences(tmp_path):
    with pytest.raises(FormatError, match="There is no file"):
        run(tmp_path / "missing.json")
    with pytest.raises(UnknownNameError):
        run(DATA / "qai_hub.json", "--as", "quai-hub")
    with pytest.raises(FormatError, match="leave --as out"):
        run(DATA / "qai_hub.json", "--as", "torch")


def test_the_help_names_every_source():
    help_text = " ".join(run("--help").stdout.split())
    for part in (
        "ONNX Runtime",
        "PyTorch",
        "OpenVINO",
        "LiteRT",
        "trtexec",
        "Qualcomm AI Hub",
        "Embedl",
        "llama-bench",
    ):
        assert part in help_text
    for part in ("GuideLLM", "AIPerf", "vllm bench serve", "hyperfine"):
        assert part in help_text


def test_the_command_loads_no_engine():
    code = (
        "import sys; from inferometer.engines.torch.results import importer;"
        "from inferometer.engines.results.detect import load_document; from pathlib import Path;"
        f"importer.read(load_document(Path({str(DATA / 'torch_cpu.json')!r})));"
        "print({'torch', 'onnxruntime', 'openvino', 'numpy', 'scipy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert result.stdout.strip() == "set()"
