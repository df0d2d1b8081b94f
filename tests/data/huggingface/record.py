"""Record what transformers and diffusers store for a tiny model of each family.

Run in an environment with torch, transformers and diffusers: `python record.py [case …]`. Each case is written as
`<case>.json`: the config as a person would write it, the config as the library saves it, and the name and shape of
every tensor in the saved safetensors file. Buffers that are stored but are no parameters are listed apart.
"""

import importlib
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent


def stored(folder: Path) -> dict[str, list[int]]:
    tensors = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        tensors |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    return dict(sorted(tensors.items()))


def build(library: str, class_name: str, config: dict):
    kind = getattr(importlib.import_module(library), class_name)
    if library == "diffusers":
        return kind.from_config(config)
    return kind(kind.config_class(**{key: value for key, value in config.items() if key != "model_type"}))


def record(case: str, row: dict) -> None:
    library = row.get("library", "transformers")
    class_name, config = row["class"], row["config"]
    model = build(library, class_name, config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = json.loads(Path(folder, "config.json").read_text())
        tensors = stored(Path(folder))
    buffers = {name for name, _ in model.named_buffers()}
    named = {"_class_name": class_name} if library == "diffusers" else {"architectures": [class_name]}
    document = {
        "recorded_with": {name: version(name) for name in ("torch", library)},
        "parameter_count": sum(tensor.numel() for tensor in model.parameters()),
        "config": {**named, **config},
        "saved_config": saved,
        "buffers": {name: shape for name, shape in tensors.items() if name in buffers},
        "parameters": {name: shape for name, shape in tensors.items() if name not in buffers},
    }
    (HERE / f"{case}.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    cases = json.loads((HERE / "cases.json").read_text())
    for case in sys.argv[1:] or cases:
        record(case, cases[case])


if __name__ == "__main__":
    main()
