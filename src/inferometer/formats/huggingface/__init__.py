"""Hugging Face configs: architecture templates as data, expanded into a Graph."""

from inferometer.formats.huggingface.family import families
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.huggingface.read import reader

__all__ = ["families", "graph_from_config", "reader"]
