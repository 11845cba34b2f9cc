"""A picture outlives its kernel: in the notebook's file, opened without one, and in a page that nbconvert makes."""

import json
import subprocess
import sys

import nbformat
import pytest

from tests.browser.lab import chromium, until
from tests.browser.scenes import SOON_MS
from tests.notebooks.conftest import NOTEBOOKS

CELLS = ["from drlnb.widgets.faces import distribution\n\nd = distribution()\nd"]
RUN = """
import drlnb
run = drlnb.Fleet(slots=1).train(drlnb.Task("CartPole-v1", name="x", total_timesteps=200_000))
run
"""
#: What nbconvert's own template asks for, whatever is in a notebook, and how it is told not to.
QUIET = [f"--HTMLExporter.{name}=data:text/javascript," for name in ("require_js_url", "mathjax_url")]


def _saved(notebook, cell: int = 0) -> str:
    """Save the notebook; return the picture that its file keeps for a cell."""
    notebook.save()
    outputs = json.loads(notebook.path.read_text(encoding="utf-8"))["cells"][cell]["outputs"]
    return "".join(outputs[0]["data"]["text/html"])


def test_the_last_picture_is_in_the_file(notebook, page, tmp_path):
    """Changed, reloaded, changed again, shut down: what was shown last is shown without a kernel; no state is kept."""
    notebook.open([*CELLS, RUN])
    notebook.run_all()
    panel = page.locator(".drlnb-t-distribution").first
    field = panel.locator(".drlnb-t-model_mb input")
    twins = page.locator("[data-drlnb-twin]")
    for mb in ("55", "66"):
        field.fill(mb)
        field.press("Enter")
        assert until(lambda mb=mb: f"{mb} MB" in _saved(notebook), SOON_MS / 1e3), mb
        assert [twin.is_visible() for twin in twins.all()] == [False] * 3, "the panel lives"
        if mb == "55":
            notebook.reload()
            panel.get_by_test_id("sentence").wait_for(timeout=SOON_MS)
    assert "widgets" not in json.loads(notebook.path.read_text(encoding="utf-8"))["metadata"]
    resume = notebook.kernel_eval("str(run.out.name)")
    notebook.restart()
    silence = page.locator(".drlnb-t-fleet").get_by_test_id("silence").first
    assert until(lambda: "drlnb.resume(" in silence.inner_text() and resume in silence.inner_text(), SOON_MS / 1e3)
    notebook.screenshot(tmp_path / "restarted.png")
    notebook.lab.end_kernel(notebook.lab.kernel_of(notebook.name))
    page.goto("about:blank")
    notebook.expected = "model"  # JupyterLab's own word on a widget that is gone
    notebook.open()
    assert until(lambda: [twin.is_visible() for twin in twins.all()] == [True] * 3, SOON_MS / 1e3)
    assert "66 MB" in twins.first.inner_text()
    assert f'drlnb.resume("runs/{resume}")' in twins.nth(1).inner_text()
    gone = page.locator(".jp-OutputArea-output.jupyter-widgets")
    assert [one.is_visible() for one in gone.all()] == [False] * gone.count()
    notebook.screenshot(tmp_path / "without_a_kernel.png")


def _asked(browser, path) -> tuple[list[str], list[bool]]:
    """Open a page from its file; return what it asked the network for, and whether each picture is there."""
    page, asked = browser.new_page(), []
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else asked.append(request.url)
    )
    page.goto(f"file://{path}", wait_until="load")
    pictures = page.evaluate("[...document.images].map(one => one.complete && one.naturalWidth > 0)")
    assert page.locator("script[type*=widget]").count() == 0, "an empty strip"
    page.close()
    return asked, pictures


def _converted(folder, name: str, *words: str):
    """Run a notebook and make a page of it, as a user does; return the page's path."""
    line = [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", "--output", f"{name}-{len(words)}"]
    done = subprocess.run([*line, *words, f"{name}.ipynb"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / f"{name}-{len(words)}.html"


def _check(playwright, folder, name: str, n_pictures: int) -> None:
    empty = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    nbformat.write(empty, folder / "empty.ipynb")
    with chromium(playwright) as browser:
        its_own, _ = _asked(browser, _converted(folder, "empty"))
        asked, pictures = _asked(browser, _converted(folder, name))
        assert set(asked) <= set(its_own), "what nbconvert's template asks for in any notebook, and nothing else"
        assert len(pictures) >= n_pictures
        assert all(pictures)


@pytest.mark.slow
def test_a_converted_notebook_needs_no_network(playwright, tmp_path):
    """Its page asks for nothing that an empty notebook's would not, and for nothing at all where that is turned off."""
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "panel.ipynb")
    _check(playwright, tmp_path, "panel", 2)
    with chromium(playwright) as browser:
        asked, pictures = _asked(browser, _converted(tmp_path, "panel", *QUIET))
    assert asked == []
    assert all(pictures)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_is_converted_with_its_pictures(playwright, tmp_path, path):
    """As above, for those that are kept here; tables are text, so the tour has the leases of its two desks."""
    (tmp_path / path.name).write_bytes(path.read_bytes())
    _check(playwright, tmp_path, path.stem, 2 if path.stem == "00_tour" else 4)


#: From now on nothing that the kernel says of its panels reaches a page.
DEAF = """
from drlnb.widgets.panels import picture
send = picture.Picture.send
picture.Picture.send = lambda self, *words, **named: None
"""


@pytest.mark.slow
def test_what_was_lost_is_asked_for_again(notebook, page):
    """A server that drops messages leaves a gap: the page asks, has the newest picture, and no click waits for ever."""
    notebook.open([*CELLS, DEAF, "picture.Picture.send = send"])
    notebook.run_cell(0)
    panel = page.locator(".drlnb-t-distribution").first
    sentence, button = panel.get_by_test_id("sentence").first, panel.get_by_test_id("simulate-button")
    assert until(lambda: "relay m=8 to 16 hosts" in sentence.inner_text(), SOON_MS / 1e3)
    notebook.run_cell(1)
    box = panel.locator(".drlnb-t-m input").first
    box.fill("4")
    box.press("Enter")
    button.click()
    assert until(lambda: notebook.kernel_eval("'shards' in d.content.simulations.results"), SOON_MS / 1e3)
    assert button.get_attribute("data-state") == "pending"
    assert "m=8" in sentence.inner_text()
    notebook.run_cell(2)
    assert until(lambda: "relay m=4 to 16 hosts" in sentence.inner_text(), SOON_MS / 1e3)
    assert until(lambda: button.get_attribute("data-state") == "idle", SOON_MS / 1e3)
    assert notebook.kernel_eval("len(d.commands._states)") == 1, "it was carried out once"
