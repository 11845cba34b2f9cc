"""Kill workers that are slots of a placement, and none else, at times that were drawn before."""

import asyncio
import math
from collections.abc import Sequence

from drlnb.records.errors import ConfigError
from drlnb.runtime.placement.agent import end_worker
from drlnb.runtime.placement.placer import DaskPlacer

__all__ = ["Fault", "check_faults", "inject"]

#: Seconds from now, slot, and seconds that it stays away.
Fault = tuple[float, str, float]


def check_faults(faults: Sequence[Fault], placer: DaskPlacer) -> None:
    """Raise ConfigError of all faults that could not be injected."""
    problems = []
    for t_s, slot, down_s in faults:
        worker = placer.workers.get(slot)
        if worker is None or not worker.nanny:
            problems.append(
                f"slot {slot!r} is not up" if worker is None else f"slot {slot} has no nanny to start it again"
            )
        if not (0.0 <= t_s < math.inf and 0.0 <= down_s < math.inf):
            problems.append(f"slot {slot}: seconds must be at least 0, got {t_s!r} and {down_s!r}")
    if problems:
        raise ConfigError(problems)


async def inject(faults: Sequence[Fault], placer: DaskPlacer) -> None:
    """Kill the workers of slots, in the order of time; one that is away stays so for longer.

    Parameters
    ----------
    faults
        In their order.
    placer
        What runs on the slots.
    """
    loop = asyncio.get_running_loop()
    began_t = loop.time()
    for t_s, slot, down_s in faults:
        await asyncio.sleep(began_t + t_s - loop.time())
        placer.away[slot] = loop.time() + down_s
        if worker := placer.workers.get(slot):
            # The process ends itself, once it has seen that it is the one that is meant.
            await placer.client.run(end_worker, placer.name, worker.life, workers=[worker.address], on_error="ignore")
