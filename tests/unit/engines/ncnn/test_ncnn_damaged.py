"""Files of ncnn that are cut short or speak of what it has not: the message says which of the two to look at."""

import pytest

from contract.runtime_cases_ncnn import LAYERS, write_network
from inferometer.core.errors import EngineError, FormatError
from inferometer.engines.base import Target
from inferometer.engines.ncnn import runtime
from inferometer.formats.ncnn import reader

pytest.importorskip("ncnn", reason="ncnn is not installed: it refuses nothing")


def opened(path):
    return runtime.open(Target(path=path, format="ncnn", threads=1))


def test_weights_that_are_cut_short_are_the_bin_files_fault(tmp_path):
    path = write_network(tmp_path)
    weights = path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(EngineError, match=r"'three.bin' is cut short, or belongs to another network"):
        opened(path)
    weights.write_bytes(bytes(100))
    with pytest.raises(FormatError, match=r"'three.bin', which has 100 \(tensor 'conv.weight'\)\."):
        reader.read(path)


def test_a_layer_that_ncnn_has_not_is_the_param_files(tmp_path):
    path = write_network(tmp_path)
    path.write_text(LAYERS.replace("Pooling ", "Pulling "), encoding="utf-8")
    with pytest.raises(EngineError, match=r"layer Pulling not exists .* A layer that it does not know must go"):
        opened(path)


def test_a_network_without_its_weights_asks_for_them(tmp_path):
    path = write_network(tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(EngineError, match=r"'three.bin' is no file"):
        opened(path)
