"""Folders of ONNX Runtime GenAI: a config of the generation, and the ONNX file of the decoder."""

from inferometer.formats.onnxruntime_genai.read import GenaiReader

reader = GenaiReader()

__all__ = ["GenaiReader", "reader"]
