"""Write the exported programs in this folder. Run it from the folder `tests` with the torch that the README names."""

import sys
import warnings
import zipfile
from pathlib import Path

import torch  # noqa: TID251 - a script for whoever has it
from torch.export import Dim, export, save  # noqa: TID251

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from unit.formats.torch import models  # noqa: E402 - found through the path set above


def write(name, module, inputs, *, dynamic_shapes=None, decomposed=False):
    program = export(module.eval(), inputs, dynamic_shapes=dynamic_shapes, strict=False)
    program = program.run_decompositions() if decomposed else program
    for inner in program.graph_module.modules():
        for node in getattr(inner, "graph", torch.fx.Graph()).nodes:
            node.meta.pop("stack_trace", None)  # it names files of the machine that traced it
    save(program, HERE / f"{name}.pt2")


def pack(name):
    """The same members, deflated: torch stores them as they are, and its JSON is long."""
    path = HERE / f"{name}.pt2"
    with zipfile.ZipFile(path) as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data, zipfile.ZIP_DEFLATED)


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    batch, query = Dim("batch"), Dim("query", max=16)
    write("mlp", models.Mlp(8, 8, 3, 2), (torch.zeros(2, 8),), dynamic_shapes=({0: batch},))
    ids = torch.zeros(2, 4, dtype=torch.long)
    write("gpt", models.small_gpt(), (ids,), dynamic_shapes=({0: batch, 1: query},))
    write("cnn", models.small_resnet(), (torch.zeros(1, 3, 32, 32),))
    write("mixed", models.Mixed(), (torch.zeros(2, 6, 8), torch.ones(2)))
    write("encoder", models.small_encoder(), (torch.zeros(2, 4, 8),), decomposed=True)
    for name in ("gpt", "cnn", "mixed", "encoder"):
        pack(name)


if __name__ == "__main__":
    main()
