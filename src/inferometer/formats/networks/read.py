"""From `timm:resnet50` to its graph: as shipped, else through the installed package.

A graph is made for one size of image, which a name may say (`timm:resnet50@288`). The shipped graphs were traced from
the same package by the same code, so that both ways give one answer.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from inferometer.core.dims import Dim, Symbol
from inferometer.core.errors import DomainError, FormatError, InferometerError, MissingDependencyError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.networks.shipped import networks, shipped_graph
from inferometer.formats.torch.pretrained import import_torch, read_module
from inferometer.known.zoo import NetworkName

# A network of an installed package as a graph: built on the meta device (no weights), traced, its batch left open.
#
# Tracing with an open batch costs four times as much as with a fixed one, and some networks fix it anyway. So the
# trace is taken at a batch that no network has as a size of its own, a prime, and every size that it divides is that
# many batches.

MARK = 10_007  # the batch a network is traced at
_BATCH = Symbol("batch")


def traced(module: Any, inputs: tuple[Any, ...], *, name: str, trace: Callable[..., Graph] = read_module) -> Graph:
    """The graph of a module whose inputs have MARK as their batch. Formats are left to the workload."""
    graph = trace(module, inputs, name=name)
    opened = _Opening(precision=graph.precision)
    return replace(
        graph,
        blocks=tuple(replace(block, ops=tuple(map(opened.op, block.ops))) for block in graph.blocks),
        inputs=tuple(map(opened.tensor, graph.inputs)),
        outputs=tuple(map(opened.tensor, graph.outputs)),
        metadata={},
    )


class _Opening:
    """Ops and tensors with the mark taken for the batch, and the network's own number format for none."""

    def __init__(self, *, precision: str | None) -> None:
        self.precision = precision

    def op(self, op: Op) -> Op:
        return replace(
            op,
            inputs=tuple(map(self.tensor, op.inputs)),
            outputs=tuple(map(self.tensor, op.outputs)),
            weights=tuple(map(self.tensor, op.weights)),
            attributes={key: self.value(value) for key, value in _one_image(op).items()},
        )

    def tensor(self, tensor: Tensor) -> Tensor:
        kept = None if tensor.dtype == self.precision else tensor.dtype
        return replace(tensor, shape=tuple(map(_in_batches, tensor.shape)), dtype=kept)

    def value(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | tuple | Op):
            return value
        if isinstance(value, Op):
            return self.op(value)
        return tuple(map(self.value, value)) if isinstance(value, tuple) else _in_batches(value)


