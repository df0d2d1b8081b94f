"""ONNX Runtime's own format (.ort): a flatbuffer of a graph that its optimiser has gone through."""

from inferometer.formats.ort.read import OrtReader

reader = OrtReader()

__all__ = ["OrtReader", "reader"]
