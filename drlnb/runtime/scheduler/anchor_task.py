"""Keep a master alive: one tiny Dask task per training task, which blocks on the master's coroutine.

Dask runs it again elsewhere when its worker dies; it also protects the worker from idle time-outs and down-scaling, and
it is what a user sees in Dask's dashboard.  It secedes, so it occupies no thread of the worker.
"""

import asyncio
import time

from distributed import Reschedule, get_worker, secede

from drlnb.runtime.protocol import AGENT

__all__ = ["anchor"]

#: Pause before the anchor is moved when its worker has no agent (yet), in seconds.
_NO_AGENT_S = 1.0


def anchor(run: str, task: str) -> str:
    """Block until the master of a task has ended; return how.

    Raises
    ------
    Reschedule
        If this worker has no agent: Dask tries another one.
    """
    worker = get_worker()
    agent = worker.plugins.get(AGENT)
    if agent is None or not hasattr(agent, "masters"):
        time.sleep(_NO_AGENT_S)
        raise Reschedule
    secede()
    future = asyncio.run_coroutine_threadsafe(agent.masters.run(run, task), worker.loop.asyncio_loop)
    return str(future.result())
