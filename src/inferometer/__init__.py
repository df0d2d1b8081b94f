"""Inferometer: predict, measure and explain how fast a model runs on a device."""

__version__ = "0.1.0"

__all__ = ["__version__"]
