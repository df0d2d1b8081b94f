"""`make data DATA=folder [ONLY=name,…] [WRITE=1]`: make the data files of the wheel again, and say what differs.

workshop/files.toml says which maker makes which files of which data. Makers run one after the other in a copy of the
package (build/data/src), so that each finds what those before it made, and the package itself stays as it is until
WRITE=1. What was made is kept by a hash of all that went into it (data, code, files of other makers): a second call
makes only what has changed. A maker whose data or libraries are absent is passed over, and says what it lacks.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from workshop.differing import difference

ROOT = Path(__file__).parents[1]
_SEAL = re.compile(r"-[0-9a-f]{8}(?=\.json$)")
_BEGIN, _END = "<!-- made by `python -m workshop.make --page` -->\n", "<!-- end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """A row of files.toml. Paths of `makes` and `code` are in the package, those of `data` in the folder with the data.

    `steps` are modules with their arguments, run in turn; `{data}`, `{made}` and `{work}` (a folder that is kept while
    nothing that goes in has changed) are filled in. A maker without steps cannot be run again: `how` says why.
    """

    name: str
    makes: tuple[str, ...]
    how: str
    made: str  # the date that its files state
    script: str = ""
    steps: tuple[tuple[str, ...], ...] = ()
    data: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()  # data that the repository has, in workshop/recorded
    needs: tuple[str, ...] = ()  # distributions, with a release where the result depends on it
    after: tuple[str, ...] = ()  # makers whose files it reads
    code: tuple[str, ...] = ()


def read_makers(root: Path = ROOT) -> tuple[Maker, ...]:
    rows = tomllib.loads((root / "workshop" / "files.toml").read_text(encoding="utf-8"))["maker"]
    return msgspec.convert(rows, tuple[Maker, ...])


def files_of(makes: Iterable[str], package: Path) -> list[Path]:
    """Relative to the package, each once."""
    return sorted({path.relative_to(package) for pattern in makes for path in package.glob(pattern) if path.is_file()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """One call of `make data`: where the package and the data are, and what was made before."""

    root: Path
    data: Path | None
    makers: Mapping[str, Maker]

    @property
    def package(self) -> Path:
        return self.root / "src" / "inferometer"

    @property
    def build(self) -> Path:
        return self.root / "build" / "data"

    @property
    def copy(self) -> Path:
        return self.build / "src" / "inferometer"

    def lacks(self, maker: Maker) -> str | None:
        """What must be there and is not."""
        if maker.data and self.data is None:
            return f"needs DATA=folder, with {', '.join(maker.data)}"
        missing = [pattern for pattern in maker.data if self.data is None or not any(self.data.glob(pattern))]
        if missing:
            return f"{self.data} has no {', '.join(missing)}"
        absent = [need for need in maker.needs if not is_installed(need)]
        return f"needs {', '.join(absent)}" if absent else None

    def inputs(self, maker: Maker) -> str:
        """A hash of all that its files are made of."""
        everyones = {path for each in self.makers.values() for path in files_of(each.makes, self.copy)}
        others = [path for name in maker.after for path in files_of(self.makers[name].makes, self.copy)]
        code = (path.relative_to(self.copy) for name in maker.code for path in (self.copy / name).rglob("*.*"))
        own = [path for path in code if path not in everyones and "__pycache__" not in path.parts]
        scripts = {self.root.joinpath(*module.split(".")).parent for module, *_ in maker.steps}
        data = [] if self.data is None else files_of(maker.data, self.data)
        files = (
            *(self.copy / path for path in sorted({*own, *others})),
            *sorted(path for folder in scripts for path in folder.rglob("*.py")),
            *sorted(self.root / "workshop" / "recorded" / name for name in maker.recorded),
            *(Path(self.data or "") / path for path in data),
        )
        libraries = [version(need.partition("==")[0]) for need in maker.needs]
        digest = hashlib.sha256(repr((maker.steps, maker.made, libraries)).encode())
        for path in files:
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def make(self, maker: Maker) -> str:
        """Put its files into the copy: those of before where nothing that goes in has changed, else new ones."""
        inputs = self.inputs(maker)
        kept, mark = self.build / "made" / maker.name, self.build / "made" / f"{maker.name}.json"
        if mark.is_file() and json.loads(mark.read_text()) == {"inputs": inputs, "files": _hashes(kept)}:
            self._replace(maker, kept)
            return "nothing that goes in has changed"
        work = self.build / "work" / f"{maker.name}-{inputs[:12]}"
        work.mkdir(parents=True, exist_ok=True)
        for module, *words in maker.steps:
            filled = [word.format(data=self.data, made=maker.made, work=work) for word in words]
            done = subprocess.run(
                [sys.executable, "-m", module, *filled], cwd=self.root, env=self._environment(), capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            (work / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
            if done.returncode:
                self._replace(maker, self.package)
                last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
                return f"failed: {module} says {last!r} ({work / 'log.txt'})"
        shutil.rmtree(kept, ignore_errors=True)
        for path in files_of(maker.makes, self.copy):
            (kept / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.copy / path, kept / path)
        mark.write_text(json.dumps({"inputs": inputs, "files": _hashes(kept)}))
        return "made"

    def _replace(self, maker: Maker, source: Path) -> None:
        """The maker's files in the copy are those of `source`, and no others."""
        for path in files_of(maker.makes, self.copy):
            (self.copy / path).unlink()
        for path in files_of(maker.makes, source):
            (self.copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / path, self.copy / path)

    def _environment(self) -> dict[str, str]:
        """The copy comes first, a user's own tables stay out, and sums are added up in one order."""
        return {
            **os.environ,  # noqa: TID251 - the child's, but for these
            "PYTHONPATH": os.pathsep.join(map(str, (self.copy.parent, self.root))),
            "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "INFEROMETER_DATA": str(self.build / "no-own-data"), "INFEROMETER_CACHE": str(self.build / "cache"),
        }  # fmt: skip

    def differences(self, maker: Maker) -> Iterator[tuple[Path, str]]:
        """Each of its files, made beside shipped. Names meet without the seal that a calibration ends with."""
        shipped = {_SEAL.sub("", path.as_posix()): path for path in files_of(maker.makes, self.package)}
        made = {_SEAL.sub("", path.as_posix()): path for path in files_of(maker.makes, self.copy)}
        for name in sorted({*shipped, *made}):
            path, other = shipped.get(name) or made[name], made.get(name) or shipped[name]
            yield path, difference(self.package / path, self.copy / other)

    def put_into_the_package(self, maker: Maker) -> None:
        for path in files_of(maker.makes, self.package):
            if not (self.copy / path).is_file():
                (self.package / path).unlink()
        for path in files_of(maker.makes, self.copy):
            (self.package / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.copy / path, self.package / path)


