"""Which options the servers' own parsers take, read from their sources without running them.

`python tests/data/launch_options/record.py vllm 0.19.0 FOLDER sglang 0.5.9 FOLDER …` writes options.json beside this
file; a FOLDER is an unpacked sdist of that version, or a clone: TensorRT-LLM's sdist has no sources.
"""

import ast
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

# Where each engine adds the options of its server. vLLM has moved the file of its front end.
_FILES = {
    "vllm": ("vllm/engine/arg_utils.py", "vllm/entrypoints/openai/cli_args.py", "vllm/entrypoints/common/cli_args.py"),
    "sglang": ("sglang/srt/server_args.py",),
    "trtllm": ("tensorrt_llm/commands/serve.py",),
}
_FIELDS = frozenset({"BaseFrontendArgs", "FrontendArgs"})  # vLLM makes --host and --port of the fields of these


def options_of(source):
    """Every literal name of an option, and the fields of a dataclass whose options are made of them."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"add_argument", "option"}:
            for given in node.args:
                if isinstance(given, ast.Constant) and str(given.value).startswith("--"):
                    yield given.value
        if isinstance(node, ast.ClassDef) and node.name in _FIELDS:
            for entry in node.body:
                if isinstance(entry, ast.AnnAssign):
                    yield "--" + entry.target.id.replace("_", "-")


def main():
    found = {}
    for engine, version, folder in zip(*[iter(sys.argv[1:])] * 3, strict=True):
        read = [path for name in _FILES[engine] for path in sorted(Path(folder).rglob(name))]
        names = sorted({name for path in read for name in options_of(path.read_text(encoding="utf-8"))})
        found.setdefault(engine, []).append({
            "version": version, "read": [path.relative_to(folder).as_posix() for path in read], "options": names,
        })  # fmt: skip
    document = {"date": datetime.now(UTC).date().isoformat(), "engines": found}
    Path(__file__).with_name("options.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
