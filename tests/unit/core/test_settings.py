import os
from pathlib import Path

import pytest

from inferometer.core import settings
from inferometer.core.errors import InferometerError


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


KEYS = [setting for setting in settings.SETTINGS if setting.key]


@pytest.mark.parametrize("setting", KEYS, ids=lambda setting: setting.key)
def test_a_setting_is_read_from_the_file_anew_when_that_was_changed_and_the_environment_comes_first(
    setting, tmp_path, monkeypatch
):
    file = tmp_path / "config.toml"
    monkeypatch.setenv("INFEROMETER_CONFIG", str(file))
    monkeypatch.delenv(setting.name, raising=False)
    found = [settings.value_of(setting.name)]
    for second, value in enumerate(("one", "another")):
        file.write_text(f'{setting.key} = "{value}"\n')
        os.utime(file, (second, second))
        found.append(settings.value_of(setting.name))
    monkeypatch.setenv(setting.name, "a third")
    assert [*found, settings.value_of(setting.name)] == [setting.default, "one", "another", "a third"]


@pytest.mark.parametrize(
    ("text", "why"),
    [("{key} = 3", "which is not text"), ("no_such = 1", "no setting 'no_such'"), ("=", "cannot be read")],
)
def test_a_file_of_settings_that_says_something_else_is_refused(text, why, tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text(text.format(key=KEYS[0].key))
    monkeypatch.setenv("INFEROMETER_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv(KEYS[0].name, raising=False)
    with pytest.raises(InferometerError, match=why):
        settings.value_of(KEYS[0].name)


def test_all_keys_of_the_file_are_settings_words_in_small_letters():
    assert [setting.key for setting in KEYS] == [setting.name.removeprefix("INFEROMETER_").lower() for setting in KEYS]


def test_what_a_file_may_not_say_is_where_things_are_who_may_enter_and_what_one_process_does():
    places = {"ARTIFACTS", "CACHE", "CATALOG", "CONFIG", "DATA", "STORE"}
    secrets = {"FORGE_TOKEN", "SMTP"}
    of_a_process = {"DEBUG", "LEARN", "PORT", "PROFILE", "REMEMBER"}
    without = {setting.name.removeprefix("INFEROMETER_") for setting in settings.SETTINGS if not setting.key}
    assert without == places | secrets | of_a_process
