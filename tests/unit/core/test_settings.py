from pathlib import Path

from inferometer.core import settings


def test_catalog_folders_are_split_like_a_path(monkeypatch):
    monkeypatch.setenv("INFEROMETER_CATALOG", "/a:/b")
    assert settings.catalog_folders() == (Path("/a"), Path("/b"))


def test_without_a_setting_there_are_no_folders_and_no_tracebacks(monkeypatch):
    monkeypatch.delenv("INFEROMETER_CATALOG", raising=False)
    monkeypatch.delenv("INFEROMETER_DEBUG", raising=False)
    assert settings.catalog_folders() == ()
    assert not settings.debug()


def test_debug_is_on_for_anything_but_zero(monkeypatch):
    monkeypatch.setenv("INFEROMETER_DEBUG", "1")
    assert settings.debug()
    monkeypatch.setenv("INFEROMETER_DEBUG", "0")
    assert not settings.debug()
