"""Scenes 2 and 13: a user follows the slot from hand to hand, and the picture lives while a cell blocks."""

import itertools
import re
import shutil
from itertools import pairwise

from drlnb.records.columns.leasing import LeaseGranted, LeaseReleased
from drlnb.records.journal import read_stream
from tests.browser.lab import until
from tests.browser.scenes import FEEDBACK_MS, PRESS, RECORDED, SOON_MS, Desk, cells, wait_asked

#: Counts the redrawn numbers of the lease panel, each of which comes with a delta.
WATCH = """root => {
  window.drawn = 0;
  new MutationObserver(() => { window.drawn += 1; })
    .observe(root.querySelector('[data-testid=timeline] [data-testid=numbers]'),
             {childList: true, characterData: true, subtree: true});
}"""


#: When the first lease was granted, as the run's table has it: on the clock of the picture.
FIRST = "min(row['granted_s'] for row in run.rows('leases'))"

PLAY = "import drlnb\nrun = drlnb.play({path!r}, speed=float('inf'))\nrun"


def _number(text: str, label: str) -> float:
    return float(re.search(rf"{label} ([\d.]+)", text)[1])


def _leases() -> list[dict]:
    """Return the leases of the recording as its broker wrote them, oldest first."""
    (path,) = (RECORDED / "journal").glob("broker-*.jsonl")
    stream, found = read_stream(path), {}
    for granted_s, granted in stream.timed(LeaseGranted):
        task, token = granted.task.rpartition("/")[2], granted.fence.token
        found[token] = {"task": task, "token": token, "waited_s": granted.waited_s, "granted_s": granted_s}
    for ended_s, released in stream.timed(LeaseReleased):
        found[released.fence.token] |= {"computed_s": sum(released.computed_s), "ended_s": ended_s}
    return list(found.values())


def test_baton(notebook, page, tmp_path):
    """Arrow keys walk through a recording: no overlap, fences rise, tasks alternate, details are the journal's."""
    shutil.copytree(RECORDED, notebook.path.parent / "recorded")
    notebook.open([PLAY.format(path="recorded")])
    notebook.run_all()
    leases = _leases()
    desk = Desk(notebook, 0)
    desk.wait_bars(len(leases))
    desk.twin(open_it=False)
    desk.canvas.focus()
    seen = []
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        seen.append(desk.leases.get_by_test_id("details").inner_text())
    notebook.screenshot(tmp_path / "baton.png")
    for text, lease in zip(seen, leases, strict=False):
        assert f"#{lease['token']} " in f"{text} "
        assert text.split(" · ")[1].split()[1] == lease["task"]
        for label in ("waited", "computed"):
            exact_ms = 1e3 * lease[f"{label}_s"]
            assert re.search(rf"{label} [\d.]+ ms", text)
            assert abs(_number(text, label) - exact_ms) <= 0.001 + 1e-4 * exact_ms  # five digits are written
    fences = [int(re.search(r"#(\d+)", text)[1]) for text in seen]
    assert fences == sorted(set(fences))
    assert all(a["ended_s"] <= b["granted_s"] for a, b in pairwise(leases))
    assert sum(a["task"] != b["task"] for a, b in pairwise(leases[:12])) >= 8, leases[:12]
    assert desk.enabled() == []
    _zoom(page, desk, leases, tmp_path)
    assert page.locator(".drlnb-msg[data-level=error]").count() == 0


def _zoom(page, desk, leases, tmp_path):
    """Drag over a part: the headline is of that part, as the rows have it, until all is shown again."""
    whole, box = desk.sentence(), desk.canvas.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()
    pattern = (
        r"zoomed to ([\d.]+ m?s) to ([\d.]+ m?s): held (\d+) %, computing (\d+) % of the time that slots were there"
    )
    assert until(lambda: re.fullmatch(pattern, desk.sentence()), SOON_MS / 1e3), desk.sentence()
    desk.sheet.screenshot(tmp_path / "zoomed.png")
    *ends, held, _ = re.fullmatch(pattern, desk.sentence()).groups()
    low, high = ([_seconds(end) + off for off in (-0.05, 0.0, 0.05)] for end in ends)  # they may be written in tenths
    first_s = min(lease["granted_s"] for lease in leases) - float(desk.sheet.kernel_eval(FIRST))
    spans = [(of["granted_s"] - first_s, of["ended_s"] - first_s) for of in leases]
    first, last = min(start for start, _ in spans), max(stop for _, stop in spans)  # that long slots were there
    shares = [
        100
        * sum(max(0.0, min(stop, to) - max(start, begin)) for start, stop in spans)
        / (min(to, last) - max(begin, first))
        for begin, to in itertools.product(low, high)
    ]
    assert min(shares) - 1 <= float(held) <= max(shares) + 1
    desk.leases.get_by_test_id("zoom-reset").click()
    assert until(lambda: desk.sentence() == whole, SOON_MS / 1e3), desk.sentence()


def _seconds(text):
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3}[unit]


def test_busy_cell(notebook, page, tmp_path):
    """While a cell sleeps for 5 s the picture is drawn 15 times; a click is pending at once, kept, and counts once."""
    notebook.open([*cells(), "import time\ntime.sleep(5)", "time.sleep(5)"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    desk.twin(open_it=False)
    desk.tasks.get_by_test_id("buttons").scroll_into_view_if_needed()
    desk.leases.evaluate(WATCH)
    notebook.run_cell(2)
    drawn = page.evaluate("() => window.drawn")
    assert drawn >= 15
    notebook.run_cell(3, wait=False)
    notebook.wait_for("return panel.sessionContext.session.kernel.status === 'busy';", 20)
    pending_ms = desk.button("pause").evaluate(PRESS)
    assert pending_ms <= 2 * FEEDBACK_MS, f"{pending_ms:.0f} ms"  # the bench holds the bar itself
    # Some kernels carry a click out beside the cell; one that cannot says that it keeps it.
    kept = desk.tasks.get_by_text("the kernel is busy, the click is kept")
    resume = desk.button("resume").and_(page.locator(":not([aria-disabled=true])"))
    kept.or_(resume).first.wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "busy_cell.png")
    notebook.wait_idle()
    desk.wait_states("paused")
    wait_asked(notebook, "PauseAsked", 3)
    assert len(desk.rows()) > 0
