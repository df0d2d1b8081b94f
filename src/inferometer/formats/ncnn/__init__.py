"""ncnn's files: a text of layers (.param), and their weights in a .bin file beside it."""

from inferometer.formats.ncnn.read import NcnnReader

reader = NcnnReader()

__all__ = ["NcnnReader", "reader"]
