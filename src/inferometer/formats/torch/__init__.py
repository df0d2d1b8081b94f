"""PyTorch: exported programs (`.pt2`), live modules, and Hugging Face modules without memory.

Files are read without torch. Modules are read through `torch.export`, which needs it.
"""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes
from inferometer.formats.torch.reader import TorchReader, read_pt2

if TYPE_CHECKING:
    from inferometer.formats.torch.pretrained import read_exported, read_module, read_pretrained_config

__all__ = ["TorchReader", "read_exported", "read_module", "read_pretrained_config", "read_pt2", "reader"]

reader = TorchReader()

__getattr__ = attributes(
    __name__, {"inferometer.formats.torch.pretrained": ("read_exported", "read_module", "read_pretrained_config")}
)
