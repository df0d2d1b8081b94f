"""Files that would do something to the machine that opens them: make the folder `mark`. Nothing here needs an engine.

Each maker takes a folder to write into and the mark, and gives the path of a model.
"""

import io
import json
import os
import pickle
import zipfile

from unit.formats.torch.archives import document_of, members_of, packed

SAMPLES, DOCUMENT = "data/sample_inputs/model.pt", "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


class Evil:
    """Unpickling one makes the mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def saved(value, *, protocol=2):
    """As `torch.save` writes something that holds no tensor."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=protocol))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")
    return data.getvalue()


def calls(mark):
    return f"__import__('os').mkdir('{mark}')"


def _program(folder, **members):
    return packed(folder / "m.pt2", {**members_of("mlp"), **members})


def _changed(folder, change):
    document = document_of("mlp")
    change(document)
    return _program(folder, **{DOCUMENT: json.dumps(document).encode()})


def _graph(document):
    return document["graph_module"]["graph"]


def sample_inputs(folder, mark):
    return _program(folder, **{SAMPLES: saved((Evil(mark), {}))})


def sample_inputs_of_a_newer_protocol(folder, mark):
    return _program(folder, **{SAMPLES: saved((Evil(mark), {}), protocol=4)})


def old_sample_inputs(folder, mark):
    return _program(folder, **{SAMPLES: pickle.dumps(Evil(mark))})


def old_weights(folder, mark):
    return _program(folder, **{"data/weights/model.pt": saved({"w": Evil(mark)})})


def pickled_weight(folder, mark):
    config = json.loads(members_of("mlp")[WEIGHTS])
    entry = next(iter(config["config"].values()))
    entry["use_pickle"] = True
    member = f"data/weights/{entry['path_name']}"
    return _program(folder, **{WEIGHTS: json.dumps(config).encode(), member: saved(Evil(mark))})


def opaque_constant(folder, mark):
    config = {"config": {"c": {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}}}
    member = {"data/constants/opaque_obj_0": pickle.dumps(Evil(mark))}
    return _program(folder, **{CONSTANTS: json.dumps(config).encode()}, **member)


def size_that_calls(folder, mark):
    def change(document):
        sizes = _graph(document)["tensor_values"]["x"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": calls(mark), "hint": {"as_int": 2}}}

    return _changed(folder, change)


def guard_that_calls(folder, mark):
    return _changed(folder, lambda document: document.update(guards_code=[f"{calls(mark)} is None"]))


def input_named_by_a_call(folder, mark):
    def change(document):
        text = json.dumps(document)
        named = json.dumps(f"x, y={calls(mark)}")
        document.update(json.loads(text.replace('"name": "x"', f'"name": {named}').replace('"x": {', f"{named}: {{")))

    return _changed(folder, change)


def operator_of_the_system(folder, mark):
    def change(document):
        node = _graph(document)["nodes"][0]
        node["target"] = "torch.serialization.os.mkdir"
        node["inputs"] = [{"name": "", "arg": {"as_string": str(mark)}, "kind": 1}]

    return _changed(folder, change)


def operator_that_opens_a_file(folder, _mark):
    return _changed(folder, lambda document: _graph(document)["nodes"][0].update(target="torch.ops.aten.from_file"))


def tree_that_imports(folder, _mark):
    context = {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []}
    tree = json.dumps([1, {"type": "collections.defaultdict", "context": context, "children_spec": []}])
    calling = lambda document: document["graph_module"]["module_call_graph"][0]["signature"]  # noqa: E731 - one place
    return _changed(folder, lambda document: calling(document).update(out_spec=tree))


def library_beside_the_program(folder, _mark):
    return _program(folder, **{"data/aotinductor/model/m.so": b"\x7fELF"})


def second_member_of_one_name(folder, mark):
    return _program(folder, **{SAMPLES.upper(): saved((Evil(mark), {}))})


def member_outside(folder, _mark):
    return _program(folder, **{"../../x.pt": b""})


def package_from_elsewhere(folder, _mark):
    return packed(folder / "m.pt2", {"data/aotinductor/model/m.so": b"\x7fELF", "inferometer.json": b"{}"})


def _folder(folder, **documents):
    place = folder / "model"
    place.mkdir()
    for name, document in documents.items():
        (place / f"{name}.json").write_text(json.dumps(document))
    return place


CONFIG = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 16}


def kernels_by_address(folder, _mark):
    return _folder(folder, config={**CONFIG, "_attn_implementation": "somebody/kernel"})


def tokeniser_elsewhere(folder, _mark):
    return _folder(folder, config=CONFIG, tokenizer_config={"vocab_file": "/etc/passwd"})


def shards_elsewhere(folder, _mark):
    index = {"weight_map": {"lm_head.weight": "../../other.safetensors"}}
    return _folder(folder, config=CONFIG, **{"model.safetensors.index": index})


def library_of_operators(folder, _mark):
    decoder = {"filename": "model.onnx", "session_options": {"custom_ops_library": "evil.so"}}
    return _folder(folder, genai_config={"model": {"vocab_size": 16, "decoder": decoder}})


def decoder_elsewhere(folder, _mark):
    return _folder(folder, genai_config={"model": {"vocab_size": 16, "decoder": {"filename": "../../m.onnx"}}})


def compiled_for_a_provider(folder, _mark):
    path = folder / "m.onnx"
    path.write_bytes(b"\x08\x08:\x1e\n\x1c\n\x01x\x12\x01y\x22\tEPContext:\rcom.microsoft")
    return path


def pickle_in_place_of_it(folder, mark):
    path = folder / "model.bin"
    path.write_bytes(pickle.dumps(Evil(mark)))
    return path


PROGRAMS = (
    sample_inputs, sample_inputs_of_a_newer_protocol, old_sample_inputs, old_weights, pickled_weight, opaque_constant,
    size_that_calls, guard_that_calls, input_named_by_a_call, operator_of_the_system, operator_that_opens_a_file,
    tree_that_imports, library_beside_the_program, second_member_of_one_name, member_outside,
)  # fmt: skip
FOLDERS = (kernels_by_address, tokeniser_elsewhere, shards_elsewhere)
# By format: what the door itself refuses. Every format also gets `pickle_in_place_of_it`, which its engine refuses.
FORMATS = {
    "pt2": PROGRAMS, "aoti": (package_from_elsewhere,), "onnx": (compiled_for_a_provider,),
    "ort": (compiled_for_a_provider,), "config": FOLDERS, "safetensors": FOLDERS, "ctranslate2": FOLDERS,
    "openvino-genai": FOLDERS, "onnxruntime-genai": (*FOLDERS, library_of_operators, decoder_elsewhere),
}  # fmt: skip
