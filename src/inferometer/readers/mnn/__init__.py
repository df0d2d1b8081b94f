"""MNN's files (.mnn): a flatbuffer with the operators, their parameters and their weights."""

from inferometer.readers.mnn.read import MnnReader

reader = MnnReader()

__all__ = ["MnnReader", "reader"]
