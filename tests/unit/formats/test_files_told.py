"""What the small programs among the tests' files become, op by op: PyTorch's and ExecuTorch's.

`files_told.txt` names each file below tests/data. `python tests/unit/formats/test_files_told.py` writes the lines below
the names anew (with src and tests on the path); `make.py` beside the files has the modules that they were made of.
"""

from pathlib import Path

from inferometer.formats.detect import read_graph
from unit.formats.listing import graph_lines, holds, rewrite

TOLD = Path(__file__).parent / "files_told.txt"
DATA = Path(__file__).parents[2] / "data"


def read(case):
    graph = read_graph(DATA / case)
    yield from graph_lines(graph)
    yield f"{graph.parameters} parameters, {graph.metadata.get('coverage')}"


test_every_file_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
