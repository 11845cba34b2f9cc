"""Panels go on when their kernel is interrupted, restarted, or runs their cell again."""

from tests.browser.lab import until
from tests.browser.scenes import SOON_MS, TRAIN, Desk, cells, held_digests

#: No news for so long is told, in milliseconds.
SILENCE_MS = 10_000
#: What may not grow with a cell that is run again.
COUNTS = """{
  "threads": sorted(t.name for t in __import__('threading').enumerate() if t.name.startswith('drlnb')),
  "models": len([w for w in list(__import__('ipywidgets').widgets.widget._instances.values())
                 if type(w).__module__.startswith('drlnb')]),
  "runs": len(fleet.trainings),
}"""


def test_interrupt(notebook, tmp_path):
    """A cell that hangs is interrupted: it alone ends, the picture moves on and the buttons work."""
    notebook.open([*cells(), "import time\ntime.sleep(600)"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    notebook.run_cell(2, wait=False)
    notebook.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 20)
    notebook.interrupt()
    notebook.wait_idle(errors_ok=True)
    assert notebook.errors() == ["KeyboardInterrupt: "]
    newest = desk.rows()[0]
    assert until(lambda: desk.rows()[0] != newest, 20), "the picture stands still"
    desk.button("pause").click()
    desk.wait_states("paused")
    notebook.screenshot(tmp_path / "interrupted.png")
    assert notebook.page.locator(".drlnb-msg[data-level=error]").count() == 0


def test_restart(notebook, page, tmp_path):
    """The kernel restarts: panels say that no news comes, their buttons are off; running the cells again brings all."""
    page.clock.install()
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    notebook.restart()
    page.clock.fast_forward(SILENCE_MS + 2_000)
    desk.tasks.get_by_test_id("silence").get_by_text("no news since").first.wait_for(timeout=SOON_MS)
    desk.leases.get_by_test_id("silence").get_by_text("no news since").first.wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "restarted.png")
    assert desk.enabled() == []
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    assert set(desk.enabled()) >= {"Pause all", "Stop all"}
    assert notebook.output(1).get_by_test_id("silence").get_by_text("no news").count() == 0


def test_a_cell_that_is_run_again_attaches(notebook, tmp_path):
    """It says so in one line, and makes no second run, panel, thread or model."""
    notebook.open(cells())
    notebook.run_all()
    Desk(notebook, 1).wait_bars(6)
    before = notebook.kernel_eval(COUNTS)
    known = set(held_digests(notebook))
    for _ in range(3):
        notebook.run_cell(1)
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    said = [line for line in notebook.output(1).all_inner_texts() if "attached" in line]
    notebook.screenshot(tmp_path / "attached.png")
    assert len(said) == 1
    assert len(said[0].strip().splitlines()) == 1
    assert notebook.kernel_eval("run.id") in said[0]
    assert notebook.kernel_eval(COUNTS) == before
    assert set(held_digests(notebook)) == known
    again = notebook.add_cell(TRAIN.format(steps=200_000))
    notebook.run_cell(again)
    second = Desk(notebook, again)
    second.button("pause").click()
    desk.wait_states("paused")
    assert second.states() == desk.states()
