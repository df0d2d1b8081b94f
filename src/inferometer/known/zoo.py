"""Models by name: rows of the catalog, and networks of packages (`timm:resnet50`).

A row has a name, what was published about the model, and the config values that shape it.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from inferometer.core.device import Sourced
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.known.files import all_of, one_named
from inferometer.known.load import CatalogRow


@frozen
class CatalogModel:
    """`parameters` is the published count; `config` has Hugging Face's own key names.

    What a row names as `null` is so in config.json: the library has a value of its own for a key that is left out.
    `network` is a package's network that is the same model, where its traced graph says more than the config does.
    """

    name: str
    title: str
    family: str
    aliases: tuple[str, ...] = ()
    year: int | None = None
    parameters: Sourced | None = None
    active_parameters: Sourced | None = None
    context: Sourced | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    network: str | None = None
    notes: str | None = None


def models() -> Mapping[str, CatalogModel]:
    return all_of("models", _model)


def model(name: str) -> CatalogModel:
    """The model of that name or alias, matched exactly."""
    return one_named("models", name, _model, what="model")


def _model(row: CatalogRow) -> CatalogModel:
    config = row.fields.get("config")
    if not isinstance(config, dict) or not config:
        raise row.place.at("config").error("must be a table with the values of the model's config.")
    return row.value(CatalogModel, "config", "null", config={**config, **dict.fromkeys(row.names("null"))})


# How networks of packages are written: `timm:resnet50`, and `timm:resnet50@288` for images of 288 pixels.

PREFIXES = ("timm:", "torchvision:", "ncnn:", "openvino:")
_NAMED = re.compile(rf"(?i)({'|'.join(PREFIXES)})([\w.\-]+?)(?:@(\d+))?")


@frozen
class NetworkName:
    """What a name says: the package, the network, and the side of the image if it says one."""

    package: str
    network: str
    image: int | None = None

    def __str__(self) -> str:
        return f"{self.package}:{self.network}"


def network_named(name: str) -> NetworkName | None:
    """What a name says, if it is written as a package's network; None for any other."""
    found = _NAMED.fullmatch(name.strip())
    if found is None:
        return None
    package, network, image = found.groups()
    return NetworkName(
        package=package.lower().rstrip(":"), network=network.lower(), image=None if image is None else int(image)
    )


def require_file(model: str) -> None:
    """What is to be run needs a file: of a package's network only the graph is known."""
    network = network_named(model)
    if network is not None:
        raise FormatError(
            f"{network} is known by its graph alone, which can be predicted and not run.",
            remedy="Export the network to a file, for example with torch.onnx.export, and give that file.",
        )
