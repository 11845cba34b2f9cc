"""Measure how long a collector takes until it can act: forked from a warm zygote, spawned, or spawned with torch.

The collectors are the real ones, started by the node agent's own code and timed by it (``CollectorReady.start_s``).
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

from benchmarks.efforts import Runtime
from benchmarks.frame.rows import Bar, Row, pair_up
from benchmarks.frame.stage import local_spec
from drlnb.fleet.tasks.task import Task
from drlnb.runtime.ipc.start_modes import Zygote, child_environment
from drlnb.runtime.node.collector_host import CollectorHost

__all__ = ["startup"]

ENV = "CartPole-v1"
#: Starts at once, beside one at a time.
_AT_ONCE = 4
#: Longest start of the zygote, in seconds.
_START_S = 120.0

#: The patent's cold start: a new interpreter with torch and gymnasium, an environment, one forward pass.
_COLD = f"""
import gymnasium, torch
env = gymnasium.make({ENV!r})
observation, _ = env.reset(seed=0)
net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                          torch.nn.Linear(64, 2))
with torch.no_grad():
    net(torch.as_tensor(observation))
print("ready", flush=True)
"""


def startup(effort: Runtime) -> tuple[Row, ...]:
    """Measure the three kinds of start, one at a time and four at once, in turn."""
    return asyncio.run(_startup(effort.repeats))


async def _startup(repeats: int) -> tuple[Row, ...]:
    times: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder:
        async with _host(Path(folder)) as host:
            for turn, n in product(range(repeats + 1), (1, _AT_ONCE)):
                seconds = {mode: await _start(host, mode, n, Path(folder)) for mode in ("zygote", "spawn")}
                seconds["torch"] = _start_cold(n)
                if turn:  # the first turn warms the page cache for all three
                    for mode, took_s in seconds.items():
                        times.setdefault((mode, n), []).append(took_s)
    rows = []
    for n, name, started, more in (
        (1, "startup", "one collector", ""),
        (_AT_ONCE, f"startup-{_AT_ONCE}", f"{_AT_ONCE} collectors at once, until all are", f", {_AT_ONCE} at once"),
    ):
        for mode, against, bar in (
            ("torch", "a new process that imports torch and gymnasium, makes the env, one forward pass", 1 / 10),
            ("spawn", "the same collector as a new process", 1 / 3),
        ):
            paired = pair_up(times["zygote", n], times[mode, n])
            words = f"{started} ready, forked from the zygote"
            rows.append(Row(f"{name}-v-{mode}", words, against=against + more, bar=Bar("ratio", bar), **paired))
    return tuple(rows)


@contextlib.asynccontextmanager
async def _host(folder: Path) -> AsyncIterator[CollectorHost]:
    """Start what a node agent starts; yield the collectors' host."""
    zygote = Zygote(folder / "zygote.log")
    await zygote.start()
    host = CollectorHost(zygote)
    try:
        assert zygote.up is not None
        await asyncio.wait_for(asyncio.shield(zygote.up), _START_S)
        yield host
    finally:
        await host.stop_all()
        await zygote.end()


async def _start(host: CollectorHost, mode: str, n: int, folder: Path) -> float:
    """Start `n` collectors at once; return when the last was ready, in seconds."""
    spec = local_spec(Task(ENV, name="bench", total_timesteps=1)).to_plain()
    keys = [("bench", mode, i) for i in range(n)]
    started = []
    for key in keys:
        configuration = {"spec": spec, "collector": key[2], "env_indices": [key[2]]}
        log = folder / f"{mode}-{key[2]}.log"
        started.append(host.start(key, attempt=1, configuration=configuration, log=log, mode=mode))
    try:
        answers = await asyncio.gather(*started)
    finally:
        await asyncio.gather(*(host.stop(key) for key in keys))
    modes = {answer["event"]["start_mode"] for answer in answers}
    if modes != {mode}:
        raise RuntimeError(f"collectors were started by {sorted(modes)}, not by {mode}")
    return max(float(answer["event"]["start_s"]) for answer in answers)


def _start_cold(n: int) -> float:
    """Start `n` processes with torch at once; return when the last was ready, in seconds."""
    environment = child_environment(CUDA_VISIBLE_DEVICES="")
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(n):
            process = subprocess.Popen([sys.executable, "-c", _COLD], stdout=subprocess.PIPE, env=environment)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        lines = [process.stdout.readline() for process in processes if process.stdout]
        seconds = time.perf_counter() - began
    if set(lines) != {b"ready\n"}:
        raise RuntimeError(f"the cold start printed {lines!r}")
    return seconds
