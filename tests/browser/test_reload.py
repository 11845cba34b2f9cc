"""Scenes 11 and 12: is everything there again after a reload, and the same in a second notebook?"""

import time

from drlnb.bench.jupyter import until
from tests.browser.scenes import LEASES, Desk, cells

ATTACH = "import drlnb\nfleet = drlnb.Fleet({address!r})\nrun = fleet.attach({run!r})\nrun"
#: lab.md 10: what a reload and another notebook's click may take; twice that on a machine that does other things.
BACK_S, HEARD_S = 3.0, 1.0


def _rest(desk: Desk) -> None:
    """Pause everything, so that nothing changes any more."""
    desk.button("pause").click()
    desk.wait_states("paused")


def test_lid(notebook, page, tmp_path):
    """Reload in the middle of a run: the same bars and the same enabled buttons; a lost connection loses nothing."""
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    _rest(desk)
    # The journal reaches the disk a second later than the panel.
    assert until(lambda: len(desk.rows()) == min(len(notebook.kernel_eval(LEASES)), 200), 10)
    before = desk.rows(), desk.enabled(), desk.sentence()
    notebook.save()
    notebook.reload()
    shown = time.monotonic()
    desk = Desk(notebook, 1)
    desk.canvas.scroll_into_view_if_needed(timeout=30_000)
    assert until(lambda: desk.painted() > 5, 10)
    assert time.monotonic() - shown <= 2 * BACK_S
    assert (desk.rows(), desk.enabled(), desk.sentence()) == before
    notebook.screenshot(tmp_path / "lid.png")
    notebook.script("await panel.sessionContext.session.kernel.reconnect();")
    notebook.wait_ready()
    desk.button("resume").click()
    assert until(lambda: desk.rows()[0][0] != before[0][0][0], 10), "nothing new after the connection was lost"
    assert notebook.kernel_eval("len(run.tasks)") == 3


def test_second_notebook(notebook, open_notebook, tmp_path):
    """The same letters and colours elsewhere; a click there shows here; closing it stops nothing."""
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    known = notebook.kernel_eval("{'address': fleet.address, 'run': run.run_id}")
    with open_notebook() as second:
        second.open([ATTACH.format(**known)])
        second.run_all()
        other = Desk(second, 0)
        other.wait_bars(6)
        assert _letters(other) == _letters(desk)
        began = time.monotonic()
        other.button("pause").click()
        desk.wait_states("paused")
        assert time.monotonic() - began <= 2 * HEARD_S
        second.screenshot(tmp_path / "second.png")
    assert desk.states() == ["‖ paused"] * 3
    desk.button("resume").click()
    newest = desk.rows()[0]
    assert until(lambda: desk.rows()[0] != newest, 10), "the run stands still since the second notebook was closed"


def _letters(desk: Desk) -> list[list[str]]:
    return desk.tasks.evaluate("""root => [...root.querySelectorAll('.drlnb-chip')]
        .map(chip => [chip.innerText, chip.style.background])""")
