"""Chromium, for the tests of what a person does at the hub."""

import asyncio
import importlib.util
import shutil

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="session")
def _chromium():
    """One for all modules of a worker, with the loop by which it is driven: starting one takes a second and a half."""
    # The first has no windows to draw, and takes half the time for a page.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if importlib.util.find_spec("playwright") is None or found is None:
        pytest.skip("NO BROWSER TESTS HERE: they need Debian's chromium and the Python package playwright.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        opened, loop = player.chromium.launch(executable_path=found, args=FLAGS), asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield opened, loop
        asyncio._set_running_loop(loop)
        opened.close()


@pytest.fixture(scope="module")
def browser(_chromium):
    """Nothing open in it. Its loop counts as running for this module alone: in others a test may run one of its own."""
    opened, loop = _chromium
    asyncio._set_running_loop(loop)
    yield opened
    for context in opened.contexts:
        context.close()
    asyncio._set_running_loop(None)
