"""Follow every process below a cluster's supervisor, and find those that nobody owns."""

import signal
import time
from typing import Any

import psutil
from distributed import Client

from drlnb.runtime.protocol import AGENT
from tests.survivors import survivors

#: Longest wait for a task to get going, in seconds.
_GOING_S = 60.0
#: When the dead are counted, in seconds after the kill.
COUNT_S = 5.0


class Family:
    """Every process of a stage that was ever seen.

    Parameters
    ----------
    pid
        The supervisor's process.
    client
        Of its cluster, while it lives.

    Notes
    -----
    A stray is one of them that lives, is not below the living supervisor, and that no node agent talks to.  (Collectors
    whose zygote was killed live on in the agent's hands: they are no strays.)
    """

    def __init__(self, pid: int, client: Client) -> None:
        self.root, self.client = psutil.Process(pid), client
        self.seen: set[psutil.Process] = set()

    def look(self) -> list[psutil.Process]:
        """Return what lives below the supervisor, and it; remember it."""
        if not survivors([self.root]):
            return []
        found = [self.root, *self.root.children(recursive=True)]
        self.seen.update(found)
        return found

    def find(self, party: str) -> psutil.Process:
        """Return a process of a party, once a collector and an executor are up, too."""
        deadline = time.monotonic() + _GOING_S
        while time.monotonic() < deadline:
            by_party = {title.split()[1]: process for process in self._known() if (title := _title(process))}
            if {party, "collector", "executor", "worker"} <= by_party.keys():
                return by_party[party]
            time.sleep(0.1)
        raise TimeoutError(f"no {party}, collector and executor within {_GOING_S:g} s")

    def _known(self) -> list[psutil.Process]:
        self.look()
        return survivors(sorted(self.seen, key=lambda process: process.pid))

    def after_kill(self, party: str) -> int:
        """Kill a process of a party and count strays a while later."""
        victim = self.find(party)
        # Let a new party take up its work: a kill in the middle of a start is another test.
        time.sleep(1.0)
        self.look()
        victim.send_signal(signal.SIGKILL)
        time.sleep(COUNT_S)
        return len(self.strays())

    def strays(self) -> list[psutil.Process]:
        """Return the strays of this moment."""
        owned = set(self.look())
        alive = [process for process in survivors(list(self.seen)) if process not in owned]
        if not alive or not owned:
            return alive
        held = {pid for pids in self.client.run(children_pids).values() for pid in pids}
        return [process for process in survivors(alive) if process.pid not in held]


def _title(process: psutil.Process) -> str:
    """Return a process's title if it is one of ours: ``drlnb PARTY ...``."""
    try:
        title = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
    return title if title.startswith("drlnb ") else ""


def children_pids(dask_worker: Any) -> list[int]:
    """Return the processes that a node agent talks to; runs in the worker."""
    agent = dask_worker.plugins[AGENT]
    pids = [live.pid for live in agent.processes.live.values()]
    return pids + [pid for executor in agent.slots.executors.values() for pid in executor.pids]
