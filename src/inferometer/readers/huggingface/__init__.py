"""Hugging Face configs: architecture templates as data, expanded into a Graph."""

from inferometer.readers.huggingface.family import families
from inferometer.readers.huggingface.graph import graph_from_config
from inferometer.readers.huggingface.read import reader

__all__ = ["families", "graph_from_config", "reader"]
