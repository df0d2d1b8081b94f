"""OpenVINO GenAI in the suite of every runtime: a small Llama of ours, made of ONNX and given the inputs it wants.

The file gives the logits of the last token alone and needs neither mask nor positions; what the converter of
checkpoints makes is tried in tests/unit/measure/prepare, where torch is installed.
"""

import json
import shutil

import pytest

from contract.runtime_cases_onnxruntime import LLAMA
from fakes.once import made_once
from inferometer.engines.base import Target
from inferometer.formats.synth import synthesise


def write_pipeline(folder):
    for package in ("onnx", "openvino", "openvino_genai"):
        pytest.importorskip(package, reason=f"SKIPPED LOUDLY: {package} is not installed, nothing was run")
    return shutil.copytree(made_once("openvino-genai-llama", converted), folder)


def converted(folder):
    import openvino
    from openvino import opset13

    from inferometer.engines.openvino_genai.convert import NETWORK, stateful

    network = openvino.convert_model(str(synthesise(LLAMA, folder / "llama.onnx").path))
    order = opset13.parameter([-1], openvino.Type.i32, name="beam_idx")
    others = [opset13.parameter([-1, -1], openvino.Type.i64, name=name) for name in ("attention_mask", "position_ids")]
    for parameter in (order, *others):
        parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
    for port in network.inputs:
        if port.get_any_name().startswith("past"):
            readers = port.get_target_inputs()
            beams = opset13.gather(port, order, opset13.constant(0))
            for reader in readers:
                reader.replace_source_output(beams.output(0))
    network.add_parameters([order, *others])
    openvino.save_model(stateful(network), str(folder / NETWORK), compress_to_fp16=False)
    (folder / "llama.onnx").unlink()
    (folder / "config.json").write_text(json.dumps({**LLAMA, "eos_token_id": 2}))


def llama(folder):
    return Target(path=write_pipeline(folder / "llama"), format="openvino-genai", text=True, threads=1, precision="f32")


CASES = [("openvino-genai", llama, (7, 8, 9, 10))]
