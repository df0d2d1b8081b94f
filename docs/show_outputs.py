"""Write what commands print into the pages that show them: `make outputs`.

In `docs/questions` and `docs/tutorials`, every `$ inferometer …` of a console block that measures nothing is run, and
its output stands below it, cut to what a reader looks at. Commands that measure (and those beside them, which read what
was measured) are left alone: their times are of one machine and one moment. The tests run all of them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)  # with the lines that a backslash carries on
ASKING = {"predict", "fit", "plan", "sweep", "can-i-run", "simulate"}
LINES, WIDTH = 17, 110  # the answer comes first; more of a table says no more


def main(arguments: list[str]) -> int:
    pages = [path for part in ("questions", "tutorials") for path in sorted((FOLDER / part).glob("*.md"))]
    for path in pages:
        if arguments and path.stem not in arguments:
            continue
        text = path.read_text(encoding="utf-8")
        path.write_text(BLOCK.sub(lambda block: f"```console\n{shown(block[1])}```", text), encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(FOLDER)}\n")
    return 0


def shown(block: str) -> str:
    """A block with the outputs of its commands, or as it is where one of them does more than ask."""
    commands = COMMAND.findall(block)
    if not all(shlex.split(command.replace("\\\n", " "))[1] in ASKING for command in commands):
        return block
    return "\n".join(f"$ {command}\n{printed(command)}" for command in commands)


def printed(command: str) -> str:
    with tempfile.TemporaryDirectory() as data:
        alone = {**os.environ, "INFEROMETER_DATA": data, "COLUMNS": str(WIDTH)}  # noqa: TID251 - the child's
        words = shlex.split(command.replace("\\\n", " "))[1:]
        done = subprocess.run(  # noqa: S603 - a command of ours
            [sys.executable, "-m", "inferometer", *words], capture_output=True, text=True, check=True, env=alone
        )
    # Sentences are cut; a table keeps its columns, and scrolls.
    lines = [
        line.rstrip() if len(line) <= WIDTH or "  " in line or "─" in line else f"{line[: WIDTH - 1].rstrip()}…"
        for line in done.stdout.splitlines()
    ]
    return "\n".join([*lines[:LINES], *(["…"] if len(lines) > LINES else [])]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
