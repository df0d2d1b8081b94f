"""A folder of ONNX Runtime's generator: which file it may name as its decoder."""

import json

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.detect import read_graph


@pytest.mark.parametrize("name", ["x" * 100_000, "../outside.onnx", "/etc/passwd", "", ".", "a\0b", 7, None])
def test_a_decoder_that_does_not_lie_beside_its_config_is_refused(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.onnx").write_bytes(b"")
    (folder / "genai_config.json").write_text(json.dumps({"model": {"decoder": {"filename": name}}}))
    with pytest.raises(FormatError, match="lies beside it"):
        read_graph(folder)
