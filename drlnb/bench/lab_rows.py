"""How are the rows of ``drlnb bench lab`` measured?  One notebook with three tasks on one slot, and its page."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from drlnb.bench.jupyter import LabServer, chromium
from drlnb.bench.lab import ROWS
from drlnb.bench.lab_page import (
    BLOCK,
    CELLS,
    CLICK,
    CLOSE,
    DESK,
    DRAWN,
    FIGURE,
    FOUND,
    PANEL,
    PLAIN,
    RENDER,
    ROUND_TRIP,
    STREAM,
)
from drlnb.bench.report import Row, pair_up
from drlnb.bench.sheet import Sheet

__all__ = ["measure"]

#: Seconds over which the hub is watched, and what is left out at both ends: the questions themselves.
_WATCH_S, _EDGE_S = 8.0, 0.5
#: Visits of the hub per second.
_VISITS_PER_S = 4.0
#: Longest wait for one picture, in milliseconds.
_PATIENCE_MS = 60_000
#: Fewest reloads of each page: single ones differ by half a second.
_RELOADS = 5
#: Leases in the picture that is compared.
_N_LEASES = 60


def measure(repeats: int) -> dict[str, Row]:
    """Return every row that could be measured, by id; what failed says why."""
    from playwright.sync_api import Error as PlaywrightError
    from playwright.sync_api import sync_playwright

    found: dict[str, Row] = {}
    groups: tuple[Callable[..., Mapping[str, Row]], ...] = (_render, _clicks, _hub, _reload, _report, _left)
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-") as folder,
        LabServer(Path(folder)) as lab,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
        _notebook(lab, browser) as sheet,
    ):
        for group in groups:
            try:
                found |= group(sheet, browser, repeats)
            except (PlaywrightError, AssertionError, RuntimeError, OSError) as error:
                text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                found |= _failed(group.__name__, text)
    return found


def _failed(group: str, text: str) -> dict[str, Row]:
    names = {
        "_render": ("first-render", "first-render-bytes"),
        "_clicks": ("click-idle", "click-busy"),
        "_hub": ("hub-cpu", "hub-bytes"),
        "_reload": ("reload", "reload-added"),
        "_report": ("report-size", "report-draw"),
        "_left": ("left",),
    }[group]
    return {name: replace(ROWS[name], not_measured=text) for name in names}


@contextmanager
def _notebook(lab: LabServer, browser: Any) -> Iterator[Sheet]:
    """Open the notebook, start the run, wait for its first leases."""
    sheet = Sheet(lab, browser.new_context(viewport={"width": 1280, "height": 900}).new_page(), "bench/bench.ipynb")
    try:
        sheet.open(CELLS)
        sheet.run_cell(0)
        sheet.run_cell(DESK)
        end = time.monotonic() + _PATIENCE_MS / 1e3
        while sheet.kernel_eval("len(table_rows(run.journal(), 'leases'))") < _N_LEASES and time.monotonic() < end:
            sheet.page.wait_for_timeout(200)
        yield sheet
    finally:
        sheet.close(kernels_before=set())


# ---------------------------------------------------------------------- rows
def _render(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Render our panel and plotly's FigureWidget in turn, of a run that stands still."""
    del browser
    _steer(sheet, "pause")
    seconds: dict[int, list[list[float]]] = {PANEL: [], FIGURE: []}
    sizes: dict[int, list[list[float]]] = {PANEL: [], FIGURE: []}
    for _ in range(repeats):
        for index, kind in ((PANEL, "ours"), (FIGURE, "plotly")):
            n = len(sheet.received)
            code = RENDER.replace("INDEX", str(index)).replace("KIND", repr(kind))
            took_ms = sheet.script(code.replace("PATIENCE", str(_PATIENCE_MS)))
            seconds[index].append([took_ms / 1e3])
            sizes[index].append([float(sum(size for _, size in sheet.received[n:]))])
            sheet.wait_idle()
    # Each has 5 MB of state: with four of them alive a reload restores no widget at all ("model not found").
    sheet.script(f"panel.content.widgets[{FIGURE}].model.clearExecution();")
    sheet.kernel_eval("close_figures()")
    return {
        "first-render": replace(ROWS["first-render"], **pair_up(seconds[PANEL], seconds[FIGURE])),
        "first-render-bytes": replace(ROWS["first-render-bytes"], **pair_up(sizes[PANEL], sizes[FIGURE])),
    }


def _desk(sheet: Sheet) -> Any:
    return sheet.output(DESK).locator(".drlnb-t-fleet").first


def _button(sheet: Sheet, name: str) -> Any:
    return _desk(sheet).get_by_test_id("buttons").get_by_test_id(f"{name}-button")


def _steer(sheet: Sheet, name: str, timeout_s: float = 20.0) -> float:
    """Click Pause or Resume for all, wait until it is so; return the seconds until the button was pending."""
    works = sheet.page.locator(":visible:not([aria-disabled=true])")
    # While a page of 5 MB is drawn nothing is heard of the kernel, and buttons are off.
    _button(sheet, name).and_(works).wait_for(timeout=timeout_s * 1e3)
    took_ms: float = _button(sheet, name).evaluate(CLICK)
    other = {"pause": "resume", "resume": "pause"}[name]
    _button(sheet, other).and_(works).wait_for(timeout=timeout_s * 1e3)
    # The answer to the click follows the new state.
    pending = _desk(sheet).get_by_test_id("buttons").locator("[data-state=pending]")
    pending.first.wait_for(state="detached", timeout=timeout_s * 1e3)
    return took_ms / 1e3


