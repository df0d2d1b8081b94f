"""TFLite (LiteRT) models: `.tflite` flatbuffers, and bundles of them (`.task`)."""

from inferometer.formats.tflite.read import TfliteReader, read_tflite

__all__ = ["TfliteReader", "read_tflite", "reader"]

reader = TfliteReader()
