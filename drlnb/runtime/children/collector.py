"""Run a collector child: act in environments when it is woken, send what it saw, and rest (`park`).

It imports numpy and gymnasium, never torch, never Dask.  Started by the zygote (fork) or on its own (spawn).
"""

import contextlib
import faulthandler
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from drlnb.records.errors import EnvError
from drlnb.records.spec import RlWork
from drlnb.runtime.children.padding import Padding
from drlnb.runtime.children.pulse import Pulse
from drlnb.runtime.ipc.frames import FrameSocket, Reply, plain
from drlnb.runtime.ipc.host_store import StoreView
from drlnb.runtime.ipc.lifeline import CLOSE_S, become, end_own_group, watch
from drlnb.runtime.ipc.step_count import StepCount
from drlnb.runtime.protocol import Plain

if TYPE_CHECKING:
    from drlnb.rl.collecting.collector import Collector

__all__ = ["CollectorChild", "main", "serve"]

#: Share of the time of acting that it may take to send the environments' state along: after short rounds not each time.
_STATE_FRAC = 0.02


class CollectorChild:
    """Answers the agent's frames, one at a time."""

    def __init__(self, channel: FrameSocket) -> None:
        self.store: StoreView | None = None
        self.collector: Collector | None = None
        #: Code of an environment runs now, as far as a signal may interrupt it.
        self.in_env = False
        self._pulse = Pulse(channel.send)
        #: Steps since it was woken; once it is configured its agent can read them, too.
        self._steps = StepCount()
        self._quiet_s: float | None = None
        self._gone = False
        #: Seconds of acting since the state of the environments was sent, and what sending it takes.
        self._acted_s = self._state_s = 0.0
        self._frames = {
            "configure": self._configure,
            "wake": self._wake,
            "state": self._state,
            "evaluate": self._evaluate,
            "probe": self._probe,
            "probe-snapshot": self._probe_snapshot,
        }

    def answer(self, header: Plain, payload: memoryview) -> Reply:
        """Carry out one frame and return the answer's header and payloads."""
        if self._gone:
            raise ConnectionError("nobody waits for the answer")
        if header.get("role") == "replay":  # this process holds a replay ring instead
            from drlnb.runtime.children.replay import ReplayChild

            self._frames = ReplayChild().frames
        self.in_env, self._quiet_s = True, header.get("quiet_s")
        try:
            return self._frames[header["op"]](header, payload)
        finally:
            self.in_env = False

    def alive(self) -> None:
        """Count a step, and report to the agent now and then that environments answer."""
        self._steps.step()
        self._beat()

    def _beat(self) -> None:
        if self._pulse.due:
            self.in_env = False  # half a frame would be the end of the channel
            self._pulse.beat()
            self.in_env = True

    def interrupt(self, _number: int, _frame: object) -> None:
        """Raise where an environment hangs, so that its error names the place; called by the agent's signal."""
        if self.in_env:
            timed_out = f"it did not come back within env_timeout_s = {self._quiet_s or 0.0:g} s"
            raise EnvError("its agent is gone" if self._gone else timed_out)

    def leave(self) -> None:
        """Interrupt an environment whose agent is gone, so that it can be closed; called by another thread."""
        self._gone = True
        if hasattr(signal, "SIGUSR1"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def close(self) -> None:
        """Close the environments."""
        if self.collector is not None:
            self.collector.close()

    def _probe(self, header: Plain, _payload: memoryview) -> Reply:
        from drlnb.rl.envs.make import probe

        return {"op": "probed", "spaces": plain(probe(header["env"]))}, []

    def _probe_snapshot(self, header: Plain, _payload: memoryview) -> Reply:
        from drlnb.rl.envs.snapshots import restorable

        return {"op": "probed", "can_snapshot": restorable(header["env"])}, []

    def _state(self, _header: Plain, _payload: memoryview) -> Reply:
        assert self.collector is not None
        return {"op": "state"}, [pickle.dumps(self.collector.state(), protocol=5)]

    def _configure(self, header: Plain, payload: memoryview) -> Reply:
        from drlnb.rl.collecting.collector import Collector
        from drlnb.rl.seeding import seed_globals

        spec = RlWork.from_plain(header["spec"])
        self._steps = StepCount.at(header["steps"])
        seed_globals(spec.seed, header["env_indices"][0], header["attempt"], header["number"])
        become(f"drlnb collector {spec.name}#{header['collector']}")
        self.collector = Collector(spec, env_indices=tuple(header["env_indices"]))
        n_lost = self.collector.restore(pickle.loads(payload)) if payload.nbytes else 0
        self._steps.rest()
        return {"op": "ready", "event": {"episodes_lost": n_lost}}, []

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the steps that are made in a block."""
        self._steps.begin()
        yield
        self._steps.rest()

    @contextlib.contextmanager
    def _parameters(self, header: Plain) -> Iterator[np.ndarray]:
        """Show the parameters where they are in the host store, and hold them there for the length of a block."""
        if self.store is None or self.store.path != header["store"] or self.store.closed:
            if self.store is not None:
                self.store.close()
            self.store = StoreView(header["store"])
        with self.store.pinned() as version:
            if version != header["version"]:
                raise RuntimeError(f"the host store holds version {version}, asked for {header['version']}")
            yield self.store.bytes

    def _wake(self, header: Plain, _payload: memoryview) -> Reply:
        assert self.collector is not None
        how = {name: header[name] for name in ("version", "round", "n_steps", "n_timesteps")}
        with self._parameters(header) as parameters, self._counted():
            padding = Padding.of(header, self._beat)
            fragment = self.collector.collect(parameters, **how, on_step=self.alive)
            collect_s = padding.rest()
        packed, buffer = fragment.pack()
        answer = {"op": "experience", "fragment": plain({**packed, "collect_s": collect_s})}
        self._acted_s += collect_s
        if self.collector.restorable and self._acted_s >= self._state_s / _STATE_FRAC:
            started, self._acted_s = time.perf_counter(), 0.0
            answer["state"] = pickle.dumps(self.collector.state(), protocol=5)
            self._state_s = time.perf_counter() - started
        return answer, [buffer]

    def _evaluate(self, header: Plain, _payload: memoryview) -> Reply:
        from drlnb.rl.collecting.evaluation import evaluate_parameters

        assert self.collector is not None
        spec = self.collector.spec
        spec = replace(spec, **(spec.eval_source or {}))
        how = {name: header[name] for name in ("n_episodes", "deterministic")}
        envs = self.collector.envs if header["last"] and not spec.eval_source else ()
        try:
            with self._parameters(header) as parameters, self._counted():
                result = evaluate_parameters(spec, parameters, **how, on_step=self.alive, envs=envs)
        except Exception as error:
            message = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
            raise EnvError(f"{spec.env}, evaluation: {message}") from error
        event = {"mean_reward": float(result.mean), "std_reward": float(result.std)}
        event["episodes"] = plain(list(result.episodes))
        return {"op": "evaluated", "event": event}, []


def serve(sock: socket.socket) -> None:
    """Answer frames until the agent closes the pair; then close the environments, and end what they have started."""
    channel = FrameSocket(sock)
    child = CollectorChild(channel)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, child.interrupt)
        faulthandler.register(signal.SIGUSR2, all_threads=True)  # what hangs in C shows its place in the log at least
    watch(sock.fileno(), child.leave, CLOSE_S)
    try:
        with contextlib.suppress(OSError):  # the agent was gone before it had its answer
            channel.serve(child.answer)
    finally:
        child.close()
    end_own_group()


def main() -> None:
    """Run as a spawned child: ``python -m drlnb.runtime.children.collector --fd N``."""
    serve(socket.socket(fileno=int(sys.argv[2])))


if __name__ == "__main__":
    main()
