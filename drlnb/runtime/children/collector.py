"""Run a collector child: act in environments when it is woken, send what it saw, and rest (`park`).

It imports numpy and gymnasium, never torch, never Dask.  Started by the zygote (fork) or on its own (spawn).
"""

import argparse
import faulthandler
import os
import pickle
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from drlnb.records.errors import EnvError
from drlnb.records.spec import TaskSpec
from drlnb.runtime.ipc.frames import FrameSocket, Reply, plain
from drlnb.runtime.ipc.lifeline import become, watch
from drlnb.runtime.ipc.parameter_store import StoreReader
from drlnb.runtime.protocol import Plain

if TYPE_CHECKING:
    from drlnb.rl.collecting.collector import Collector
    from drlnb.runtime.children.replay import ReplayChild

__all__ = ["CollectorChild", "main", "serve"]

#: Shortest time between two signs of life, in seconds: the agent's deadline counts tens of seconds.
_ALIVE_S = 0.5


class CollectorChild:
    """Answers the agent's frames, one at a time."""

    def __init__(self, channel: FrameSocket) -> None:
        self.channel = channel
        self.store: StoreReader | None = None
        self.collector: Collector | None = None
        self.spec: TaskSpec | None = None
        #: What answers instead, if this process holds a replay ring.
        self.ring: ReplayChild | None = None
        #: Code of an environment runs now, as far as a signal may interrupt it.
        self.in_env = False
        self._alive_t = 0.0
        self._quiet_s: float | None = None

    def answer(self, header: Plain, payload: memoryview) -> Reply:
        """Carry out one frame and return the answer's header and payloads."""
        op = header["op"]
        if header.get("role") == "replay":
            from drlnb.runtime.children.replay import ReplayChild

            self.ring = ReplayChild()
        if self.ring is not None:
            return self.ring.answer(header, payload)
        self.in_env, self._quiet_s = True, header.get("quiet_s")
        try:
            return self._act(op, header, payload)
        finally:
            self.in_env = False

    def alive(self) -> None:
        """Report to the agent now and then that environments answer."""
        now = time.monotonic()
        if now - self._alive_t < _ALIVE_S:
            return
        self._alive_t = now
        self.in_env = False  # half a frame would be the end of the channel
        self.channel.send({"op": "alive"})
        self.in_env = True

    def interrupt(self, number: int, frame: object) -> None:
        """Raise where an environment hangs, so that its error names the place; called by the agent's signal."""
        del number, frame
        if self.in_env:
            raise EnvError(f"it did not come back within env_timeout_s = {self._quiet_s:g} s")

    def _act(self, op: str, header: Plain, payload: memoryview) -> Reply:
        if op == "configure":
            return self._configure(header, payload)
        if op == "wake":
            return self._wake(header)
        if op == "state":
            assert self.collector is not None
            return {"op": "state"}, [pickle.dumps(self.collector.state(), protocol=5)]
        if op == "evaluate":
            return self._evaluate(header)
        if op == "probe":
            from drlnb.rl.envs.make import probe

            return {"op": "probed", "spaces": plain(probe(header["env"]))}, []
        if op == "probe-snapshot":
            from drlnb.rl.envs.snapshots import restorable

            return {"op": "probed", "can_snapshot": restorable(header["env"])}, []
        raise ValueError(f"unknown frame {op!r}")

    def _configure(self, header: Plain, payload: memoryview) -> Reply:
        from drlnb.rl.collecting.collector import Collector

        self.spec = TaskSpec.from_plain(header["spec"])
        become(f"drlnb collector {self.spec.name}#{header['collector']}")
        self.collector = Collector(self.spec, env_indices=tuple(header["env_indices"]))
        n_lost = 0
        if payload.nbytes:
            n_lost = self.collector.restore(pickle.loads(payload))
        return {"op": "ready", "pid": os.getpid(), "episodes_lost": n_lost, "torch": "torch" in sys.modules}, []

    def _parameters(self, header: Plain) -> np.ndarray:
        if self.store is None or self.store.path != header["store"]:
            if self.store is not None:
                self.store.close()
            self.store = StoreReader(header["store"])
        version, parameters = self.store.read()
        if version != header["version"]:
            raise RuntimeError(f"the host store holds version {version}, asked for {header['version']}")
        return parameters

    def _wake(self, header: Plain) -> Reply:
        assert self.collector is not None
        parameters = self._parameters(header)
        fragment = self.collector.collect(
            parameters,
            version=header["version"],
            round=header["round"],
            n_steps=header["n_steps"],
            n_timesteps=header["n_timesteps"],
            on_step=self.alive,
        )
        packed, buffer = fragment.pack()
        answer = {
            "op": "experience",
            "round": header["round"],
            "version": header["version"],
            "n_samples": int(packed["n_samples"]),
            "collect_s": float(packed["collect_s"]),
            "episodes": plain(packed["episodes"]),
            "fragment": plain(packed),
        }
        return answer, [buffer]

    def _evaluate(self, header: Plain) -> Reply:
        from drlnb.rl.collecting.evaluation import evaluate_parameters

        assert self.spec is not None
        parameters = self._parameters(header)
        try:
            result = evaluate_parameters(
                self.spec,
                parameters,
                n_episodes=header["n_episodes"],
                deterministic=header["deterministic"],
                on_step=self.alive,
            )
        except Exception as error:
            message = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
            raise EnvError(f"{self.spec.env}, evaluation: {message}") from error
        episodes = plain(list(zip(result.returns, result.lengths, strict=True)))
        return {"op": "evaluated", "mean": float(result.mean), "std": float(result.std), "episodes": episodes}, []


def serve(sock: socket.socket) -> None:
    """Answer frames until the agent closes the pair."""
    channel = FrameSocket(sock)
    watch(sock)
    child = CollectorChild(channel)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, child.interrupt)
        faulthandler.register(signal.SIGUSR2, all_threads=True)  # what hangs in C shows its place in the log at least
    channel.serve(child.answer)


def main() -> None:
    """Run as a spawned child: ``python -m drlnb.runtime.children.collector --fd N``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    serve(socket.socket(fileno=parser.parse_args().fd))


if __name__ == "__main__":
    main()
