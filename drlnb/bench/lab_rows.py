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
from drlnb.bench.report import Row, pair_up
from drlnb.bench.sheet import Sheet

__all__ = ["measure"]

#: Seconds over which the hub is watched, and what is left out at both ends: the questions themselves.
_WATCH_S, _EDGE_S = 8.0, 0.5
#: Visits of the hub per second, as lab.md fixes them.
_VISITS_PER_S = 4.0
#: Longest wait for one picture, in milliseconds.
_PATIENCE_MS = 20_000
#: Leases in the picture that is compared.
_N_LEASES = 60

_SETUP = """
import threading, time
import ipywidgets, psutil
import plotly.graph_objects as go
import drlnb
from drlnb.fleet.frames import table_rows

def hub_cpu():
    ids = [thread.native_id for thread in threading.enumerate() if thread.name == "drlnb-hub"]
    return sum(t.user_time + t.system_time for t in psutil.Process().threads() if t.id in ids)

def left():
    threads = [t.name for t in threading.enumerate() if t.name.startswith("drlnb")]
    models = [w for w in list(ipywidgets.widgets.widget._instances.values()) if type(w).__module__.startswith("drlnb")]
    return {"threads": threads, "widgets": len(models), "processes": len(psutil.Process().children(recursive=True))}

def close_figures():
    for widget in list(ipywidgets.widgets.widget._instances.values()):
        if isinstance(widget, go.FigureWidget):
            widget.close()

fleet = drlnb.Fleet(slots=1)
run = fleet.train([drlnb.Task("CartPole-v1", name=n, total_timesteps=1_000_000) for n in "xyz"])
"""
_OURS = """
if "panel" in globals(): panel.close()
panel = run.panel("leasing", window_s=600.0)
panel
"""
_WIDGET = "go.FigureWidget(run.panel('leasing', window_s=600.0).view().figure())"
_BUTTON = """
label, button = ipywidgets.Label("0 clicks"), ipywidgets.Button(description="Count")
button.on_click(lambda _: setattr(label, "value", f"{int(label.value.split()[0]) + 1} clicks"))
ipywidgets.VBox([button, label])
"""
_END = """
run.panel().close(); panel.close(); fleet.close()
print(left())
"""
#: The cells, in order.
_DESK, _PANEL, _FIGURE, _PLAIN, _BLOCK, _CLOSE = 1, 2, 3, 4, 5, 6
_CELLS = (_SETUP, "run", _OURS, _WIDGET, _BUTTON, "time.sleep(3)", _END)

_FOUND = """
const painted = canvas => {
  if (!canvas || !canvas.width) return false;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(data.buffer)).size > 5;
};
"""
_RENDER = (
    _FOUND
    + """
const node = panel.content.widgets[INDEX].node, what = KIND === 'ours' ? 'canvas' : '.main-svg .barlayer path';
panel.content.activeCellIndex = INDEX;
await panel.content.scrollToItem(INDEX, 'start');
node.querySelectorAll(what).forEach(old => old.setAttribute('data-old', ''));
const began = performance.now();
window.jupyterapp.commands.execute('notebook:run-cell');
await new Promise((resolve, reject) => {
  const look = () => {
    const found = [...node.querySelectorAll(what)].find(one => !one.hasAttribute('data-old'));
    if (found && (KIND !== 'ours' || painted(found))) return resolve();
    if (performance.now() - began > PATIENCE) return reject(new Error('no picture came'));
    requestAnimationFrame(look);
  };
  look();
});
return performance.now() - began;
"""
)
_CLICK = """button => new Promise((resolve, reject) => {
  const began = performance.now(), place = button.parentElement;
  new MutationObserver((_, me) => {
    if (place.querySelector('[data-state=pending]')) { me.disconnect(); resolve(performance.now() - began); }
  }).observe(place, {attributes: true, childList: true, subtree: true});
  setTimeout(() => reject(new Error('the click showed nothing')), 10000);
  button.click();
})"""
_ROUND_TRIP = """button => new Promise((resolve, reject) => {
  const began = performance.now(), label = button.parentElement.querySelector('.widget-label');
  new MutationObserver((_, me) => { me.disconnect(); resolve(performance.now() - began); })
    .observe(label, {childList: true, characterData: true, subtree: true});
  setTimeout(() => reject(new Error('the click showed nothing')), 10000);
  button.click();
})"""
#: True once a page has drawn: our canvas, or plotly's paths; JavaScript, for a page of its own.
_DRAWN = (
    "() => {"
    + _FOUND
    + """
  const plotly = document.querySelector('.main-svg .barlayer path');
  return plotly || [...document.querySelectorAll('canvas')].some(painted) ? performance.now() : 0;
}"""
)


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
        "_reload": ("reload",),
        "_report": ("report-size", "report-draw"),
        "_left": ("left",),
    }[group]
    return {name: replace(ROWS[name], not_measured=text) for name in names}


