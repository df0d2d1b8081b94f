"""Chromium, for the tests of what a person does at the hub."""

import importlib.util
import shutil

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def browser():
    # The first has no windows to draw, and takes half the time for a page.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if importlib.util.find_spec("playwright") is None or found is None:
        pytest.skip("NO BROWSER TESTS HERE: they need Debian's chromium and the Python package playwright.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()
