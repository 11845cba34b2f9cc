"""A click acts at once, a failure is shown, and buttons that are off say why."""

from tests.browser.lab import until
from tests.browser.scenes import FEEDBACK_MS, FLEET, PRESS, SOON_MS, Desk, cells, wait_asked

#: How long a question stands before it is taken back, in milliseconds.
QUESTION_MS = 5_000
RAISES = """
def pause(task=None):
    raise RuntimeError("planted: nobody pauses")

vars(run)["pause"] = pause
"""
#: A pause that takes until a file is there, so that it can be looked at.
SLOW = """
import pathlib, threading
gate, real = threading.Event(), run.pause

def pause(task=None):
    gate.wait(60)
    real(task)

vars(run)["pause"] = pause
"""


def test_stop_asks_first(notebook, page, tmp_path):
    """Stop asks in its place; Keep and 5 s take the question back; its second Stop stops every task, once."""
    page.clock.install()
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    stop = desk.button("stop")
    buttons = desk.tasks.get_by_test_id("buttons")
    yes, no = buttons.get_by_test_id("stop-yes"), buttons.get_by_test_id("stop-no")
    stop.click()
    buttons.get_by_text("Stop 3 tasks?").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "question.png")
    assert yes.evaluate("button => button === document.activeElement")
    no.click()
    stop.wait_for(timeout=SOON_MS)
    assert stop.evaluate("button => button === document.activeElement")
    stop.click()
    yes.wait_for(timeout=SOON_MS)
    page.clock.fast_forward(QUESTION_MS + 100)
    stop.wait_for(timeout=SOON_MS)
    assert yes.count() == 0
    stop.click()
    yes.evaluate("button => { button.click(); button.click(); }")
    desk.wait_states("stopped")
    desk.wait_on("stop", on=False)
    notebook.screenshot(tmp_path / "stopped.png")
    assert all(name.startswith("Restart") for name in desk.enabled())
    wait_asked(notebook, "StopAsked", 3)
    assert page.locator(".drlnb-msg[data-level=error]").count() == 0


def test_a_click_is_pending_until_its_answer(notebook, page, tmp_path):
    """A button is pending within 100 ms and until the command has ended, whoever clicks again; then it is idle."""
    notebook.open([*cells(), SLOW])
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_on("pause")
    pause = desk.button("pause")
    assert pause.evaluate(PRESS) <= 2 * FEEDBACK_MS
    notebook.screenshot(tmp_path / "pending.png")
    assert pause.get_attribute("data-state") == "pending"
    assert pause.get_attribute("aria-disabled") == "true"
    pause.click(force=True)
    pause.click(force=True)
    notebook.kernel_eval("gate.set()")
    desk.wait_states("paused")
    page.wait_for_function("button => button.dataset.state === 'idle'", arg=pause.element_handle(), timeout=SOON_MS)
    wait_asked(notebook, "PauseAsked", 3)
    desk.tasks.get_by_test_id("command-note").get_by_text("every task pauses after this round").wait_for(
        timeout=SOON_MS
    )


def test_one_task_alone(notebook, tmp_path):
    """The buttons of a row act on its task: paused, resumed, stopped, while the others train."""
    notebook.open(cells())
    notebook.run_all()
    desk = Desk(notebook, 1)
    row = desk.row("y")
    state = row.get_by_test_id("cell-state")
    desk.wait_button(row.get_by_test_id("pause-button"))
    assert row.get_by_test_id("pause-button").evaluate(PRESS) <= 2 * FEEDBACK_MS
    state.get_by_text("paused").wait_for(timeout=SOON_MS)
    desk.wait_button(row.get_by_test_id("resume-button"))
    row.get_by_test_id("resume-button").click()
    desk.wait_button(row.get_by_test_id("stop-button"))
    row.get_by_test_id("stop-button").click()
    row.get_by_text("Stop y?").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "row_question.png")
    row.get_by_test_id("stop-yes").click()
    state.get_by_text("stopped").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "row_stopped.png")
    assert notebook.kernel_eval("[task.state for task in run.tasks.values()]") == ["running", "stopped", "running"]
    wait_asked(notebook, "StopAsked", 1)


def test_a_command_that_fails(notebook, tmp_path):
    """The button says that it failed, the message area says what and where; the next click works."""
    notebook.open([*cells(), RAISES])
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.wait_on("pause")
    desk.button("pause").click()
    message = desk.message("pause task: RuntimeError: planted: nobody pauses")
    assert message.get_attribute("role") == "alert"
    message.locator("summary").click()
    assert "in pause" in message.locator("pre").text_content()
    desk.tasks.locator("[data-testid=buttons] [data-state=failed]").wait_for(timeout=SOON_MS)
    assert "planted" in desk.tasks.get_by_test_id("command-note").inner_text()
    notebook.screenshot(tmp_path / "failed_command.png")
    notebook.kernel_eval("delattr(run, 'pause')")
    desk.button("pause").click()
    desk.wait_states("paused")
    assert desk.button("pause").get_attribute("data-state") == "idle"


def test_clicks_while_it_starts_and_after_the_cluster_is_gone(notebook, page, tmp_path):
    """Two clicks on Start are one run; with the cluster killed below it, the panel says so and is no wreck."""
    notebook.open([FLEET + "\nfleet.panel(env='CartPole-v1', total_timesteps='100000')"])
    notebook.run_all()
    launcher = page.locator(".drlnb-t-launcher")
    start = launcher.get_by_test_id("buttons").get_by_test_id("start-button")
    start.wait_for(timeout=SOON_MS)
    assert start.evaluate(PRESS) <= 2 * FEEDBACK_MS
    start.click(force=True)
    launcher.get_by_test_id("row").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "launched.png")
    assert notebook.kernel_eval("len(fleet.trainings)") == 1
    launcher.get_by_test_id("cell-state").get_by_text("computing").or_(
        launcher.get_by_test_id("cell-state").get_by_text("collecting")
    ).first.wait_for(timeout=SOON_MS)
    notebook.kernel_eval("fleet.kill()")
    page.wait_for_function(
        """() => [...document.querySelectorAll('.drlnb-t-launcher button[data-main]')]
        .filter(one => one.offsetParent).every(one => one.getAttribute('aria-disabled') === 'true')""",
        timeout=SOON_MS,
    )
    launcher.get_by_test_id("notes").get_by_text("this fleet is closed").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "cluster_gone.png")
    assert until(lambda: notebook.kernel_eval("fleet.trainings[-1].ended"), 20)
    assert notebook.kernel_eval("drlnb.widgets.faces.live.hub.running if hasattr(drlnb, 'widgets') else True")
