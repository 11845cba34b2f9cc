"""What a browser test gets: one JupyterLab for all of them, and a notebook in a fresh browser for each.

A notebook ends with its kernel shut down.  A request that left this machine, an exception on the page, a kernel or a
process that is still there afterwards turn its test red.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drlnb.bench.jupyter import LabServer, chromium, missing
from drlnb.bench.sheet import Sheet

_N = itertools.count(1)
OpenNotebook = Callable[..., contextlib.AbstractContextManager[Sheet]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test of this folder into the tier ``browser``; skip it where no browser or JupyterLab is."""
    reason = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Let fixtures know how the test went."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """Start one JupyterLab on a free port, with folders of its own."""
    with LabServer(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def playwright():
    """Start the driver that starts browsers."""
    from playwright.sync_api import sync_playwright

    driver = sync_playwright().start()
    yield driver
    driver.stop()


@pytest.fixture
def open_notebook(lab: LabServer, playwright, tmp_path: Path) -> OpenNotebook:
    """Return a context manager that opens a notebook in a fresh browser; its end is asserted to be clean."""

    @contextlib.contextmanager
    def opened(*, width: int = 1280, height: int = 900) -> Iterator[Sheet]:
        before, n = lab.kernels(), next(_N)
        with chromium(playwright) as browser:
            context = browser.new_context(viewport={"width": width, "height": height})
            sheet = Sheet(lab, context.new_page(), f"n{n}/n{n}.ipynb")
            try:
                yield sheet
            except BaseException:
                with contextlib.suppress(Exception):
                    print("screenshot:", sheet.screenshot(tmp_path / f"{sheet.path.stem}.png"))
                with contextlib.suppress(Exception):
                    sheet.close(kernels_before=before)
                raise
            faults = sheet.close(kernels_before=before)
        assert not faults, "; ".join(faults)

    return opened


@pytest.fixture
def notebook(open_notebook: OpenNotebook, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sheet]:
    """Open a page of a fresh browser for a notebook; ``notebook.open([...])`` writes its cells and opens it."""
    with open_notebook() as sheet:
        yield sheet
        if request.node.stash.get(FAILED, False):
            print("screenshot:", sheet.screenshot(tmp_path / f"{sheet.path.stem}.png"))


@pytest.fixture
def page(notebook: Sheet):
    """Return the page of `notebook`."""
    return notebook.page
