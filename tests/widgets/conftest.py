import threading
import time

import comm
import comm.base_comm
import pytest
from ipywidgets.widgets import widget as ipywidgets_widget

from drlnb.fleet.follower import Follower
from drlnb.fleet.training import Training
from drlnb.records.spec import RlWork
from drlnb.runtime.files.run_directory import RunDir
from drlnb.widgets.transport.live import live
from tests.fleet.conftest import FakeLink


class FakeComm(comm.base_comm.BaseComm):
    """A comm that keeps what is sent, and who sent it."""

    def __init__(self, *args, **kwargs):
        self.sent = []
        super().__init__(*args, **kwargs)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        self.sent.append((threading.current_thread().name, msg_type, data or {}))

    @property
    def custom(self):
        """What custom messages said."""
        return [data["content"] for _, _, data in self.sent if data.get("method") == "custom"]

    @property
    def updates(self):
        """Which traits were written by which thread."""
        return [(thread, set(data["state"])) for thread, _, data in self.sent if data.get("method") == "update"]


@pytest.fixture(autouse=True)
def comms(monkeypatch):
    """Fake comms, and no model left at the end."""
    monkeypatch.setattr(comm, "create_comm", FakeComm)
    before = set(ipywidgets_widget._instances)
    yield
    live.registry.close_all()
    assert set(ipywidgets_widget._instances) <= before
    assert not live.hub.running
    assert len(live.registry) == 0


class PanelLink(FakeLink):
    """A cluster that also hears of settings."""

    def set(self, run_id, key, value, *, task=None):
        if self.failure:
            raise self.failure
        self.asked.append(("set", key, value, task))


@pytest.fixture
def link():
    made = PanelLink()
    made.known = [{"run": "r1", "state": "running", "tasks": {}}]
    return made


@pytest.fixture
def specs():
    return tuple(RlWork(name=name, env="CartPole-v1", total_timesteps=1000, n_envs=1) for name in ("a", "b"))


@pytest.fixture
def run(link, specs, tmp_path):
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    made = Training(Follower(link, "r1", specs, folder), planners={"hold": "round"})
    yield made
    made.close()


def until(look, patience_s=5.0):
    """Wait until something is so; threads of ours make it so."""
    end = time.monotonic() + patience_s
    while not look():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


def shown(widget, n=1):
    """Say that a page draws the widget so many times."""
    widget._view_count = n


def said(widget, content):
    """Say what a page sends."""
    widget._handle_custom_msg(content, [])


def clicked(widget, name, ident="c1", **args):
    """Click a button."""
    said(widget, {"kind": "command", "id": ident, "name": name, "args": args})