def is_installed(need: str) -> bool:
    """`scipy` in any release, `timm==1.0.30` in this one."""
    name, _, release = need.partition("==")
    try:
        return release in {"", version(name)}
    except PackageNotFoundError:
        return False


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def make_all(shop: Workshop, chosen: Sequence[str], *, write: bool = False) -> int:
    """Every chosen maker in turn, a line for each and for each file that differs; the number of those that failed."""
    if shop.copy.exists():
        shutil.rmtree(shop.copy)
    shutil.copytree(shop.package, shop.copy, ignore=shutil.ignore_patterns("__pycache__"))
    failed = 0
    for maker in shop.makers.values():
        if not maker.steps or (chosen and maker.name not in chosen):
            continue
        if (lack := shop.lacks(maker)) is not None:
            print(f"{maker.name}: not made: {lack}", flush=True)
            continue
        print(f"{maker.name}: …", flush=True)
        said = shop.make(maker)
        failed += said.startswith("failed")
        told = list(shop.differences(maker))
        equal = sum(text == "equal" for _, text in told)
        print(f"{maker.name}: {said}; {equal} of {len(told)} files equal", flush=True)
        for path, text in told:
            if text != "equal":
                print(f"  {path.as_posix()}: {text}", flush=True)
        if write:
            shop.put_into_the_package(maker)
    return failed


def table(makers: Iterable[Maker], root: Path = ROOT) -> str:
    """Every data file of the wheel, for workshop/README.md."""
    lines = ["| files in `src/inferometer` | | made by | of | last made |", "|---|---:|---|---|---|"]
    for maker in makers:
        count = len(files_of(maker.makes, root / "src" / "inferometer"))
        files = "<br>".join(f"`{pattern}`" for pattern in maker.makes)
        by = f"`python -m {maker.script}`" if maker.script else ""
        name = f"**{maker.name}**" if maker.steps else ""
        data = [f"`{each}`" for each in (*(f"DATA/{one}" for one in maker.data), *maker.recorded, *maker.needs)]
        of = ", ".join((*(f"**{other}**" for other in maker.after), *data))
        lines.append(f"| {files} | {count} | {' '.join(filter(None, (name, by, maker.how)))} | {of} | {maker.made} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m workshop.make", description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder with the data that makers need")
    parser.add_argument("--only", default="", help="these makers, with commas between")
    parser.add_argument("--write", action="store_true", help="put what differs into the package")
    parser.add_argument("--page", action="store_true", help="write the table of workshop/README.md, and make nothing")
    asked = parser.parse_args(arguments)
    makers = {maker.name: maker for maker in read_makers(root)}
    if asked.page:
        page = root / "workshop" / "README.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
        page.write_text(
            before + _BEGIN + table(makers.values(), root) + _END + rest.partition(_END)[2], encoding="utf-8"
        )
        return 0
    chosen = [name for name in asked.only.split(",") if name]
    if unknown := sorted({*chosen} - {name for name, maker in makers.items() if maker.steps}):
        known = ", ".join(name for name, maker in makers.items() if maker.steps)
        parser.error(f"there is no maker {', '.join(unknown)} that runs; there are: {known}")
    data = None if asked.data is None else asked.data.resolve()
    return make_all(Workshop(root=root, data=data, makers=makers), chosen, write=asked.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
