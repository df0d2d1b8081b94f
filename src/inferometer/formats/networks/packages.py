"""The packages whose networks have names here, and how each makes one: on the meta device, without weights."""

import re
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.formats.torch.live import import_torch

_SEGMENTERS = r"fcn_|deeplab|lraspp"


@frozen
class Package:
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
    return all(find_spec(module) is not None for module in PACKAGES[package].needs)


def usual_image(package: Package, name: str) -> int:
    """The side, of two the width, of the image that a network is used with."""
    return package.usual(name)[-1]


def built(package: Package, name: str, image: int | None) -> tuple[Any, tuple[int, int, int]]:
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
    """Those of images: not of video, of optical flow, or quantised; of the detectors those that look once."""
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


def _torchvision_usual(name: str) -> tuple[int, int, int]:
    sides = {"inception_v3": 299, "ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}
    side = sides.get(name, 800 if _looks_once(name) else 520 if re.match(_SEGMENTERS, name) else 224)
    return 3, side, side


def _benchmarked(prefix: str) -> Package:
    """Networks that are defined here: of benchmarks whose own definitions are no module of Python."""

    def networks() -> Any:
        from inferometer.formats.networks.benchmarked import NETWORKS  # noqa: PLC0415 - brings torch

        return NETWORKS

    return Package(
        name=prefix,
        needs=("torch",),
        names=lambda: tuple(name.partition(":")[2] for name in networks() if name.startswith(f"{prefix}:")),
        build=lambda name, _image: networks()[f"{prefix}:{name}"][0](),
        usual=lambda name: (3, *networks()[f"{prefix}:{name}"][1]),
    )


PACKAGES = {
    "timm": Package(name="timm", needs=("torch", "timm"), names=_timm_names, build=_timm_build, usual=_timm_usual),
    "torchvision": Package(
        name="torchvision",
        needs=("torch", "torchvision"),
        names=_torchvision_names,
        build=_torchvision_build,
        usual=_torchvision_usual,
    ),
    "ncnn": _benchmarked("ncnn"),
    "openvino": _benchmarked("openvino"),
}
