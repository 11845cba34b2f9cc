"""Read the traces of known networks that travel with the package, and find how large a batch a device holds."""

from functools import cache
from importlib import resources

from drlnb.planning.swapping.capacity import largest
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import SwapPlan
from drlnb.planning.swapping.trace import SwapTrace, analytic, unpacked

__all__ = ["net_names", "net_trace", "plain_batch"]

_FOLDER = resources.files("drlnb.sim.swapping") / "nets"


def net_names() -> tuple[str, ...]:
    """Return the names of the networks, in order."""
    return tuple(sorted(each.name.removesuffix(".json") for each in _FOLDER.iterdir()))


@cache
def net_trace(name: str) -> SwapTrace:
    """Return the trace of a network."""
    return unpacked((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def plain_batch(trace: SwapTrace, device: str, memory_budget_bytes: float) -> int:
    """Return the largest batch of a network that fits without any plan."""

    def fits(n_samples: int) -> bool:
        profile = analytic(trace, device, n_samples)
        return predict(profile, SwapPlan.keeping(profile), n_samples, memory_budget_bytes).fits

    return largest(fits)
