"""How many files a journey of CONTRIBUTING.md takes: adding an engine, a model family, a finding, a field; one answer.

Counted twice. By history: the files of each commit that did it, those it made and those it changed. By standing: the
files that name it today, outside of the folder that is its own. That is no less than the next one must touch, and may
be more: a word can mean something else, too (`mnn` is a format). Of what may be asked, only names of two words count.
The way of a prediction is watched: the functions that a process's first one calls, and the files they stand in.

`python benchmarks/journeys.py` prints both; it needs the repository's history.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import inferometer
from inferometer.core.finding import CODES
from inferometer.predict.fields import FIELDS

ROOT = Path(__file__).parents[1]
ENGINES = sorted(path.name.partition(".")[0] for path in (ROOT / "src/inferometer/engines").glob("*/*.engine.toml"))
# A line by which a commit is known to have added one, and where it stands; folders had other names before the move.
ADDED = {
    "an engine": (r"", "src/inferometer/*/*/session.py"),
    "a model family": (r"^\+\[\w+\]", "src/inferometer/*/huggingface/families/*.toml"),
    "a finding": (r'^\+\["[a-z.-]+"\]', "src/inferometer/*/findings.toml"),
    "something asked": (r'^\+    "\w+": Field\(', "src/inferometer/predict/fields.py"),
}
WHERE = ("src", "pyproject.toml", "constraints.txt")  # tests and pages name things to show them, not to make them work


def git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commits(line: str, path: str) -> Iterable[tuple[str, int, int]]:
    """Subject, files made, files changed, for each commit that added one, or two at once."""
    kind = ["--diff-filter=A"] if not line else []
    for commit in git("log", *kind, "--no-merges", "--format=%h", "--", path).split():
        names = git("show", "--format=", "--name-status", commit, "--", path).split("\n")
        adds = re.findall(line, git("show", "--format=", commit, "--", path), re.MULTILINE) if line else names[:-1]
        if 0 < len(adds) <= 2:
            status = [row[0] for row in git("show", "--format=", "--name-status", commit).splitlines() if row]
            yield git("log", "-1", "--format=%h %s", commit).strip(), status.count("A"), len(status) - status.count("A")


def naming(words: Iterable[str], own: str = "") -> list[int]:
    """For each name, the files that have it in quotes, without its own folder."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for root in WHERE
        for path in ([ROOT / root] if (ROOT / root).is_file() else (ROOT / root).rglob("*.*"))
        if path.suffix in {".py", ".toml", ".txt"} and "data" not in path.parts
    }
    found = []
    for word in words:
        quoted = re.compile(rf"[\"'`]{re.escape(word)}[\"'`]")
        others = (text for path, text in texts.items() if f"{own}/{word.replace('-', '_')}/" not in str(path))
        found.append(sum(1 for text in others if quoted.search(text)))
    return found


def walked() -> tuple[int, int]:
    """Functions that a process's first prediction calls, and their files; no lambdas, generators or imports."""
    seen = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or "<" in code.co_name or "src/inferometer" not in code.co_filename:
            return
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if frame.f_globals["__name__"] == "__main__":  # else a module that is being imported calls it
            seen.add((code.co_filename, code.co_qualname))

    sys.setprofile(watch)
    inferometer.predict("llama-3.1-8b", on="nvidia-l40s")
    sys.setprofile(None)
    return len(seen), len({file for file, _ in seen})


if __name__ == "__main__":
    functions, files = walked()  # before anything else is asked
    print(f"a first prediction: {functions} functions in {files} files")
    standing = {
        "an engine": naming(ENGINES, "engines"),
        "a finding": naming(CODES),
        "something asked": naming(name for name in FIELDS if "_" in name),
    }
    for what, (line, path) in ADDED.items():
        named = standing.get(what)
        print(what + (f": {median(named):g} files name one today ({min(named)}–{max(named)})" if named else ""))
        for subject, made, changed in commits(line, path):
            print(f"  {made} made, {changed} changed  {subject}")
