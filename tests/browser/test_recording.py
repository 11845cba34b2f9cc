"""Played recordings: torn journals, themes, narrow pages.  No cluster, no process: what is drawn is all there is."""

import shutil
from pathlib import Path

from tests.browser.lab import until
from tests.browser.scenes import RECORDED, SOON_MS, Desk

PLAY = "import drlnb\nrun = drlnb.play('recorded', speed=float('inf'))\nrun"
#: Widths in pixels of the window; the notebook's cells are narrower.
WIDTHS = (1400, 850, 320)
#: Elements of a panel that are wider than it, or stick out of the page, without a scroll bar of their own.
OVERFLOWS = """root => [root, ...root.querySelectorAll('*')].filter(one => {
  const style = getComputedStyle(one);
  if (one.closest('.drlnb-off') || !one.clientWidth || style.overflowX !== 'visible') return false;
  return one.scrollWidth > one.clientWidth + 1 && style.display !== 'inline';
}).map(one => `${one.tagName}.${one.className} ${one.scrollWidth} > ${one.clientWidth}`)"""
#: Colour of the picture's upper left corner: its background.
CORNER = "canvas => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data]"
#: Least contrast of a text and what is behind it, over the visible texts of a panel (WCAG's formula); colours that let
#: what is behind them shine through are mixed with it.
CONTRAST = """root => {
  const numbers = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = colour => colour.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    const layers = [];
    for (let one = node; one; one = one.parentElement) layers.push(numbers(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const texts = [...root.querySelectorAll('*')].filter(one => one.offsetParent && !one.closest('[aria-disabled=true]')
    && [...one.childNodes].some(child => child.nodeType === 3 && child.data.trim()));
  const all = texts.map(one => {
    const ground = behind(one), [a, b] = [over(numbers(getComputedStyle(one).color), ground), ground].map(light);
    return {ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text: one.innerText.slice(0, 30)};
  });
  return all.reduce((worst, one) => one.ratio < worst.ratio ? one : worst, {ratio: 99, text: ''});
}"""


def _recorded(folder: Path) -> Path:
    return Path(shutil.copytree(RECORDED, folder / "recorded"))


def test_torn_journals_are_told(notebook, tmp_path):
    """The panel says which files are torn and how much is missing, shows the rest, and stays alive.

    One file has half a line in its middle; of the other the last line is half a line, as a full disk leaves it.
    """
    folder = _recorded(notebook.path.parent) / "journal"
    (torn,), (cut,) = folder.glob("task-y-*.jsonl"), folder.glob("broker-*.jsonl")
    lines = torn.read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if i >= 60 and len(line) > 40)
    torn.write_text("".join([*lines[:at], lines[at][:20], "\n", *lines[at + 1 :]]), encoding="utf-8")
    cut.write_text(cut.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    notebook.open([PLAY])
    notebook.run_all()
    desk = Desk(notebook, 0)
    message = desk.message(torn.name)
    notebook.screenshot(tmp_path / "torn.png")
    assert f"{len(lines) - at} rows" in message.inner_text()
    assert "1 row is missing" in desk.message(cut.name).inner_text()
    assert desk.tasks.get_by_test_id("row").count() == 3
    desk.wait_bars(20)
    assert until(lambda: desk.painted() > 5, 20)
    desk.tasks.get_by_test_id("sort-rounds").click()
    assert desk.tasks.get_by_test_id("row").first.get_attribute("data-task") == "y"


def test_themes(notebook, page, tmp_path):
    """Light to dark and back: pictures are painted anew without a run of a cell, and every text can be read."""
    _recorded(notebook.path.parent)
    notebook.open([PLAY])
    notebook.run_all()
    desk = Desk(notebook, 0)
    desk.canvas.scroll_into_view_if_needed(timeout=SOON_MS)
    assert until(lambda: desk.painted() > 5, 20)
    corners = {}
    try:
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            _change(page, theme)
            assert until(lambda: desk.canvas.evaluate(CORNER) not in corners.values(), 20), "not painted anew"
            corners[theme] = desk.canvas.evaluate(CORNER)
            notebook.screenshot(tmp_path / f"{theme.split()[1].lower()}.png")
            for root in (desk.tasks, desk.leases):
                worst = root.evaluate(CONTRAST)
                assert worst["ratio"] >= 4.5, (theme, worst)
    finally:
        _change(page, "JupyterLab Light")
    assert until(lambda: desk.canvas.evaluate(CORNER) == corners["JupyterLab Light"], 20)
    assert sum(corners["JupyterLab Light"][:3]) > 600 > 300 > sum(corners["JupyterLab Dark"][:3])


def _change(page, theme: str) -> None:
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_function(
        "light => document.body.dataset.jpThemeLight === light", arg=str("Light" in theme).lower(), timeout=SOON_MS
    )


def test_no_overflow(notebook, page, tmp_path):
    """Nothing sticks out at any width, and the picture is as wide as its panel."""
    _recorded(notebook.path.parent)
    notebook.open([PLAY])
    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    notebook.run_all()
    desk = Desk(notebook, 0)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wide = "([canvas, root]) => canvas.width && Math.abs(canvas.clientWidth - root.clientWidth) <= 1"
        nodes = [desk.canvas.element_handle(), desk.leases.get_by_test_id("timeline").element_handle()]
        page.wait_for_function(wide, arg=nodes, timeout=SOON_MS)
        desk.canvas.scroll_into_view_if_needed()
        assert until(lambda: desk.painted() > 5, 20)
        notebook.screenshot(tmp_path / f"w{width}.png")
        for root in (desk.tasks, desk.leases):
            for module in root.locator(".drlnb").all():
                assert module.evaluate(OVERFLOWS) == [], width
        box = desk.canvas.bounding_box()
        assert box["x"] + box["width"] <= width
