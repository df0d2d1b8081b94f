"""ONNX: models as ONNX files hold them, read by their headers alone."""

from inferometer.formats.onnx.reader import OnnxReader

__all__ = ["OnnxReader", "reader"]

reader = OnnxReader()
