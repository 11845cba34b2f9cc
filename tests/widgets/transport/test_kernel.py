"""Panels in a real kernel: clicks and pictures whatever its cells do, and nothing left behind."""

import json

import psutil
import pytest

from tests.widgets.conftest import until
from tests.widgets.kernels import KERNEL, custom, kernel, models, printed

__all__ = ["kernel"]

pytestmark = pytest.mark.cluster

#: What must be the same again: our models, and every thread.
LEFT = "(len(w._instances), sorted(t.name for t in threading.enumerate()))"


def soon(condition, what="None"):
    """Return code that waits until something holds, and raises with `what` if it does not."""
    wait = f"end = time.monotonic() + 10\nwhile not ({condition}) and time.monotonic() < end: time.sleep(0.02)\n"
    return f"{wait}assert {condition}, {what}"


@pytest.fixture
def panel(kernel, tmp_path):
    """Give the table's model of a shown panel of a run that goes on."""
    kernel.execute(f"FOLDER = {str(tmp_path / 'run')!r}\n" + KERNEL)
    kernel.execute("import ipywidgets.widgets.widget as w; from drlnb.widgets.transport.live import live")
    kernel.execute("run.panel('fleet').close()")  # threads of the libraries that stay
    kernel.execute(f"before = {LEFT}")
    shown = kernel.execute("panel = run.panel('fleet')\npanel")
    twin, view = (m["content"]["data"] for m in shown if m["msg_type"] in {"display_data", "execute_result"})
    assert "1 task" in twin["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in view
    request = next(m["parent_header"]["msg_id"] for m in shown if m["msg_type"] == "execute_result")
    opened = [m for m in shown if m["msg_type"] == "comm_open"]
    assert opened
    assert not [m for m in opened if m["parent_header"].get("msg_id") == request], "runners of notebooks keep those"
    (table,) = models(shown, "Table")
    kernel.say(table, kind="hello")
    kernel.show(table)
    yield table
    kernel.execute("assert panel.messages.__len__() == 0, list(panel.messages)\npanel.close(); panel.close()")
    kernel.execute(soon(f"before == {LEFT}", f"(before, {LEFT})"))
    kernel.execute("assert not live.hub.running and not live.pump.running and not len(live.registry)")
    said = printed(kernel.execute("import json; print(json.dumps(panel.to_dict()['code'])); run.close()"))
    assert json.loads(said) == 'run.panel("fleet")'


def test_pictures_move_while_a_cell_blocks(kernel, panel):
    """Deltas of a table come during the cell, two a second."""
    blocked = kernel.execute("time.sleep(4)")
    began, ended = blocked[0]["at"], blocked[-1]["at"]
    assert len([m for m in custom(blocked, "delta") if began + 0.5 < m["at"] < ended]) >= 3


@pytest.mark.parametrize("cell", ["time.sleep(1.5)", "import asyncio; await asyncio.sleep(1.5)", "pass"])
def test_a_click_is_carried_out_once_whatever_the_kernel_does(kernel, panel, cell):
    """Blocked, awaiting or idle: nothing is lost, nothing done twice, and no callback waits for the cluster."""
    kernel.execute("""
from drlnb.widgets.transport.commands import Commands
over, receive, answers = [], Commands.receive, threading.Event()
def counted(self, *args):
    receive(self, *args)
    over.append(args)
Commands.receive = counted
control = link.control
def slow(*args, **keys):
    assert answers.wait(20)
    control(*args, **keys)
link.control = slow
""")
    request = kernel.client.execute(cell)
    for _ in range(2):  # a page that has heard no answer says it again
        kernel.say(panel, kind="command", id="c1", name="pause", args={"task": "a"})
    kernel.say(panel, kind="command", id="c2", name="resume", args={"task": "a"})
    kernel.listen(request)
    kernel.execute(soon("len(over) == 3", "over") + "\nassert link.asked == []\nanswers.set()")
    kernel.execute(soon("len(link.asked) >= 2", "link.asked"))
    kernel.execute("time.sleep(0.2)\nassert link.asked == [('pause', 'a'), ('resume', 'a')], link.asked")
    kernel.execute("Commands.receive = receive")


def test_a_cell_that_is_run_five_times_makes_nothing_more(kernel, panel):
    """Threads and models are counted after the first and after the fifth time; a desk is one, too."""
    kernel.execute("run")
    kernel.execute(f"once = {LEFT}")
    for _ in range(5):
        kernel.execute("run")
        kernel.execute("run.panel('fleet')")
    kernel.execute(f"assert once == {LEFT}, (once, {LEFT})\nrun.panel().close(); panel = run.panel('fleet')")


@pytest.mark.parametrize("cell", ["await run", "run.wait()"])
def test_an_interrupted_cell_leaves_run_and_panel_alone(kernel, panel, cell):
    """It waits no more, says in one line what goes on, and the picture moves on."""
    raised, said = kernel.interrupted(cell, after_s=1.0)
    assert raised in {"KeyboardInterrupt", "CancelledError"}
    assert said == "drlnb: interrupted: this cell waits no more, run r1 goes on (run.stop() ends it)\n"
    after = kernel.execute("time.sleep(3)\nassert not run.ended and run.status == 'running'")
    assert len(custom(after, "delta")) >= 2
    kernel.say(panel, kind="command", id="c9", name="pause", args={"task": "a"})
    kernel.execute(soon("link.asked == [('pause', 'a')]", "link.asked"))


def test_what_raises_gives_one_message_each_and_the_panel_lives_on(kernel, panel):
    """A drawing that fails again and again counts up; a handler's failure stands beside it."""
    kernel.execute("""
leases = run.panel("leasing")
content = leases.content
draw, content.draw = content.draw, lambda name="": 1 / 0
leases.touch()
for _ in range(4): leases.refresh()
content.hold.spans = lambda: {}
content.panel.fields["window"].field.value = "2 min"
del content.hold.spans
""")
    said = json.loads(
        printed(kernel.execute("import json; print(json.dumps([[m.text, m.n > 1] for m in leases.messages]))"))
    )
    assert sorted(said) == [
        ["draw panel: ZeroDivisionError: division by zero", True],
        ["read window: KeyError: '2 min'", False],
    ]
    kernel.execute("content.draw = draw; leases.touch(); leases.refresh()")
    kernel.execute("assert leases.view().sentence and not leases.closed\nleases.close()")


def test_a_restarted_kernel_has_no_panel_and_no_thread(kernel, tmp_path):
    """The old process ends within seconds, hub and all; the same cells work in the new one."""
    kernel.execute(f"FOLDER = {str(tmp_path / 'run')!r}\n" + KERNEL + "import os\npanel = run.panel()")
    old = psutil.Process(int(printed(kernel.execute("print(os.getpid())"))))
    kernel.manager.restart_kernel(now=False)
    kernel.client.wait_for_ready(timeout=30)
    until(lambda: not old.is_running() or old.status() == psutil.STATUS_ZOMBIE, 10)
    kernel.execute("import threading; assert not [t for t in threading.enumerate() if t.name.startswith('drlnb')]")
    kernel.execute(f"FOLDER = {str(tmp_path / 'again')!r}\n" + KERNEL)
    assert models(kernel.execute("run.panel()"), "Timeline")
    kernel.execute("run.panel().close(); run.close()")
