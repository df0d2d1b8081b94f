"""AOTInductor's packages are told from exported programs by their content."""

import json
import zipfile
from pathlib import Path

import pytest

import inferometer as im
from inferometer.core.errors import EngineError, FormatError
from inferometer.engines.torch.engine import TorchDevice
from inferometer.engines.torch.modules import open_package, require_here
from inferometer.formats.detect import read_graph

PROGRAM = Path(__file__).parents[3] / "data" / "torch" / "mlp.pt2"
TOLD = {"AOTI_MACHINE": "riscv64", "AOTI_PLATFORM": "linux", "AOTI_CPU_ISA": "RVV", "AOTI_DEVICE_KEY": "cpu"}
ABOUT = {
    "torch": "2.13.0", "machine": "riscv64", "system": "Linux", "instructions": "RVV", "unit": "cpu",
    "precision": "f32", "calls": [["cpp_fused_relu_0", ["relu"]]], "inputs": [["x", "float32", [1, 8]]],
}  # fmt: skip


def package(folder, *, whole):
    path = folder / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive, zipfile.ZipFile(PROGRAM) as program:
        archive.writestr("model/data/aotinductor/model/c1.wrapper.so", b"")
        archive.writestr("model/data/aotinductor/model/c1.wrapper_metadata.json", json.dumps(TOLD))
        if whole:
            archive.writestr("model/extra/inferometer.json", json.dumps(ABOUT))
            for name in program.namelist():
                if name.endswith(".json"):
                    archive.writestr(f"model/extra/program/{name.partition('/')[2]}", program.read(name))
    return path


def test_a_package_with_its_program_is_read_as_that_and_says_what_it_is(tmp_path):
    graph, program = read_graph(package(tmp_path, whole=True)), read_graph(PROGRAM)
    assert (graph.metadata["format"], program.metadata["format"]) == ("aoti", "pt2")
    assert graph.blocks == program.blocks
    assert "compiled for riscv64, linux, RVV and PyTorch 2.13.0" in graph.metadata["notes"][0]


def test_a_package_is_predicted_without_the_compiling_that_its_program_needs(tmp_path):
    def phases(path):
        return [phase.name for phase in im.predict(str(path), on="nvidia-h200", runtime="torch-compile").phases]

    compiled, plain = phases(package(tmp_path, whole=True)), phases(PROGRAM)
    assert "first_run" in plain
    assert [name for name in plain if name != "first_run"] == compiled


def test_a_package_without_its_program_is_named_with_the_way_to_one_that_has_it(tmp_path):
    with pytest.raises(FormatError, match=r"no graph in it\. A package of AOTInductor, compiled for riscv64") as error:
        read_graph(package(tmp_path, whole=False))
    assert "inferometer prepare" in (error.value.remedy or "")


def test_a_package_for_another_machine_is_refused_before_it_is_loaded(tmp_path):
    path = package(tmp_path, whole=True)
    with pytest.raises(EngineError, match="compiled for riscv64 and not") as error:
        require_here(open_package(path), path, place=TorchDevice(unit="cpu", device="cpu"), version="2.13.0")
    assert "Prepare the model on this machine" in (error.value.remedy or "")


def test_a_package_that_does_not_say_what_it_takes_is_refused(tmp_path):
    with pytest.raises(FormatError, match="does not say what it takes"):
        open_package(package(tmp_path, whole=False))
