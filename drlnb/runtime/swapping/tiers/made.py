"""Make the tier of a device."""

from collections.abc import Callable
from pathlib import Path

import torch

from drlnb.runtime.swapping.tiers.base import Meter, Tier
from drlnb.runtime.swapping.tiers.file import FileTier
from drlnb.runtime.swapping.tiers.slab import SlabTier
from drlnb.runtime.swapping.tiers.streams import CudaStreams

__all__ = ["TIERS", "made_tier"]

#: Sources that wait for their copies on CUDA.
_STASH_BYTES = 256 << 20


def _file(device: torch.device, meter: Meter, folder: Path | None) -> Tier:
    return FileTier(meter, folder)


def _slab(device: torch.device, meter: Meter, folder: Path | None) -> Tier:
    return SlabTier(meter, CudaStreams(device), _STASH_BYTES)


#: Kind of device -> what makes its tier.  To try out another one, a slower disk say, put it here in the process that
#: makes the steps.
TIERS: dict[str, Callable[[torch.device, Meter, Path | None], Tier]] = {"cpu": _file, "cuda": _slab}


def made_tier(tier: str | Callable[[Meter], Tier], device: torch.device, meter: Meter, folder: Path | None) -> Tier:
    """Return a tier.

    Parameters
    ----------
    tier
        ``auto``, ``file``, ``cuda``, or what makes one.
    device
        Of the saved tensors.
    meter
        Counts them.
    folder
        Of the file.

    Raises
    ------
    ValueError
        If the device has no such tier.
    """
    if callable(tier):
        return tier(meter)
    kind = {"auto": device.type, "file": "cpu"}.get(tier, tier)
    if kind == device.type and kind in TIERS:
        return TIERS[kind](device, meter, folder)
    raise ValueError(f"tier must be auto, file (on the CPU) or cuda (on CUDA), got {tier!r} on {device}")
