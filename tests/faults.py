"""Faults at times drawn from a seed."""

import numpy as np

from drlnb.sim.faults import FAULT_KINDS, Fault, _down_s

__all__ = ["seeded_faults"]


def seeded_faults(n: int, *, until_s: float, seed: int, kinds: tuple[str, ...] = FAULT_KINDS) -> tuple[Fault, ...]:
    """Return `n` faults of some kinds at uniform times in ``[0, until_s)``, in the order of time."""
    rng = np.random.default_rng([seed, 2])
    times = sorted(rng.uniform(0.0, until_s, n).round(6).tolist())
    drawn = rng.integers(len(kinds), size=n).tolist()
    indices = rng.integers(1 << 16, size=n).tolist()
    return tuple(
        Fault(t=t, kind=kinds[kind], index=index, down_s=_down_s(rng, kinds[kind]))
        for t, kind, index in zip(times, drawn, indices, strict=True)
    )