def _one_image(op: Op) -> Mapping[str, Any]:
    """The attributes of a convolution that has a kernel for each image, and its batch among the channels.

    Its channels and groups are those of one image: what each output sums is the same, and the shapes have the batch.
    """
    if op.kind != "convolution" or op.get("groups", 1) % MARK:
        return op.attributes
    channels = {key: op[key] // MARK for key in ("in_channels", "out_channels", "groups")}
    return {**op.attributes, **channels}


def _in_batches(dim: Dim) -> Dim:
    if isinstance(dim, int) and dim and dim % MARK == 0:
        return _BATCH * (dim // MARK)
    return dim


# The packages whose networks have names here, and how each makes one: on the meta device, without weights.

_SEGMENTERS = r"fcn_|deeplab|lraspp"


@frozen
class NetworkPackage:
    """`names` lists what the installed package knows; `build` makes a module for images of a side.

    `usual` is the shape of the image that a network is used with where none is asked for: channels, height, width.
    `needs` are the modules that must be there.
    """

    name: str
    needs: tuple[str, ...]
    names: Callable[[], Iterable[str]]
    build: Callable[[str, int | None], Any]
    usual: Callable[[str], tuple[int, int, int]]


def installed(package: str) -> bool:
    return package in PACKAGES and all(find_spec(module) is not None for module in PACKAGES[package].needs)


def usual_image(package: NetworkPackage, name: str) -> int:
    """The side, of two the width, of the image that a network is used with."""
    return package.usual(name)[-1]


def built(package: NetworkPackage, name: str, image: int | None) -> tuple[Any, tuple[int, int, int]]:
    """The module, and the shape of its image: a square, if a side is given that is not the usual one."""
    torch = import_torch()
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # remarks on deprecated names are no news about the network
            module = package.build(name, image).eval()
    except InferometerError:
        raise
    except Exception as error:  # whatever the package's code raises
        raise FormatError(
            f"{package.name} cannot build {name!r}{'' if image is None else f' for images of {image} pixels'}: {error}",
            remedy="Check the size, or upgrade the package.",
        ) from error
    channels, height, width = package.usual(name)
    return module, (channels, height, width) if image in {None, width} else (channels, image or height, image or width)


def _timm_names() -> Iterable[str]:
    timm = import_module("timm")
    return (*timm.list_models(), *timm.list_pretrained())


def _timm_build(name: str, image: int | None) -> Any:
    """Only networks that are made for one size take it when they are made; the others take any."""
    create = import_module("timm").create_model
    try:
        module = create(name) if image is None else create(name, img_size=image)
    except (TypeError, AssertionError):
        module = create(name)
    # Branches for training are folded into one, as for deployment and in timm's benchmarks since torch 2.9.
    return import_module("timm.utils").reparameterize_model(module, inplace=True)


def _timm_usual(name: str) -> tuple[int, int, int]:
    config = import_module("timm").get_pretrained_cfg(name)
    return (3, 224, 224) if config is None else config.input_size


def _torchvision_names() -> Iterable[str]:
    """Networks of images: not of video, of optical flow, or quantised; of the detectors, the single-stage ones."""
    models = import_module("torchvision.models")
    modules = (models, models.segmentation)
    known = [name for module in modules for name in models.list_models(module=module)]
    return (*known, *(name for name in models.list_models(module=models.detection) if _looks_once(name)))


def _looks_once(name: str) -> bool:
    """R-CNNs look again at the boxes that they propose, which depend on what is seen."""
    return name.startswith(("ssd", "retinanet", "fcos"))


def _torchvision_build(name: str, image: int | None) -> Any:
    get_model = import_module("torchvision.models").get_model
    given: dict[str, Any] = {"image_size": image} if image is not None and name.startswith("vit_") else {}
    if _looks_once(name) or re.match(_SEGMENTERS, name):
        given["weights_backbone"] = None
    module = get_model(name, weights=None, **given)
    return _detector(module) if _looks_once(name) else module


def _detector(module: Any) -> Any:
    """A detector without what resizes images before it and chooses boxes after it."""
    torch = import_torch()

    class Looking(torch.nn.Module):  # type: ignore[name-defined, misc] # torch is imported when it is needed
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = module.backbone, module.head

        def forward(self, image: Any) -> Any:
            return self.head(list(self.backbone(image).values()))

    return Looking()


# Where the crop of torchvision's own weights is not 224, and no rule of a kind of network says it.
_TORCHVISION_SIDES = {
    "inception_v3": 299,
    "ssd300_vgg16": 300,
    "ssdlite320_mobilenet_v3_large": 320,
    "efficientnet_b1": 240,
    "efficientnet_b2": 288,
    "efficientnet_b3": 300,
    "efficientnet_b4": 380,
    "efficientnet_b5": 456,
    "efficientnet_b6": 528,
    "efficientnet_b7": 600,
    "efficientnet_v2_s": 384,
    "efficientnet_v2_m": 480,
    "efficientnet_v2_l": 480,
    "swin_v2_t": 256,
    "swin_v2_s": 256,
    "swin_v2_b": 256,
    "vit_h_14": 518,
}


def _torchvision_usual(name: str) -> tuple[int, int, int]:
    rule = 800 if _looks_once(name) else 520 if re.match(_SEGMENTERS, name) else 224
    side = _TORCHVISION_SIDES.get(name, rule)
    return 3, side, side


PACKAGES = {
    "timm": NetworkPackage(
        name="timm", needs=("torch", "timm"), names=_timm_names, build=_timm_build, usual=_timm_usual
    ),
    "torchvision": NetworkPackage(
        name="torchvision",
        needs=("torch", "torchvision"),
        names=_torchvision_names,
        build=_torchvision_build,
        usual=_torchvision_usual,
    ),
}


def read_network(asked: NetworkName, *, image: int | None = None) -> Graph:
    """The graph at the size of image that was asked for, else at the network's usual one."""
    if None not in {image, asked.image} and image != asked.image:
        raise DomainError(f"{asked}@{asked.image} is asked for with images of {image} pixels.", remedy="Give one size.")
    side = image or asked.image
    shipped = networks(asked.package).get(asked.network)
    if shipped is not None and (side is None or side in shipped.images):
        side = side or shipped.image
        return _described(shipped_graph(asked.package, asked.network, side), side)
    if installed(asked.package):
        from inferometer.formats.torch.pretrained import import_torch  # noqa: PLC0415 - a shipped graph needs no torch

        package = PACKAGES[asked.package]
        if asked.network not in package.names():
            raise _unknown(asked)
        module, shape = built(package, asked.network, side)
        pixels = import_torch().empty(MARK, *shape, device="meta")
        return _described(traced(module, (pixels,), name=str(asked)), shape[-1])
    if shipped is None:
        raise _unknown(asked)
    at_hand = f"{asked} is at hand for images of {', '.join(map(str, shipped.images))} pixels, and not of {side}"
    if asked.package not in PACKAGES:  # of a benchmark, whose own definition is no module of Python
        raise DomainError(f"{at_hand}.", remedy="Ask for one of these sizes.")
    raise MissingDependencyError(
        f"{at_hand}; another size needs {asked.package}, which is not installed.",
        remedy=f"pip install 'inferometer[torch]' {asked.package}, or ask for one of these sizes.",
    )


def _described(graph: Graph, image: int) -> Graph:
    """With the size of its image, which is no open size of the graph and is asked for all the same."""
    return replace(graph, metadata={**graph.metadata, "image": image, "default_sizes": {"image": image}})


def _unknown(asked: NetworkName) -> UnknownNameError:
    known = {f"{asked.package}:{name}" for name in networks(asked.package)}
    if installed(asked.package):
        known |= {f"{asked.package}:{name}" for name in PACKAGES[asked.package].names()}
    listing = f"`inferometer models --where family={asked.package}` lists them."
    return UnknownNameError("model", str(asked), known, listing=listing)
