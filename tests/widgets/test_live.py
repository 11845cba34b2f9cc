"""Panels of real runs, and of a real kernel."""

import asyncio
import json
import time
from queue import Empty

import pytest

import drlnb
from tests.widgets.conftest import clicked, until

pytestmark = pytest.mark.cluster


def tasks(steps=200_000, seeds=(0, 1)):
    return [drlnb.Task("CartPole-v1", total_timesteps=steps, seed=seed) for seed in seeds]


def refreshed(panel, look, patience_s=60.0):
    """Bring a panel up to date until something is so."""
    end = time.monotonic() + patience_s
    while True:
        panel.refresh()
        if look():
            return
        assert time.monotonic() < end, panel.sentence()
        time.sleep(0.05)


def test_a_run_is_watched_steered_and_joined(tmp_path):
    """Pause, resume and a new rule by clicks; a second client sees the same from the beginning and stops the run."""
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(tasks(), out=tmp_path / "run")
        table, leases = run.panel("fleet"), run.panel("leasing")
        refreshed(leases, lambda: len(leases.view().columns["bars"]["start"]) > 3)
        assert "of 1 slots busy" in leases.sentence()
        clicked(table.pictures[0].widget, "pause", task="CartPole-v1-s0")
        refreshed(table, lambda: "1 paused" in table.sentence())
        clicked(table.pictures[0].widget, "resume", ident="c2", task="CartPole-v1-s0")
        refreshed(table, lambda: "paused" not in table.sentence())
        clicked(leases.shell.widget, "apply", hold="last", task="CartPole-v1-s1")
        refreshed(leases, lambda: leases.view().header["marks"])
        assert [mark["label"] for mark in leases.view().header["marks"]] == ["B hold: last"]
        with drlnb.Fleet(fleet.address) as other:
            guest = other.attach(run.run_id)
            assert guest is not run
            same = guest.panel("leasing")
            refreshed(same, lambda: len(same.view().columns["bars"]["start"]) > 3)
            first = [panel.view().columns["bars"]["start"][:3].tolist() for panel in (leases, same)]
            assert first[0] == pytest.approx(first[1], abs=0.5)
            assert same.view().header["series"] == leases.view().header["series"]
            clicked(guest.panel("fleet").shell.widget, "stop")
            assert run.settle(60)
            assert guest.settle(60)
        refreshed(table, lambda: table.sentence() == "2 tasks: 2 stopped")
        assert [list(panel.messages) for panel in (table, leases, same)] == [[], [], []]


def test_the_panel_of_a_short_run_reaches_its_end(tmp_path):
    """The last picture has every lease of the journal; its digest is that of the journal read anew."""
    from drlnb.views import leasing

    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(tasks(2_000), out=tmp_path / "run")
        panel = run.panel("leasing")
        run.wait(60)
        refreshed(panel, lambda: run.ended)
        until(lambda: leasing.gantt(run.journal()).digest() == panel.view().digest(), 10)
        assert run.report(tmp_path / "run.html").n_bytes < 500_000


KERNEL = """
import logging, threading
from types import SimpleNamespace
from drlnb.fleet.training import Training
from drlnb.records.spec import TaskSpec
from drlnb.runtime.rundir import RunDir
from tests.fleet.conftest import FakeLink, finished, header, opened
import sys
class Link(FakeLink):
    n = 0
    def rows(self, run_id, since, wait_s):
        import time
        time.sleep(0.05)
        self.n += 1
        rows = [header("a"), opened("a")] if self.n == 1 else [finished("a", self.n)]
        return since + len(rows), rows, False
link = Link()
link.known = [{"run": "r1", "state": "running", "tasks": {}}]
folder = RunDir(FOLDER)
folder.create({"run": "r1", "tasks": []})
run = Training("r1", (TaskSpec(name="a", env="E-v0", total_timesteps=10**9, n_envs=1),), folder, link)
"""


@pytest.fixture
def kernel():
    """Give a real kernel's client."""
    from jupyter_client.manager import start_new_kernel
    from jupyter_core.utils import ensure_event_loop

    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()
    for context in (client.context, manager.context):
        context.destroy(0)
    ensure_event_loop().close()  # jupyter_client keeps one for its synchronous calls
    asyncio.set_event_loop(None)


def listen(client, until_idle, seconds=30.0):
    """Return what the kernel publishes until it has carried out a request."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            message = client.get_iopub_msg(timeout=0.5)
        except Empty:
            continue
        message["at"] = time.monotonic()
        found.append(message)
        mine = message["parent_header"].get("msg_id") == until_idle
        if mine and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    return found


def execute(client, code):
    found = listen(client, client.execute(code))
    errors = [message["content"]["traceback"] for message in found if message["msg_type"] == "error"]
    assert not errors, "\n".join(errors[0])
    return found


def comm_msg(client, comm_id, content):
    message = client.session.msg("comm_msg", {"comm_id": comm_id, "data": {"method": "custom", "content": content}})
    client.shell_channel.send(message)
    return message["header"]["msg_id"]


def test_pictures_move_while_a_cell_blocks_and_nothing_is_left(kernel, tmp_path):
    """Deltas come during the cell, the click is carried out once, and closing leaves no thread, task or model."""
    execute(kernel, f"FOLDER = {str(tmp_path / 'run')!r}\n" + KERNEL)
    execute(
        kernel, "import ipywidgets.widgets.widget as w; from drlnb.widgets.live import live\nrun.panel('fleet').close()"
    )
    execute(kernel, "n = len(w._instances), sorted(t.name for t in threading.enumerate())")
    shown = execute(kernel, "panel = run.panel('fleet')\npanel")
    view = next(m["content"]["data"] for m in shown if m["msg_type"] == "execute_result")
    assert "1 task" in view["text/html"]
    table = next(
        m["content"]["comm_id"] for m in shown
        if m["msg_type"] == "comm_open" and m["content"]["data"]["state"].get("_anywidget_id", "").endswith("Table")
    )  # fmt: skip
    comm_msg(kernel, table, {"kind": "hello"})
    comm_msg(kernel, table, {"kind": "command", "id": "c1", "name": "pause", "args": {"task": "a"}})
    update = kernel.session.msg(
        "comm_msg", {"comm_id": table, "data": {"method": "update", "state": {"_view_count": 1}, "buffer_paths": []}}
    )
    kernel.shell_channel.send(update)
    blocked = execute(kernel, "import time; time.sleep(2.5)")
    began, ended = blocked[0]["at"], blocked[-1]["at"]
    deltas = [
        m["at"] for m in blocked
        if m["msg_type"] == "comm_msg" and m["content"]["data"].get("content", {}).get("kind") == "delta"
    ]  # fmt: skip
    assert len([at for at in deltas if began + 0.5 < at < ended]) >= 5
    execute(kernel, "time.sleep(0.5)\nassert link.asked == [('pause', 'a')], link.asked")
    execute(kernel, "for _ in range(5): run.panel('fleet')._repr_mimebundle_()")
    execute(kernel, "assert panel.messages.__len__() == 0, list(panel.messages)\npanel.close(); panel.close()")
    left = "(len(w._instances), sorted(t.name for t in threading.enumerate()))"
    execute(kernel, f"time.sleep(0.3)\nassert n == {left}, (n, {left})")
    execute(kernel, "assert not live.hub.running and not live.pump.running and not len(live.registry)")
    said = execute(kernel, "import json; print(json.dumps(panel.to_dict()['code'])); run.close()")
    assert json.loads(next(m["content"]["text"] for m in said if m["msg_type"] == "stream")) == 'run.panel("fleet")'
