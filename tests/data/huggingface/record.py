"""Record what transformers and diffusers store for a tiny model of each family.

Run in an environment with torch and the library: `python record.py [case …]`. Each case of `cases.json` becomes
`<case>.json`: the config as a person would write it, and the name and shape of every tensor in the safetensors file
that the library saves. Buffers that are stored but are no parameters are listed apart.

`python record.py --configs [case …]` only adds the config.json that this version of the library saves, unless the case
says why that would be another model. Tensors were recorded with transformers 4.57, whose files have the names that
published checkpoints have.
"""

import importlib
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> None:
    cases = json.loads((HERE / "cases.json").read_text())
    only_configs = "--configs" in arguments
    for case in [name for name in arguments if name != "--configs"] or cases:
        library = cases[case].get("library", "transformers")
        if only_configs and "configs_differ" in cases[case]:
            continue
        path = HERE / f"{case}.json"
        found = recorded(library, cases[case]["class"], cases[case]["config"])
        document = {**found, "other_configs": {}}
        if only_configs:
            document = json.loads(path.read_text())
            document["other_configs"][f"{library} {version(library)}"] = found["saved_config"]
        path.write_text(written(document))


def recorded(library: str, class_name: str, config: dict) -> dict:
    model = build(library, class_name, config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = json.loads(Path(folder, "config.json").read_text())
        tensors = stored(Path(folder))
    # a file may have another name for the module that holds the body than the class has
    inside = {name.partition(".")[2] for name, _ in model.named_buffers()}
    buffers = {name for name in tensors if name.partition(".")[2] in inside}
    named = {"_class_name": class_name} if library == "diffusers" else {"architectures": [class_name]}
    return {
        "recorded_with": {name: version(name) for name in ("torch", library)},
        "config": {**named, **config},
        "saved_config": saved,
        "parameter_count": sum(tensor.numel() for tensor in model.parameters()),
        "buffers": {name: shape for name, shape in tensors.items() if name in buffers},
        "parameters": {name: shape for name, shape in tensors.items() if name not in buffers},
    }


def build(library: str, class_name: str, config: dict):
    kind = getattr(importlib.import_module(library), class_name)
    if library == "diffusers":
        return kind.from_config(config)
    return kind(kind.config_class(**{key: value for key, value in config.items() if key != "model_type"}))


def stored(folder: Path) -> dict[str, list[int]]:
    tensors = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        tensors |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    return dict(sorted(tensors.items()))


def written(document: dict) -> str:
    """One line a config and one a tensor."""
    order = ("recorded_with", "config", "saved_config", "parameter_count")
    lines = [f"{json.dumps(key)}: {json.dumps(document[key])}" for key in order]
    for key in ("other_configs", "buffers", "parameters"):
        inside = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document[key].items())
        lines.append(f"{json.dumps(key)}: {{\n  {inside}\n }}" if inside else f"{json.dumps(key)}: {{}}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
