"""How a node tries an environment before it is trained on."""

import asyncio
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

from drlnb.runtime.node.collectors import Collectors
from drlnb.runtime.protocol import probe_patience_s
from tests.runtime.played_agent import played_link


class Processes:
    """A node's processes, of which one answers what it is told to, or ends."""

    def __init__(self, *answers):
        self.answers, self.asked, self.stopped, self.live = list(answers), [], [], SimpleNamespace(message="")

    async def launch_probe(self, key, env, log):
        assert (key[0], env, log.parent) == ("probe", "Slow-v0", Path("here/drlnb-node"))
        return self.live

    async def ask(self, key, header, *, quiet_s):
        self.asked.append((header["op"], quiet_s))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, b""

    async def stop(self, key):
        self.stopped.append(key[0])


def probed(processes, patience_s=300.0):
    answer = asyncio.run(Collectors(played_link("here"), processes, None).probe_env("Slow-v0", patience_s))
    assert processes.stopped == ["probe"]
    return answer


@pytest.mark.parametrize("patience_s", [300.0, None])
def test_an_environment_may_take_its_time(patience_s):
    """To be built and tried, and to be frozen and thawed: as long as the caller gives it, each time."""
    processes = Processes({"op": "probed", "spaces": {"action_space": 1}}, {"op": "probed", "can_snapshot": True})
    assert probed(processes, patience_s) == {"spaces": {"action_space": 1, "can_snapshot": True}}
    assert processes.asked == [("probe", patience_s), ("probe-snapshot", patience_s)]


@pytest.mark.parametrize("answer", [{"op": "error", "kind": "EnvError"}, ConnectionError("the child is gone")])
def test_one_that_cannot_be_frozen_in_time_is_trained_without_snapshots(answer):
    """It was interrupted, or killed: that says nothing against it."""
    processes = Processes({"op": "probed", "spaces": {}}, answer)
    assert probed(processes) == {"spaces": {"can_snapshot": False}}


def test_one_that_hangs_is_named_with_the_time_that_it_had():
    """Interrupted where it hangs; or killed, if that does not help."""
    late = "it did not come back within env_timeout_s = 2 s"
    interrupted = {"op": "error", "kind": "EnvError", "message": late, "detail": "line 7"}
    assert probed(Processes(interrupted)) == {"error": "EnvError", "message": f"Slow-v0: {late}", "detail": "line 7"}
    processes = Processes(ConnectionError("the child is gone"))
    processes.live.message = "Slow-v0: killed"
    assert probed(processes) == {"error": "EnvError", "message": "Slow-v0: killed"}


def test_one_that_takes_its_process_along_is_named():
    """A crash while it is built has no words of its own."""
    said = "Slow-v0: the process that built it ended (the child is gone)"
    assert probed(Processes(ConnectionError("the child is gone")))["message"] == said


def test_who_waits_for_a_probe_waits_for_both_of_its_halves():
    """And a little for the way; for ever where the environment has all time."""
    assert (probe_patience_s(60.0, 30.0), probe_patience_s(None, 30.0)) == (150.0, None)


def test_the_folder_of_a_node_stands_for_no_module(tmp_path):
    """Dask puts a worker's folder on its path, and children inherit it: there a folder ``drlnb`` is a package.

    An installation that another finder finds (``pip install -e``) came second: its ``__init__`` never ran in
    collectors, and ``drlnb/Catch-v0`` was unknown to them.
    """
    folder = played_link(tmp_path).directory
    (folder / "logs").mkdir(parents=True)
    assert folder.parent == tmp_path
    assert PathFinder.find_spec(folder.name, [str(tmp_path)]).loader is None  # such a folder is one ...
    assert PathFinder.find_spec("drlnb", [str(tmp_path)]) is None  # ... but not of this name
