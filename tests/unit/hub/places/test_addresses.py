"""What an address means, and what is said of one that means nothing."""

import pytest

from inferometer.core.errors import DomainError, InferometerError, MissingDependencyError, UnknownNameError
from inferometer.hub.places.base import is_place, parse_address, resolve


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("local", ("local", "", None, None, None, {})),
        ("ssh://pi@board:2222?python=/bin/py3", ("ssh", "", "pi", "board", 2222, {"python": "/bin/py3"})),
        ("ssh://[::1]", ("ssh", "", None, "::1", None, {})),
        ("bundle:a b/job.zip?target=here", ("bundle", "a b/job.zip", None, None, None, {"target": "here"})),
        ("hub:any?unit=npu", ("hub", "any", None, None, None, {"unit": "npu"})),
        ("adb:emulator-5554", ("adb", "emulator-5554", None, None, None, {})),
    ],
)  # fmt: skip
def test_an_address_has_these_parts(text, parts):
    address = parse_address(text)
    assert (address.scheme, address.rest, address.user, address.host, address.port, address.options) == parts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ssh://", "names no host"),
        ("ssh://host:port", "USER@HOST:PORT"),
        ("ssh://host:99999", "cannot be read"),
        ("ssh://pi:secret@host", "ssh-copy-id"),
        ("ssh://host?a=1&a=2", "twice"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(text, says):
    with pytest.raises(DomainError) as refused:
        parse_address(text)
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_misspelt_place_or_option_is_an_error_that_suggests():
    with pytest.raises(UnknownNameError, match="Did you mean local"):
        resolve("locl")
    with pytest.raises(UnknownNameError, match="Did you mean root"):
        resolve("local:?rot=x")


def test_a_provider_that_lacks_a_package_says_which(monkeypatch):
    monkeypatch.setattr("inferometer.hub.places.ssh.find_spec", lambda _name: None)
    with pytest.raises(MissingDependencyError, match=r"inferometer\[fleet\]"):
        resolve("ssh://board")


def test_a_catalog_device_is_no_place():
    assert is_place("local")
    assert is_place("local:?root=x")
    assert not any(is_place(name) for name in ("nvidia-h200", "local-notes.toml", "C:\\device.toml", "device.toml"))


def test_an_error_is_one_that_the_command_line_prints():
    with pytest.raises(InferometerError):
        resolve("")
