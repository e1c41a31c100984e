"""One JupyterLab and one Chromium for all browser tests of a run."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.lab import (
    LabServer,
    NoBrowser,
    Notebook,
    launch_browser,
    open_notebook,
)

REPOSITORY = Path(__file__).parents[2]
SHOWN = ("notebooks", "exercises", "solutions")


@pytest.fixture(scope="session")
def lab_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the notebooks, so that no test changes the repository."""
    root = tmp_path_factory.mktemp("course")
    for name in SHOWN:
        shutil.copytree(REPOSITORY / name, root / name)
    return root


@pytest.fixture(scope="session")
def server(
    lab_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LabServer]:
    server = LabServer(lab_root, tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            browser = launch_browser(playwright)
        except NoBrowser as missing:
            pytest.fail(str(missing), pytrace=False)
        yield browser
        browser.close()


@pytest.fixture
def open_in_lab(browser: Browser, server: LabServer) -> Iterator[Callable]:
    """Return a function that opens a notebook by its path below the root.

    When the test ends, no page may have written an error to its console.
    """
    opened: list[Notebook] = []
    with ExitStack() as pages:

        def open_path(path: str) -> Notebook:
            notebook = pages.enter_context(open_notebook(browser, server, path))
            opened.append(notebook)
            return notebook

        yield open_path
    assert [error for notebook in opened for error in notebook.errors] == []
