"""A browser for tests of pages; they are skipped where there is none."""

import shutil

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> str:
    """The browser's program."""
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no browser: put one of {', '.join(BROWSERS)} on PATH")
    return executable
