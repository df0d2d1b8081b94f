"""From what a user calls a model to its graph.

It is a catalog name, a package's name for a network (`timm:resnet50`), a file, a folder with a config, or a module.
"""

from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import Graph
from inferometer.formats.networks.named import net_named, read_net, shipped_nets
from inferometer.known.files import row_named, rows_of
from inferometer.known.zoo import model, network_named

_SUFFIXES = frozenset(
    {
        ".onnx", ".gguf", ".tflite", ".safetensors", ".pt2", ".xml", ".ort", ".task", ".pt", ".pth", ".jit", ".pte",
        ".mnn", ".param",
    }
)  # fmt: skip


def read(source: Any, example_inputs: tuple[Any, ...] | None = None, *, image: int | None = None) -> Graph:
    """The graph of a model, without loading its weights.

    `source` is a catalog name (`"llama-3.2-1b"`), a package's name of a network (`"timm:resnet50"`), a path, or a
    `torch.nn.Module` with inputs to trace it with. `image` is the side that the graph of a package's network is made
    for; other graphs leave that size open, or have it fixed in their file.
    """
    if not isinstance(source, str | Path):
        if example_inputs is None:
            raise FormatError(
                "A live module is read by tracing it, and no inputs were given.",
                remedy="Say read(module, (tensor, …)) with inputs of the shapes it takes.",
            )
        from inferometer.formats.torch import read_module  # noqa: PLC0415 - brings torch

        return read_module(source, example_inputs)
    if isinstance(source, str) and row_named("models", source) is not None:
        from inferometer.formats.huggingface.graph import graph_from_config  # noqa: PLC0415 - only catalog names need templates

        row = model(source)
        return graph_from_config(row.config, name=row.name)
    if isinstance(source, str) and (network := network_named(source)) is not None:
        from inferometer.formats.networks.read import read_network  # noqa: PLC0415 - only such names need the archive

        return read_network(network, image=image)
    if isinstance(source, str) and (net := net_named(source)) is not None:
        return read_net(net)
    path = Path(source)
    if source != "" and path.exists():
        from inferometer.formats.detect import read_graph  # noqa: PLC0415 - catalog names need no readers of files

        return read_graph(path)
    from inferometer.formats.networks.shipped import packaged  # noqa: PLC0415 - as above

    if isinstance(source, str) and (full := packaged(source)) is not None:
        return read(full, image=image)
    raise _unknown(str(source))


def files_in(source: str) -> tuple[str, ...]:
    """The model files of a folder that is no model itself, by name; the source alone where it is anything else."""
    path = Path(source)
    if not source or row_named("models", source) is not None or not path.is_dir():
        return (source,)  # the path of an empty name is this folder, which nobody named
    from inferometer.formats.base import look  # noqa: PLC0415 - as above
    from inferometer.formats.detect import choose_reader  # noqa: PLC0415 - as above

    try:
        choose_reader(look(path))
    except FormatError:
        files = sorted(str(file) for file in path.iterdir() if file.suffix in _SUFFIXES)
        return tuple(files) or (source,)  # whose error says what is in it
    return (source,)


def published_parameters(source: str) -> int | None:
    """What was published of a catalog model; None for a file."""
    if row_named("models", source) is None:
        return None
    published = model(source).parameters
    return None if published is None else int(published.value)


def _unknown(source: str) -> Exception:
    """A path that is not there, or a name that is not known: which was meant shows in how it is written."""
    # Whether a model that is shipped in parts stands before the slash: `whisper-small/encodr`.
    model, slash, _ = source.partition("/")
    names_a_part = bool(slash) and any(name.startswith(f"{model}/") for name in shipped_nets())
    if not names_a_part and ("/" in source or "\\" in source or Path(source).suffix in _SUFFIXES):
        return FormatError(f"There is no file or folder {source!r}.", remedy="Check the path.")
    from inferometer.formats.networks.shipped import network_records  # noqa: PLC0415 - as above

    rows = rows_of("models")
    packages = {str(record["name"]).partition(":")[2]: str(record["name"]) for record in network_records()}
    listing = "`inferometer models` lists them; a file or folder may be given by its path."
    return UnknownNameError(
        "model", source, {*rows.by_name, *shipped_nets()}, listing=listing, words={**packages, **rows.words()}
    )
