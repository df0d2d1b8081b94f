"""Artifacts that are folders: written whole or not at all, and never over something else."""

from contextlib import suppress

import pytest

from inferometer.core.errors import DomainError, FormatError
from inferometer.formats.synth.files import landing_folder
from inferometer.known.engines import engine
from inferometer.measure.prepare.chain import format_meant
from inferometer.measure.prepare.run import prepare


def test_a_folder_that_holds_something_else_is_never_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DomainError, match="holds other things"):
        prepare("smollm2-135m", runtime="ctranslate2", out=tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").is_file()


def test_a_files_name_is_refused_for_an_engine_that_opens_folders(tmp_path):
    with pytest.raises(FormatError, match="opens a folder"):
        prepare("smollm2-135m", runtime="onnxruntime-genai", out=tmp_path / "model.onnx")


def test_an_earlier_folder_stays_until_a_whole_new_one_is_there(tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    (place / "old").touch()
    with suppress(RuntimeError), landing_folder(place, overwrite=True, needs_bytes=1) as partial:
        partial.mkdir()
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]
    with landing_folder(place, overwrite=True, needs_bytes=1) as partial:
        partial.mkdir()
        (partial / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "new"]


@pytest.mark.parametrize(
    ("source", "runtime", "asked", "meant"),
    [
        ("safetensors", "onnxruntime-genai", "i4", "i4-weights"),
        ("safetensors", "ctranslate2", "i8", "i8-dynamic"),
        ("safetensors", "ctranslate2", "f16", "f16"),
        ("onnx", "openvino", "i8", "i8"),  # there are two ways, and one is called so
        ("onnx", "onnxruntime", "q4_0", "q4_0"),
    ],
)
def test_a_bare_format_means_the_one_way_there_is_to_it(source, runtime, asked, meant):
    assert format_meant(asked, source, engine(runtime)) == meant
