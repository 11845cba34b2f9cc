"""How long until a collector can act: forked from a warm zygote, spawned, or spawned with torch as the seed's is?

The collectors are the real ones, started by the node agent's own code and timed by it (``CollectorReady.start_s``).
"""

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from drlnb.bench.report import Bar, Row, pair_up
from drlnb.bench.runtime import Effort
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.envs.make import probe
from drlnb.runtime.ipc.start_modes import Zygote, child_environment
from drlnb.runtime.node.collector_host import CollectorHost

__all__ = ["startup"]

ENV = "CartPole-v1"
#: Starts at once, beside one at a time.
_AT_ONCE = 4
#: Longest start, in seconds.
_START_S = 120.0

#: The seed's cold start: a new interpreter with torch and gymnasium, an environment, one forward pass.
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


def startup(effort: Effort) -> tuple[Row, ...]:
    """Measure the three kinds of start, one at a time and four at once, in turn."""
    return asyncio.run(_startup(effort))


async def _startup(effort: Effort) -> tuple[Row, ...]:
    found: dict[tuple[str, int], list[list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder:
        async with _host(Path(folder)) as (host, zygote_s):
            for turn in range(effort.repeats + 1):
                for n in (1, _AT_ONCE):
                    figures = {mode: await _start(host, mode, n, Path(folder)) for mode in ("zygote", "spawn")}
                    figures["torch"] = await _start_cold(n)
                    if turn:  # the first turn warms the page cache for all three
                        for mode, seconds in figures.items():
                            found.setdefault((mode, n), []).append([seconds])
    rows = [row for n in (1, _AT_ONCE) for row in _rows(found, n)]
    return (*rows, Row(id="startup-zygote", what="start of the zygote itself, once per node", samples=(zygote_s,)))


def _rows(found: dict[tuple[str, int], list[list[float]]], n: int) -> list[Row]:
    name, what = ("startup", "one collector") if n == 1 else (f"startup-{n}", f"{n} collectors at once, until all are")
    baselines = {
        "torch": ("a new process that imports torch and gymnasium, makes the env, one forward pass", 1 / 10),
        "spawn": ("the same collector as a new process", 1 / 3),
    }
    return [
        Row(
            id=f"{name}-v-{mode}",
            what=f"{what} ready, forked from the zygote",
            against=against + (f", {n} at once" if n > 1 else ""),
            bar=Bar("ratio", bar),
            **pair_up(found["zygote", n], found[mode, n]),
        )
        for mode, (against, bar) in baselines.items()
    ]


@contextlib.asynccontextmanager
async def _host(folder: Path) -> AsyncIterator[tuple[CollectorHost, float]]:
    """Start what a node agent starts; yield the collectors' host and how long the zygote took."""
    began = time.perf_counter()
    zygote = Zygote(folder / "zygote.log")
    await zygote.start()
    host = CollectorHost(zygote, lambda *_: None)
    try:
        assert zygote.up is not None
        await asyncio.wait_for(asyncio.shield(zygote.up), _START_S)
        yield host, time.perf_counter() - began
    finally:
        await host.stop_all()
        await zygote.end()


async def _start(host: CollectorHost, mode: str, n: int, folder: Path) -> float:
    """Start `n` collectors at once; return when the last was ready, in seconds."""
    spec = _spec()
    keys = [("bench", mode, i) for i in range(n)]
    started = [
        host.start(
            key,
            attempt=1,
            configuration={"spec": spec, "collector": key[2], "env_indices": [key[2]]},
            state=b"",
            log=folder / f"{mode}-{key[2]}.log",
            mode=mode,
        )
        for key in keys
    ]
    try:
        answers: list[dict[str, Any]] = await asyncio.gather(*started)
    finally:
        await asyncio.gather(*(host.stop(key) for key in keys))
    modes = {answer["mode"] for answer in answers}
    if modes != {mode}:
        raise RuntimeError(f"collectors were started by {sorted(modes)}, not by {mode}")
    return max(float(answer["start_s"]) for answer in answers)


def _spec() -> dict[str, Any]:
    found = resolve(ENV)
    return TaskSpec(
        name="bench",
        env=ENV,
        total_timesteps=1,
        n_envs=_AT_ONCE,
        hyperparameters=found.hyperparameters,
        **probe(ENV),
    ).to_plain()


async def _start_cold(n: int) -> float:
    """Start `n` processes with torch at once; return when the last was ready, in seconds."""
    return max(await asyncio.gather(*(_cold() for _ in range(n))))


async def _cold() -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _COLD,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(CUDA_VISIBLE_DEVICES=""),
        start_new_session=True,  # Ctrl-C is ours to hear
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_S)
        seconds = time.perf_counter() - began
        if line.strip() != b"ready":
            raise RuntimeError(f"the cold start said {line!r}")
        return seconds
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
