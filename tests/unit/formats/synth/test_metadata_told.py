"""What a GGUF file says of each tiny model that can be written as one: its metadata, but for the tokens themselves.

`metadata_told.txt` names the configs of tests/data/huggingface. `python tests/unit/formats/synth/test_metadata_told.py`
writes the lines below the names anew (with src and tests on the path): each number is one of the config's own.
"""

import json
from pathlib import Path

from inferometer.formats.gguf.write.metadata import metadata_of
from inferometer.formats.huggingface.graph import graph_from_config
from unit.formats.listing import holds, rewrite

TOLD = Path(__file__).parent / "metadata_told.txt"
CONFIGS = Path(__file__).parents[3] / "data" / "huggingface"


def read(case):
    config = json.loads((CONFIGS / f"{case}.json").read_text())["config"] | {"vocab_size": 300}  # all bytes, and marks
    for key, value in metadata_of(graph_from_config(config, name=case), config, file_type=7, seed=3).items():
        many = isinstance(value, tuple | list) and len(value) > 16
        told = f"{len(value)} entries, {value[0]!r} to {value[-1]!r}" if many else repr(value)
        yield f"{key} = {told}"


test_every_model_says_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
