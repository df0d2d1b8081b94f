"""ExecuTorch's programs (.pte): a flatbuffer of instructions and values, and what was lowered to backends behind it."""

from inferometer.formats.executorch.read import PteReader

reader = PteReader()

__all__ = ["PteReader", "reader"]
