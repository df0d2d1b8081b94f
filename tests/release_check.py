"""`make release-check`: what must hold before a version is published, walked by a script; one line a check.

It builds the wheel and the sdist twice, into build/release, and leaves the bill of materials beside them. What only a
person can judge stands in docs/releasing.md.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "release"
LARGEST = 8.1e6  # bytes of a wheel
SOURCE_DATE = "1767225600"  # of the files in an archive: the same for whoever builds it
ALLOWED = re.compile(r"MIT|BSD|Apache|PSF|Python-2|ISC|MPL|0BSD|Zlib|Unlicense|LGPL", re.IGNORECASE)


def version():
    """The version is a plain one, and the changelog has its section with a date."""
    number = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/inferometer/version.py").read_text("utf-8"))[1]
    heading = re.search(rf"^## {re.escape(number)} — (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if not re.fullmatch(r"\d+\.\d+\.\d+", number):
        return f"{number} is no version to publish"
    if heading is None:
        return f"CHANGELOG.md has no section {number}"
    dated = re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1])
    return None if dated else f"the section {number} is {heading[1]!r}, not dated"


def docs():
    """`make docs` leaves no change."""
    sys.path.insert(0, str(ROOT / "docs"))
    import generate

    stale = [name for name, write in generate.pages().items() if (ROOT / "docs" / name).read_text("utf-8") != write()]
    return f"not as the code has them: {', '.join(stale)}" if stale else None


def archives():
    """Both build, twice the same to the byte; what is in the wheel is the source and nothing else."""
    shutil.rmtree(OUT, ignore_errors=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE}  # noqa: TID251 - the child's
    for folder in ("", "again"):
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(OUT / folder)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"hatchling: {done.stderr.strip().splitlines()[-1]}"
    for built in (*OUT.glob("*.whl"), *OUT.glob("*.tar.gz")):
        digests = [hashlib.sha256((folder / built.name).read_bytes()).hexdigest() for folder in (OUT, OUT / "again")]
        if len(set(digests)) > 1:
            return f"{built.name} is another file each time it is built"
    return None


def contents():
    """The wheel has every source file and no other, and is small; the sdist has what its tests need."""
    (wheel,), (sdist,) = OUT.glob("*.whl"), OUT.glob("*.tar.gz")
    source = ROOT / "src"
    ours = {path.relative_to(source).as_posix() for path in (source / "inferometer").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("inferometer-")}
    if ours != shipped:
        return f"the wheel and the source differ in {', '.join(sorted(ours ^ shipped)[:3])}"
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    if missing := {"src", "tests", "docs", "LICENSE", "pyproject.toml"} - tops:
        return f"the sdist lacks {', '.join(sorted(missing))}"
    size = wheel.stat().st_size
    return f"the wheel has {size / 1e6:.1f} MB, and {LARGEST / 1e6:g} are allowed" if size > LARGEST else None


def licences():
    """Every package that an installation brings has a licence that lets it be used so; all are listed in an SBOM."""
    found = {}
    waiting = ["inferometer"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        plain = [need for need in found[name].requires or () if "extra ==" not in need]
        waiting += [re.match(r"[\w.-]+", need)[0].lower().replace("_", "-") for need in plain if _applies(need)]
    rows = [
        {
            "type": "library", "name": name, "version": each.version, "purl": f"pkg:pypi/{name}@{each.version}",
            "licenses": [{"license": {"name": _licence(each)}}],
        }
        for name, each in sorted(found.items())
    ]  # fmt: skip
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": rows}
    (OUT / "sbom.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    other = [f"{name} ({_licence(each)})" for name, each in found.items() if not ALLOWED.search(_licence(each))]
    return f"not known to be allowed: {', '.join(other)}" if other else None


def _licence(distribution):
    """As the package states it, or as its classifiers do."""
    facts = distribution.metadata
    classified = [line.rpartition(" :: ")[2] for line in facts.get_all("Classifier") or () if "License" in line]
    stated = facts.get("License-Expression") or (facts.get("License") or "").strip().partition("\n")[0]
    return stated or ", ".join(classified) or "not stated"


def _applies(need):
    """Whether a requirement is for this platform: those for others are not installed here."""
    try:
        metadata.distribution(re.match(r"[\w.-]+", need)[0])
    except metadata.PackageNotFoundError:
        return ";" not in need
    return True


CHECKS = (version, docs, archives, contents, licences)


def main():
    failed = 0
    for check in CHECKS:
        reason = check()
        failed += reason is not None
        verdict = "ok    " if reason is None else "FAILED"
        sys.stdout.write(f"{verdict} {check.__name__}: {reason or check.__doc__}\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
