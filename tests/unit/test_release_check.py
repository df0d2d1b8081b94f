"""The script that walks the release's list says what is wrong; each check here meets one thing that is."""

import tarfile
import zipfile
from types import SimpleNamespace

import pytest

import release_check


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project whose archives are built."""
    (tmp_path / "src/inferometer").mkdir(parents=True)
    (tmp_path / "src/inferometer/version.py").write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 — 2026-11-17\n", encoding="utf-8")
    out = tmp_path / "build/release"
    out.mkdir(parents=True)
    with zipfile.ZipFile(out / "inferometer-1.2.3-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "src/inferometer/version.py", "inferometer/version.py")
    with tarfile.open(out / "inferometer-1.2.3.tar.gz", "w:gz") as sdist:
        for name in ("src", "tests", "docs", "LICENSE", "pyproject.toml"):
            sdist.add(tmp_path / "CHANGELOG.md", f"inferometer-1.2.3/{name}/x")
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    monkeypatch.setattr(release_check, "OUT", out)
    return tmp_path


def test_a_dated_version_with_the_right_files_passes(root):
    assert release_check.version() is None
    assert release_check.contents() is None


@pytest.mark.parametrize(
    ("version", "heading", "told"),
    [
        ("1.2.3.dev0", "## 1.2.3.dev0 — 2026-11-17", "no version to publish"),
        ("1.2.4", "## 1.2.3 — 2026-11-17", "has no section 1.2.4"),
        ("1.2.3", "## 1.2.3 — unreleased", "not dated"),
    ],
)
def test_a_version_that_is_not_ready_is_told(root, version, heading, told):
    (root / "src/inferometer/version.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    (root / "CHANGELOG.md").write_text(heading + "\n", encoding="utf-8")
    assert told in release_check.version()


def test_a_wheel_without_a_source_file_or_too_large_is_told(root, monkeypatch):
    monkeypatch.setattr(release_check, "LARGEST", 10)
    assert "are allowed" in release_check.contents()
    (root / "src/inferometer/new.py").write_text("", encoding="utf-8")
    assert "differ in inferometer/new.py" in release_check.contents()


def test_a_package_whose_licence_is_not_known_to_be_allowed_is_told(root, monkeypatch):
    facts = {"License-Expression": "Proprietary"}
    known = SimpleNamespace(get=facts.get, get_all=lambda _name: ())
    unknown = SimpleNamespace(version="1", requires=(), metadata=known)
    monkeypatch.setattr(release_check.metadata, "distribution", lambda _name: unknown)
    assert release_check.licences() == "not known to be allowed: inferometer (Proprietary)"
    assert '"name": "inferometer"' in (root / "build/release/sbom.json").read_text(encoding="utf-8")
