"""Played recordings: torn journals, themes, narrow pages.  No cluster, no process: what is drawn is all there is."""

import shutil
from pathlib import Path

import pytest

from drlnb.bench.jupyter import until
from tests.browser.scenes import RECORDED, SOON_MS, Desk

PLAY = "import drlnb\nrun = drlnb.play('recorded', speed=float('inf'))\nrun"
#: The widths that lab.md names, in pixels of the window; the notebook's cells are narrower.
WIDTHS = (1400, 850, 320)
#: Elements of a panel that are wider than it, or stick out of the page, without a scroll bar of their own.
OVERFLOWS = """root => [root, ...root.querySelectorAll('*')].filter(one => {
  const style = getComputedStyle(one);
  if (one.closest('.drlnb-off') || !one.clientWidth || style.overflowX !== 'visible') return false;
  return one.scrollWidth > one.clientWidth + 1 && style.display !== 'inline';
}).map(one => `${one.tagName}.${one.className} ${one.scrollWidth} > ${one.clientWidth}`)"""
#: Colour of the picture's upper left corner: its background.
CORNER = "canvas => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data]"
#: Least contrast of a text and what is behind it, over the visible texts of a panel (WCAG's formula).
CONTRAST = """root => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (let one = node; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const texts = [...root.querySelectorAll('*')].filter(one => one.offsetParent && !one.closest('[aria-disabled=true]')
    && [...one.childNodes].some(child => child.nodeType === 3 && child.data.trim()));
  const all = texts.map(one => {
    const [a, b] = [numbers(getComputedStyle(one).color), behind(one)].map(light);
    return {ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text: one.innerText.slice(0, 30)};
  });
  return all.reduce((worst, one) => one.ratio < worst.ratio ? one : worst, {ratio: 99, text: ''});
}"""


def _recorded(folder: Path) -> Path:
    return Path(shutil.copytree(RECORDED, folder / "recorded"))


def test_a_torn_journal_is_told(notebook, tmp_path):
    """Cut in the middle: the panel says which file and how much is missing, shows the rest, and goes on working."""
    (journal,) = (_recorded(notebook.path.parent) / "journal").glob("task-y-*.jsonl")
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    journal.write_text("".join(lines[:60]) + lines[60][:20] + "\n" + "".join(lines[61:]), encoding="utf-8")
    notebook.open([PLAY])
    notebook.run_all()
    desk = Desk(notebook, 0)
    message = desk.message("task-y-a1.jsonl")
    notebook.screenshot(tmp_path / "torn.png")
    assert f"{len(lines) - 60} rows" in message.inner_text()
    assert desk.tasks.get_by_test_id("row").count() == 3
    desk.wait_bars(20)
    assert until(lambda: desk.painted() > 5, 20)


def test_a_journal_that_is_cut_short_is_told(notebook):
    """The last line is half a line, as a full disk leaves it: one row is missing, and the panel says so."""
    (journal,) = (_recorded(notebook.path.parent) / "journal").glob("broker-*.jsonl")
    text = journal.read_text(encoding="utf-8")
    journal.write_text(text[:-30], encoding="utf-8")
    notebook.open([PLAY])
    notebook.run_all()
    desk = Desk(notebook, 0)
    assert "1 row is missing" in desk.message(journal.name).inner_text()
    desk.wait_bars(20)


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


@pytest.mark.parametrize("width", WIDTHS)
def test_no_overflow(open_notebook, tmp_path, width):
    """Nothing sticks out at any width, and the picture is as wide as its panel."""
    with open_notebook(width=width, height=900) as notebook:
        _recorded(notebook.path.parent)
        notebook.open([PLAY])
        notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
        notebook.run_all()
        desk = Desk(notebook, 0)
        desk.canvas.scroll_into_view_if_needed(timeout=SOON_MS)
        assert until(lambda: desk.painted() > 5, 20)
        notebook.screenshot(tmp_path / f"w{width}.png")
        for root in (desk.tasks, desk.leases):
            for module in root.locator(".drlnb").all():
                assert module.evaluate(OVERFLOWS) == []
        box, panel = desk.canvas.bounding_box(), desk.leases.bounding_box()
        assert box["width"] <= panel["width"]
        assert box["x"] + box["width"] <= width
