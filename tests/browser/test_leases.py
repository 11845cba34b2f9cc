"""Scenes 2 and 13: can a person follow the slot from hand to hand, and does the picture live while a cell blocks?"""

import re
from itertools import pairwise

from tests.browser.scenes import LEASES, SOON_MS, Desk, cells

#: Counts the redrawn numbers of the lease panel, each of which comes with a delta; and when a click showed.
WATCH = """root => {
  window.drawn = 0;
  new MutationObserver(() => { window.drawn += 1; })
    .observe(root.querySelector('[data-testid=timeline] [data-testid=numbers]'), {childList: true});
}"""
CLICK = """button => new Promise((resolve, reject) => {
  const began = performance.now(), place = button.parentElement;
  new MutationObserver((_, me) => {
    if (place.querySelector('[data-state=pending]')) { me.disconnect(); resolve(performance.now() - began); }
  }).observe(place, {attributes: true, childList: true, subtree: true});
  setTimeout(() => reject(new Error('the click showed nothing')), 10000);
  button.click();
})"""
ASKED = "sum(len(s.of(__import__('drlnb').records.round.PauseAsked)) for s in run.journal().streams.values())"


def _number(text: str, label: str) -> float:
    return float(re.search(rf"{label} ([\d.]+)", text)[1])


def test_baton(notebook, page, tmp_path):
    """Arrow keys walk from lease to lease: no overlap, the fences rise, and waited and computed are the journal's."""
    notebook.open([*cells(4_000), "await run\nNone"])
    notebook.run_all()
    journal = sorted(notebook.kernel_eval(LEASES), key=lambda row: row["granted_s"])
    desk = Desk(notebook, 1)
    desk.canvas.scroll_into_view_if_needed()
    desk.wait_bars(len(journal))
    desk.twin(open_it=False)
    desk.canvas.focus()
    seen = []
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        seen.append(desk.leases.get_by_test_id("details").inner_text())
    notebook.screenshot(tmp_path / "baton.png")
    for text, lease in zip(seen, journal, strict=False):
        assert f"#{lease['fence'].partition('/')[2]}" in text
        assert lease["task"] in text
        assert abs(_number(text, "waited") - 1000 * lease["waited_s"]) <= 0.01 + 1e-3 * 1000 * lease["waited_s"]
        assert abs(_number(text, "computed") - 1000 * lease["computed_s"]) <= 0.01 + 1e-3 * 1000 * lease["computed_s"]
    fences = [int(re.search(r"#(\d+)", text)[1]) for text in seen]
    assert fences == sorted(set(fences))
    assert all(a["ended_s"] <= b["granted_s"] for a, b in pairwise(journal))
    tasks = [lease["task"] for lease in journal[:12]]
    assert sum(a != b for a, b in pairwise(tasks)) >= 8, tasks


def test_busy_cell(notebook, page, tmp_path):
    """While a cell sleeps for 5 s the picture is drawn 15 times; a click is pending at once, kept, and counts once."""
    notebook.open([*cells(), "import time\ntime.sleep(5)", "import drlnb.records.round"])
    for index in (0, 1, 3):
        notebook.run_cell(index)
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    desk.twin(open_it=False)
    desk.tasks.get_by_test_id("buttons").scroll_into_view_if_needed()
    desk.leases.evaluate(WATCH)
    notebook.run_cell(2, wait=False)
    notebook.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 5)
    pending_ms = desk.button("pause").evaluate(CLICK)
    assert pending_ms <= 100
    desk.tasks.get_by_text("the kernel is busy, the click is kept").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "busy_cell.png")
    notebook.wait_idle()
    drawn = page.evaluate("() => window.drawn")
    assert drawn >= 15
    desk.wait_states("paused")
    assert notebook.kernel_eval(ASKED) == 3
    assert len(desk.rows()) > 0
