"""Safetensors checkpoints: headers only; with a config.json beside them the whole architecture."""

from inferometer.formats.safetensors.read import SafetensorsReader

__all__ = ["SafetensorsReader", "reader"]

reader = SafetensorsReader()
