"""How networks of packages are written: `timm:resnet50`, and `timm:resnet50@288` for images of 288 pixels."""

import re

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen

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
