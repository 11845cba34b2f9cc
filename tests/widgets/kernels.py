"""A real kernel, and a run in it whose cluster is played by a few lines."""

import asyncio
import time
from queue import Empty

import pytest

__all__ = ["KERNEL", "Kernel", "kernel"]

KERNEL = """
import threading, time
from drlnb.fleet.follower import Follower
from drlnb.fleet.training import Training
from drlnb.records.spec import RlWork
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import FakeLink, finished, header, opened
class Link(FakeLink):
    n = 0
    def rows(self, run_id, since, wait_s):
        time.sleep(0.05)
        self.n += 1
        rows = [header("a"), opened("a")] if self.n == 1 else [finished("a", self.n)]
        return since + len(rows), rows, False
link = Link()
link.known = [{"run": "r1", "state": "running", "tasks": {}}]
folder = RunDir(FOLDER)
folder.create({"run": "r1", "tasks": []})
specs = (RlWork(name="a", env="E-v0", total_timesteps=10**9, n_envs=1),)
run = Training(Follower(link, "r1", specs, folder))
"""


class Kernel:
    """A kernel and what it publishes."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def listen(self, request, seconds=30.0):
        """Return what the kernel publishes until it has carried out a request."""
        found, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                message = self.client.get_iopub_msg(timeout=0.5)
            except Empty:
                continue
            message["at"] = time.monotonic()
            found.append(message)
            mine = message["parent_header"].get("msg_id") == request
            if mine and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
        raise AssertionError(f"not carried out within {seconds:g} s; last: {[m['msg_type'] for m in found[-5:]]}")

    def execute(self, code):
        """Run a cell to its end; it must not raise."""
        found = self.listen(self.client.execute(code))
        errors = [message["content"]["traceback"] for message in found if message["msg_type"] == "error"]
        assert not errors, "\n".join(errors[0])
        return found

    def interrupted(self, code, after_s):
        """Interrupt a cell; return the name of what it raised, and what it printed."""
        request, begun = self.client.execute(code), False
        while not begun:
            message = self.client.get_iopub_msg(timeout=30.0)
            begun = message["parent_header"].get("msg_id") == request and message["msg_type"] == "execute_input"
        time.sleep(after_s)
        self.manager.interrupt_kernel()
        found = self.listen(request)
        (raised,) = [message["content"]["ename"] for message in found if message["msg_type"] == "error"]
        return raised, printed(found)

    def comm(self, model, **data):
        """Send what a page sends to a model."""
        message = self.client.session.msg("comm_msg", {"comm_id": model, "data": {"buffer_paths": [], **data}})
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def say(self, model, **content):
        """Send a custom message to a model."""
        return self.comm(model, method="custom", content=content)

    def show(self, model):
        """Say that a page draws a model."""
        return self.comm(model, method="update", state={"_view_count": 1})


def printed(messages):
    """Return what a cell wrote to its standard output."""
    return "".join(
        m["content"]["text"] for m in messages if m["msg_type"] == "stream" and m["content"]["name"] == "stdout"
    )


def models(messages, module):
    """Return the ids of the models of one of our classes that were opened."""
    opened = [m["content"] for m in messages if m["msg_type"] == "comm_open"]
    return [one["comm_id"] for one in opened if one["data"]["state"].get("_anywidget_id", "").endswith(module)]


def custom(messages, kind):
    """Return the custom messages of a kind."""
    found = [m for m in messages if m["msg_type"] == "comm_msg"]
    return [m for m in found if m["content"]["data"].get("content", {}).get("kind") == kind]


@pytest.fixture
def kernel():
    """Start a kernel that is gone when the test ends."""
    from jupyter_client.manager import start_new_kernel
    from jupyter_core.utils import ensure_event_loop

    manager, client = start_new_kernel(kernel_name="python3")
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()
    for context in (client.context, manager.context):
        context.destroy(0)
    ensure_event_loop().close()  # jupyter_client keeps one for its synchronous calls
    asyncio.set_event_loop(None)
