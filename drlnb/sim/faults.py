"""Which deaths a simulated run suffers, and when."""

from dataclasses import dataclass

import numpy as np

__all__ = ["FAULT_KINDS", "Fault", "seeded_faults"]

#: What can die: a collector of a task, the executor of a slot, a node (which comes back).
FAULT_KINDS = ("collector", "executor", "node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One death."""

    #: Seconds since the start of the run.
    t: float
    #: One of :data:`FAULT_KINDS`.
    kind: str
    #: Chooses who dies: an index, taken modulo the number of candidates.
    index: int
    #: Seconds until a node is back.
    down_s: float = 5.0


def seeded_faults(n: int, *, until_s: float, seed: int) -> tuple[Fault, ...]:
    """Return `n` deaths at uniform times in ``[0, until_s)``, in the order of time."""
    rng = np.random.default_rng([seed, 2])
    times = sorted(rng.uniform(0.0, until_s, n).round(6).tolist())
    kinds = rng.integers(len(FAULT_KINDS), size=n).tolist()
    indices = rng.integers(1 << 16, size=n).tolist()
    return tuple(
        Fault(t=t, kind=FAULT_KINDS[kind], index=index) for t, kind, index in zip(times, kinds, indices, strict=True)
    )
