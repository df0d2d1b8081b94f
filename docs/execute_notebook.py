"""Execute the notebooks of the tutorials (or those named), so that the site shows what they print: `make notebooks`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "tutorials"


def main(arguments: list[str]) -> int:
    for path in map(Path, arguments) if arguments else sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as work:  # a notebook may write files
            NotebookClient(notebook, timeout=600, resources={"metadata": {"path": work}}).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # when each cell ran says nothing to a reader
        nbformat.write(notebook, path)
        sys.stdout.write(f"{path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
