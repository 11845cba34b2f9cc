"""Measure what panels cost in a real JupyterLab, in bytes, seconds and what is left.

What a user waits for can only be measured in a browser.  One notebook, which all groups share, trains three tasks on
one slot; two busy cores make each of these times an upper bound.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.frame.bench import Bench, option
from benchmarks.frame.rows import Bar, Paired, Row, in_turn, pair_up
from tests.browser.bench import page as js
from tests.browser.lab import LabServer, Sheet, chromium, missing, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

__all__ = ["GROUPS", "LAB", "ROWS", "group", "main"]

#: Seconds over which the hub is watched, and what is left out at both ends: the questions themselves.
_WATCH_S, _EDGE_S = 8.0, 0.5
#: Visits of the hub per second.
_VISITS_PER_S = 4.0
#: Longest wait for one picture, and for a button, in milliseconds.
_PATIENCE_MS, _BUTTON_MS = 60_000, 20_000
#: Fewest reloads of each page: single ones differ by half a second.
_RELOADS = 5
#: Leases in the picture that is compared.
_N_LEASES = 60

_WIDGET = "the same picture as plotly FigureWidget"
_UPDATES = "batch_update of plotly FigureWidget with the same run's lease picture, 4 per second"
_BUTTON = "ipywidgets Button{}, from a click to the text that its callback changes"
_BLOCKED = f"from a click to the button's pending state while a cell blocks the kernel for {js.BLOCK_S:g} s"
_HUB = "CPU time of the hub thread per turn (4 a second) and visible panel, three live tasks"
_ALONE = "JupyterLab alone: a notebook with one line of text, from F5 to that line"
_PAGE = "plotly's page of the lease picture alone, include_plotlyjs=True"
_DRAW = "the report's first picture, network off, from the start of its load"
#: Row -> what is measured, its unit, what it is compared with, and its bar.
_CLAIMS = {
    "first-render": ("lease panel: from the start of its cell to its first picture", "s", _WIDGET, Bar("value", 1.0)),
    "first-render-bytes": (
        "lease panel: bytes from the kernel until its first picture",
        "bytes",
        _WIDGET,
        Bar("ratio", 1 / 10),
    ),
    "click-idle": (
        "from a click to the button's pending state, idle kernel",
        "s",
        _BUTTON.format(""),
        Bar("value", 0.1),
    ),
    "click-busy": (_BLOCKED, "s", _BUTTON.format(" in such a cell"), Bar("value", 0.1)),
    "hub-cpu": (_HUB, "s", _UPDATES, Bar("value", 0.002)),
    "hub-bytes": ("bytes per second and visible panel, three live tasks", "bytes/s", _UPDATES, Bar("value", 20_000)),
    "reload": (
        "from F5 to the restored picture of the desk, notebook saved, cache warm",
        "s",
        _ALONE,
        Bar("value", 3.0),
    ),
    "reload-added": ("of which the desk's own: the difference to JupyterLab alone, pair by pair", "s", "", None),
    "report-size": ("report of the run, all sections", "bytes", _PAGE, Bar("value", 500_000)),
    "report-draw": (_DRAW, "s", "plotly's page, network off", Bar("value", 1.0)),
    "left": ("threads, widgets, comms and processes left after 5 re-runs and close()", "things", "", Bar("value", 0.0)),
}
#: Every row without its samples, in the order in which they are measured.
ROWS = {name: Row(name, title, (), unit, against, bar=bar) for name, (title, unit, against, bar) in _CLAIMS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    repeats: int = option(3, "interleaved pairs per row", least=1)


def group(effort: Effort, name: str) -> list[Row]:
    """Measure the rows of a group; where that fails each of them names the reason."""
    measure, names = GROUPS[name]
    if reason := missing():
        return [replace(ROWS[name], not_measured=reason) for name in names]
    from playwright.sync_api import Error as PlaywrightError

    try:
        figures = measure(*_shared(), effort.repeats)
    except (PlaywrightError, AssertionError, RuntimeError, OSError) as error:
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return [replace(ROWS[name], not_measured=text) for name in names]
    return [replace(ROWS[name], **paired) for name, paired in zip(names, figures, strict=True)]


#: What ends with the bench: browser, server, notebook.
_OPENED = ExitStack()


@cache
def _shared() -> tuple[Sheet, "Browser"]:
    """Return the notebook of all groups, and its browser."""
    from playwright.sync_api import sync_playwright

    lab = _OPENED.enter_context(LabServer(Path(_OPENED.enter_context(tempfile.TemporaryDirectory()))))
    browser = _OPENED.enter_context(chromium(_OPENED.enter_context(sync_playwright())))
    return _OPENED.enter_context(_notebook(lab, browser)), browser


@contextmanager
def _notebook(lab: LabServer, browser: "Browser") -> Iterator[Sheet]:
    """Open the notebook, start the run, wait for its first leases."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    sheet = Sheet(lab, page, "bench/bench.ipynb")
    sheet.open(js.CELLS)
    sheet.run_cell(0)
    sheet.run_cell(js.DESK)
    leases = "len(table_rows(run.journal(), 'leases'))"
    until(lambda: sheet.kernel_eval(leases) >= _N_LEASES, _PATIENCE_MS / 1e3)
    yield sheet


