"""What a browser test gets: one JupyterLab for all of them, and a notebook in a browser of its own.

A notebook ends with its kernel shut down.  A request that left this machine, an exception on the page, an error on its
console, a kernel or a process that is still there afterwards turn its test red.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.driver import WatchedServer, WatchedSheet, chromium_of
from tests.browser.lab import missing

_N = itertools.count(1)
#: A scene takes less than 30 s; on a machine with five times more to do than it can, it may take ten times that.
TIMEOUT_S = 300
OpenNotebook = Callable[..., contextlib.AbstractContextManager[WatchedSheet]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test of this folder into the tier ``browser``; skip it where no browser or JupyterLab is."""
    reason = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
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
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    """Start one JupyterLab on a free port, with folders of its own, in the environment that DRLNB_LAB_PYTHON is of."""
    with WatchedServer(tmp_path_factory.mktemp("lab"), os.environ.get("DRLNB_LAB_PYTHON")) as server:
        yield server


#: Notes the connections of a page, so that a test can cut them.
_SOCKETS = """
  const Real = window.WebSocket;
  window.sockets = [];
  window.WebSocket = class extends Real { constructor(...words) { super(...words); window.sockets.push(this); } };
"""


@pytest.fixture
def open_notebook(lab: WatchedServer, playwright, tmp_path: Path) -> OpenNotebook:
    """Return a context manager that opens a notebook in a browser; its end is asserted to be clean.

    Browsers that are open at the same time have a folder each, which the next one finds: as a person's, their caches
    are warm, and pages open in half the time.
    """
    n_open = 0

    @contextlib.contextmanager
    def opened(*, width: int = 1280, height: int = 900) -> Iterator[WatchedSheet]:
        nonlocal n_open
        before, n = lab.kernels(), next(_N)
        with chromium_of(playwright, lab.root / f"chromium-{n_open}") as context:
            n_open += 1
            context.add_init_script(_SOCKETS)
            page = context.new_page()
            page.set_viewport_size({"width": width, "height": height})
            sheet = WatchedSheet(lab, page, f"n{n}/n{n}.ipynb")
            try:
                yield sheet
            except BaseException:
                with contextlib.suppress(Exception):
                    print("screenshot:", sheet.screenshot(tmp_path / f"{sheet.path.stem}.png"))
                with contextlib.suppress(Exception):
                    sheet.close(kernels_before=before)
                raise
            finally:
                n_open -= 1
            faults = sheet.close(kernels_before=before)
        assert not faults, "; ".join(faults)

    return opened


@pytest.fixture
def notebook(open_notebook: OpenNotebook, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WatchedSheet]:
    """Open a page of a fresh browser for a notebook; ``notebook.open([...])`` writes its cells and opens it."""
    with open_notebook() as sheet:
        yield sheet
        if request.node.stash.get(FAILED, False):
            print("screenshot:", sheet.screenshot(tmp_path / f"{sheet.path.stem}.png"))


@pytest.fixture
def page(notebook: WatchedSheet):
    """Return the page of `notebook`."""
    return notebook.page
