"""Opening safetensors: a file, a sharded model's index, or a model's folder."""

from pathlib import Path

from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.safetensors.files import config_beside, headers_of
from inferometer.formats.safetensors.graph import safetensors_graph
from inferometer.formats.safetensors.header import HEADER_LIMIT


class SafetensorsReader:
    name = "safetensors"
    formats = frozenset({"safetensors"})

    def match(self, peek: Peek) -> float:
        """There is no magic number: a sensible length before a JSON object that says where tensors lie."""
        if peek.is_folder:
            return (
                0.9 if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in peek.names) else 0.0
            )
        head = peek.head
        if head[:1] == b"{":
            return 0.9 if b'"weight_map"' in head and b".safetensors" in head else 0.0
        length = int.from_bytes(head[:8], "little")
        if head[8:9] != b"{" or not 2 <= length <= min(HEADER_LIMIT, peek.size - 8):
            return 0.0
        text = head[8 : 8 + length]
        return 0.95 if b'"data_offsets"' in text or b'"__metadata__"' in text or text.strip() == b"{}" else 0.0

    def read(self, path: Path) -> Graph:
        path = Path(path)
        name = path.name if path.is_dir() else _name(path)
        return safetensors_graph(headers_of(path), config_beside(path), name=name)


def _name(path: Path) -> str:
    """Files of a model are all called alike; its folder has its name."""
    plain = path.stem.partition(".")[0].partition("-0")[0]
    return path.resolve().parent.name if plain in {"model", "diffusion_pytorch_model", "pytorch_model"} else path.stem