def _clicks(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Click our button and one of ipywidgets in turn; then ours while a cell blocks."""
    del browser
    sheet.run_cell(PLAIN)
    plain = sheet.output(PLAIN).locator("button").first
    ours, theirs, busy, blocked = [], [], [], []
    for _ in range(repeats):
        ours.append([_steer(sheet, "resume"), _steer(sheet, "pause")])
        theirs.append([plain.evaluate(ROUND_TRIP) / 1e3])
    for turn in range(repeats):
        sheet.run_cell(BLOCK, wait=False)
        sheet.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 20.0)
        busy.append([_steer(sheet, "resume" if turn % 2 == 0 else "pause")])
        sheet.wait_idle()
        sheet.run_cell(BLOCK, wait=False)
        sheet.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 20.0)
        blocked.append([plain.evaluate(ROUND_TRIP) / 1e3])
        sheet.wait_idle()
    if repeats % 2 == 0:
        _steer(sheet, "resume")
    return {
        "click-idle": replace(ROWS["click-idle"], **pair_up(ours, theirs)),
        "click-busy": replace(ROWS["click-busy"], **pair_up(busy, blocked)),
    }


def _hub(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Watch the hub while three tasks train and the desk is on the screen: two panels."""
    del browser
    _desk(sheet).scroll_into_view_if_needed()
    _still_training(sheet)
    n_panels = sheet.kernel_eval("len([p for p in run.panel().panels]) + (not panel.closed)")
    cpu: list[list[list[float]]] = [[], []]
    sizes: list[list[list[float]]] = [[], []]
    for _ in range(repeats):
        before, began = sheet.kernel_eval("hub_cpu()"), time.monotonic()
        sheet.page.wait_for_timeout(_WATCH_S * 1e3)
        ended = time.monotonic()
        cpu[0].append([(sheet.kernel_eval("hub_cpu()") - before) / ((ended - began) * _VISITS_PER_S * n_panels)])
        window = [size for t, size in sheet.received if began + _EDGE_S <= t <= ended - _EDGE_S]
        sizes[0].append([sum(window) / ((ended - began - 2 * _EDGE_S) * n_panels)])
        sheet.run_cell(STREAM)
        per_second, per_update = sheet.kernel_eval("streamed")
        cpu[1].append([per_update])
        sizes[1].append([per_second])
    _still_training(sheet)
    return {
        "hub-cpu": replace(ROWS["hub-cpu"], **pair_up(*cpu)),
        "hub-bytes": replace(ROWS["hub-bytes"], **pair_up(*sizes)),
    }


def _still_training(sheet: Sheet) -> None:
    """Refuse to call tasks live that have ended."""
    states = sheet.kernel_eval("[task.state for task in run.tasks.values()]")
    if set(states) != {"running"}:
        raise RuntimeError(f"three tasks must train while the hub is watched, they are {', '.join(states)}")


def _reload(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Reload the page with the desk, and a page of the same server without panels, in turn."""
    other = Sheet(sheet.lab, browser.new_context().new_page(), "bench/plain.ipynb")
    other.open(["print('nothing to restore')"])
    other.run_all()
    other.save()
    sheet.save()
    ours, theirs = [], []
    for _ in range(max(repeats, _RELOADS)):
        ours.append([_reloaded(sheet, FOUND + "return [...document.querySelectorAll('canvas')].some(painted);")])
        theirs.append([_reloaded(other, "return document.body.innerText.includes('nothing to restore');")])
    sheet.wait_ready()
    other.close(kernels_before=sheet.lab.kernels())
    added = tuple(a - b for (a,), (b,) in zip(ours, theirs, strict=True))
    return {
        "reload": replace(ROWS["reload"], **pair_up(ours, theirs)),
        "reload-added": replace(ROWS["reload-added"], samples=added),
    }


def _reloaded(sheet: Sheet, seen: str) -> float:
    began = time.monotonic()
    sheet.page.goto(sheet.lab.url(sheet.name))
    sheet.page.wait_for_function(f"() => {{ {seen} }}", timeout=_PATIENCE_MS)
    return time.monotonic() - began


def _report(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Write both pages in the kernel, open them in turn with the network off."""
    sheet.kernel_eval("str(run.report('report.html'))")
    sheet.kernel_eval("run.panel('leasing').view().figure().write_html('plotly.html', include_plotlyjs=True)")
    pages = [sheet.path.parent / name for name in ("report.html", "plotly.html")]
    times: list[list[list[float]]] = [[], []]
    for _ in range(repeats):
        for path, into in zip(pages, times, strict=True):
            context = browser.new_context(offline=True)
            page = context.new_page()
            page.goto(path.as_uri(), wait_until="commit")
            into.append([page.wait_for_function(DRAWN, timeout=_PATIENCE_MS).json_value() / 1e3])
            context.close()
    sizes = [[[float(path.stat().st_size)]] for path in pages]
    return {
        "report-size": replace(ROWS["report-size"], **pair_up(*sizes)),
        "report-draw": replace(ROWS["report-draw"], **pair_up(*times)),
    }


def _left(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Run the panels' cells five times, close all, and count."""
    del browser, repeats
    for _ in range(5):
        sheet.run_cell(DESK)
        sheet.run_cell(PANEL)
    sheet.run_cell(CLOSE)
    left = sheet.kernel_eval("left()")
    n = len(left["threads"]) + left["widgets"] + left["processes"]
    return {"left": replace(ROWS["left"], samples=(float(n),))}
