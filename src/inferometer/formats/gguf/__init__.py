"""GGUF files (llama.cpp): header only, mixed quantisation as stored."""

from inferometer.formats.gguf.read import GgufReader, read_headers

__all__ = ["GgufReader", "read_headers", "reader"]

reader = GgufReader()