# ---------------------------------------------------------------------- rows
def _render(sheet: Sheet, browser: "Browser", repeats: int) -> list[Paired]:
    """Render our panel and plotly's FigureWidget in turn, of a run that stands still."""
    del browser
    _be(sheet, "paused")

    def rendered(index: int, selector: str) -> Callable[[], tuple[float, float]]:
        code = js.RENDER.replace("INDEX", str(index)).replace("SELECTOR", selector)

        def once() -> tuple[float, float]:
            n = len(sheet.received)
            took_ms = sheet.script(code.replace("PATIENCE", str(_PATIENCE_MS)))
            n_bytes = sum(size for _, size in sheet.received[n:])
            sheet.wait_idle()
            return took_ms / 1e3, float(n_bytes)

        return once

    ways = {"ours": rendered(js.PANEL, "canvas"), "plotly": rendered(js.FIGURE, ".main-svg .barlayer path")}
    figures = in_turn(repeats, ways)
    # Each has 5 MB of state: with four of them alive a reload restores no widget at all ("model not found").
    sheet.script(f"panel.content.widgets[{js.FIGURE}].model.clearExecution();")
    sheet.kernel_eval("close_figures()")
    return _both(figures["ours"], figures["plotly"])


def _both(ours: Sequence[tuple[float, float]], theirs: Sequence[tuple[float, float]]) -> list[Paired]:
    """Return the pairs of two figures that are measured at once."""
    return [pair_up([turn[i] for turn in ours], [turn[i] for turn in theirs]) for i in (0, 1)]


def _table(sheet: Sheet) -> "Locator":
    return sheet.output(js.DESK).locator(".drlnb-t-fleet").first


def _steer(sheet: Sheet, name: str) -> float:
    """Click Pause or Resume for all, wait until it is so; return the seconds until the button was pending."""
    works = sheet.page.locator(":visible:not([aria-disabled=true])")
    buttons = _table(sheet).get_by_test_id("buttons")
    # While a page of 5 MB is drawn the kernel does not answer, and buttons are off.
    button = buttons.get_by_test_id(f"{name}-button").and_(works)
    button.wait_for(timeout=_BUTTON_MS)
    took_ms: float = button.evaluate(js.CLICK)
    other = {"pause": "resume", "resume": "pause"}[name]
    buttons.get_by_test_id(f"{other}-button").and_(works).wait_for(timeout=_BUTTON_MS)
    # The answer to the click follows the new state.
    buttons.locator("[data-state=pending]").first.wait_for(state="detached", timeout=_BUTTON_MS)
    return took_ms / 1e3


def _states(sheet: Sheet) -> set[str]:
    return set(sheet.kernel_eval("[task.state for task in run.tasks.values()]"))


def _be(sheet: Sheet, state: str) -> None:
    """Pause or resume all tasks where they are not so already."""
    if _states(sheet) != {state}:
        _steer(sheet, {"paused": "pause", "running": "resume"}[state])


def _clicks(sheet: Sheet, browser: "Browser", repeats: int) -> list[Paired]:
    """Click our button and one of ipywidgets in turn; then both while a cell blocks."""
    del browser
    _be(sheet, "paused")
    sheet.run_cell(js.PLAIN)
    plain = sheet.output(js.PLAIN).locator("button").first
    turns = iter(["resume", "pause"] * repeats)

    def theirs() -> float:
        return float(plain.evaluate(js.ROUND_TRIP)) / 1e3

    def blocked(click: Callable[[], float]) -> Callable[[], float]:
        def once() -> float:
            sheet.run_cell(js.BLOCK, wait=False)
            sheet.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 20.0)
            took_s = click()
            sheet.wait_idle()
            return took_s

        return once

    idle = in_turn(
        repeats, {"ours": lambda: [_steer(sheet, "resume"), _steer(sheet, "pause")], "theirs": lambda: [theirs()]}
    )
    busy = in_turn(repeats, {"ours": blocked(lambda: _steer(sheet, next(turns))), "theirs": blocked(theirs)})
    return [pair_up(idle["ours"], idle["theirs"]), pair_up(busy["ours"], busy["theirs"])]