@contextmanager
def _notebook(lab: LabServer, browser: Any) -> Iterator[Sheet]:
    """Open the notebook, start the run, wait for its first leases."""
    sheet = Sheet(lab, browser.new_context(viewport={"width": 1280, "height": 900}).new_page(), "bench/bench.ipynb")
    try:
        sheet.open(_CELLS)
        sheet.run_cell(0)
        sheet.run_cell(_DESK)
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
    seconds: dict[int, list[list[float]]] = {_PANEL: [], _FIGURE: []}
    sizes: dict[int, list[list[float]]] = {_PANEL: [], _FIGURE: []}
    for _ in range(repeats):
        for index, kind in ((_PANEL, "ours"), (_FIGURE, "plotly")):
            n = len(sheet.received)
            code = _RENDER.replace("INDEX", str(index)).replace("KIND", repr(kind))
            took_ms = sheet.script(code.replace("PATIENCE", str(_PATIENCE_MS)))
            seconds[index].append([took_ms / 1e3])
            sizes[index].append([float(sum(size for _, size in sheet.received[n:]))])
            sheet.wait_idle()
    # Each has 5 MB of state: with four of them alive a reload restores no widget at all ("model not found").
    sheet.script(f"panel.content.widgets[{_FIGURE}].model.clearExecution();")
    sheet.kernel_eval("close_figures()")
    return {
        "first-render": replace(ROWS["first-render"], **pair_up(seconds[_PANEL], seconds[_FIGURE])),
        "first-render-bytes": replace(ROWS["first-render-bytes"], **pair_up(sizes[_PANEL], sizes[_FIGURE])),
    }


def _desk(sheet: Sheet) -> Any:
    return sheet.output(_DESK).locator(".drlnb-t-fleet").first


def _button(sheet: Sheet, name: str) -> Any:
    return _desk(sheet).get_by_test_id("buttons").get_by_test_id(f"{name}-button")


def _steer(sheet: Sheet, name: str, timeout_s: float = 20.0) -> float:
    """Click Pause or Resume for all, wait until it is so; return the seconds until the button was pending."""
    took_ms: float = _button(sheet, name).evaluate(_CLICK)
    other = {"pause": "resume", "resume": "pause"}[name]
    _button(sheet, other).wait_for(state="visible", timeout=timeout_s * 1e3)
    # The answer to the click follows the new state; until it is here the buttons may be made anew.
    pending = _desk(sheet).get_by_test_id("buttons").locator("[data-state=pending]")
    pending.first.wait_for(state="detached", timeout=timeout_s * 1e3)
    return took_ms / 1e3


def _clicks(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Click our button and one of ipywidgets in turn; then ours while a cell blocks."""
    del browser
    sheet.run_cell(_PLAIN)
    plain = sheet.output(_PLAIN).locator("button").first
    ours, theirs, busy = [], [], []
    for _ in range(repeats):
        ours.append([_steer(sheet, "resume"), _steer(sheet, "pause")])
        theirs.append([plain.evaluate(_ROUND_TRIP) / 1e3])
    for turn in range(repeats):
        sheet.run_cell(_BLOCK, wait=False)
        sheet.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 5.0)
        busy.append(_steer(sheet, "resume" if turn % 2 == 0 else "pause"))
        sheet.wait_idle()
    if repeats % 2 == 0:
        _steer(sheet, "resume")
    return {
        "click-idle": replace(ROWS["click-idle"], **pair_up(ours, theirs)),
        "click-busy": replace(ROWS["click-busy"], samples=tuple(busy)),
    }


def _hub(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Watch the hub while three tasks train and the desk is on the screen: two panels."""
    del browser
    _desk(sheet).scroll_into_view_if_needed()
    n_panels = sheet.kernel_eval("len([p for p in run.panel().panels]) + (not panel.closed)")
    cpu, sizes = [], []
    for _ in range(repeats):
        before, began = sheet.kernel_eval("hub_cpu()"), time.monotonic()
        sheet.page.wait_for_timeout(_WATCH_S * 1e3)
        ended = time.monotonic()
        cpu.append((sheet.kernel_eval("hub_cpu()") - before) / ((ended - began) * _VISITS_PER_S * n_panels))
        window = [size for t, size in sheet.received if began + _EDGE_S <= t <= ended - _EDGE_S]
        sizes.append(sum(window) / ((ended - began - 2 * _EDGE_S) * n_panels))
    return {
        "hub-cpu": replace(ROWS["hub-cpu"], samples=tuple(cpu)),
        "hub-bytes": replace(ROWS["hub-bytes"], samples=tuple(sizes)),
    }


def _reload(sheet: Sheet, browser: Any, repeats: int) -> dict[str, Row]:
    """Reload the page with the desk, and a page of the same server without panels, in turn."""
    other = Sheet(sheet.lab, browser.new_context().new_page(), "bench/plain.ipynb")
    other.open(["print('nothing to restore')"])
    other.run_all()
    other.save()
    sheet.save()
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append([_reloaded(sheet, _FOUND + "return [...document.querySelectorAll('canvas')].some(painted);")])
        theirs.append([_reloaded(other, "return document.body.innerText.includes('nothing to restore');")])
    sheet.wait_ready()
    other.close(kernels_before=sheet.lab.kernels())
    return {"reload": replace(ROWS["reload"], **pair_up(ours, theirs))}


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
            into.append([page.wait_for_function(_DRAWN, timeout=_PATIENCE_MS).json_value() / 1e3])
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
        sheet.run_cell(_DESK)
        sheet.run_cell(_PANEL)
    sheet.run_cell(_CLOSE)
    left = sheet.kernel_eval("left()")
    n = len(left["threads"]) + left["widgets"] + left["processes"]
    return {"left": replace(ROWS["left"], samples=(float(n),))}
