"""MNN's files (.mnn): a flatbuffer with the operators, their parameters and their weights."""

from inferometer.formats.mnn.read import MnnReader

reader = MnnReader()

__all__ = ["MnnReader", "reader"]