def _hub(sheet: Sheet, browser: "Browser", repeats: int) -> list[Paired]:
    """Watch the hub while three tasks train and the desk is on the screen: two panels."""
    del browser
    _table(sheet).scroll_into_view_if_needed()
    _be(sheet, "running")
    n_panels = sheet.kernel_eval("len([p for p in run.panel().panels]) + (not panel.closed)")

    def hub() -> tuple[float, float]:
        before, began = sheet.kernel_eval("hub_cpu()"), time.monotonic()
        sheet.page.wait_for_timeout(_WATCH_S * 1e3)
        ended = time.monotonic()
        cpu = (sheet.kernel_eval("hub_cpu()") - before) / ((ended - began) * _VISITS_PER_S * n_panels)
        window = [size for t, size in sheet.received if began + _EDGE_S <= t <= ended - _EDGE_S]
        return cpu, sum(window) / ((ended - began - 2 * _EDGE_S) * n_panels)

    def figure() -> tuple[float, float]:
        sheet.run_cell(js.STREAM)
        per_second, per_update = sheet.kernel_eval("streamed")
        return per_update, per_second

    figures = in_turn(repeats, {"hub": hub, "figure": figure})
    if (states := _states(sheet)) != {"running"}:
        raise RuntimeError(f"three tasks must train while the hub is watched, they are {', '.join(states)}")
    return _both(figures["hub"], figures["figure"])


def _reload(sheet: Sheet, browser: "Browser", repeats: int) -> list[Paired]:
    """Reload the page with the desk, and a page of the same server without panels, in turn."""
    other = Sheet(sheet.lab, browser.new_context().new_page(), "bench/plain.ipynb")
    other.open(["print('nothing to restore')"])
    other.run_cell(0)
    other.save()
    sheet.save()

    def reloaded(of: Sheet, seen: str) -> Callable[[], float]:
        def once() -> float:
            began = time.monotonic()
            of.page.goto(of.lab.url(of.name))
            of.page.wait_for_function(f"() => {{ {seen} }}", timeout=_PATIENCE_MS)
            return time.monotonic() - began

        return once

    painted = js.FOUND + "return [...document.querySelectorAll('canvas')].some(painted);"
    plain = "return document.body.innerText.includes('nothing to restore');"
    ways = {"ours": reloaded(sheet, painted), "theirs": reloaded(other, plain)}
    took = in_turn(max(repeats, _RELOADS), ways)
    sheet.wait_ready()
    other.page.close()
    added = tuple(a - b for a, b in zip(took["ours"], took["theirs"], strict=True))
    return [pair_up(took["ours"], took["theirs"]), Paired(samples=added, baseline_samples=(), pairs=())]


def _report(sheet: Sheet, browser: "Browser", repeats: int) -> list[Paired]:
    """Write both pages in the kernel, open them in turn with the network off."""
    sheet.kernel_eval("str(run.report('report.html'))")
    sheet.kernel_eval("run.panel('leasing').view().figure().write_html('plotly.html', include_plotlyjs=True)")
    ours, theirs = (sheet.path.parent / name for name in ("report.html", "plotly.html"))

    def drawn(path: Path) -> Callable[[], float]:
        def once() -> float:
            context = browser.new_context(offline=True)
            page = context.new_page()
            page.goto(path.as_uri(), wait_until="commit")
            took_ms = page.wait_for_function(js.DRAWN, timeout=_PATIENCE_MS).json_value()
            context.close()
            return float(took_ms) / 1e3

        return once

    times = in_turn(repeats, {"ours": drawn(ours), "theirs": drawn(theirs)})
    sizes = pair_up([float(ours.stat().st_size)], [float(theirs.stat().st_size)])
    return [sizes, pair_up(times["ours"], times["theirs"])]


def _left(sheet: Sheet, browser: "Browser", repeats: int) -> list[Paired]:
    """Run the panels' cells five times, close all, and count."""
    del browser, repeats
    for _ in range(5):
        sheet.run_cell(js.DESK)
        sheet.run_cell(js.PANEL)
    sheet.run_cell(js.CLOSE)
    left = sheet.kernel_eval("left()")
    n = float(len(left["threads"]) + left["widgets"] + left["processes"])
    return [Paired(samples=(n,), baseline_samples=(), pairs=())]


_Measure = Callable[[Sheet, "Browser", int], list[Paired]]
#: Group -> what measures it, and its rows; in this order, which leaves the tasks as the next one needs them.
GROUPS: dict[str, tuple[_Measure, Sequence[str]]] = {
    "render": (_render, ("first-render", "first-render-bytes")),
    "click": (_clicks, ("click-idle", "click-busy")),
    "hub": (_hub, ("hub-cpu", "hub-bytes")),
    "reload": (_reload, ("reload", "reload-added")),
    "report": (_report, ("report-size", "report-draw")),
    "left": (_left, ("left",)),
}
LAB = Bench(
    "lab",
    "Measure panels and reports in a real JupyterLab.",
    {name: partial(group, name=name) for name in GROUPS},
    Effort,
)


def main(words: Sequence[str]) -> int:
    """Measure what the words ask for; return the exit code of every bench."""
    with _OPENED:
        return LAB.main(words)
