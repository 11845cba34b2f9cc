"""Keep an executor's device usable: know when a kernel has broken it, and how much of its memory models may take."""

from math import inf

import torch

__all__ = ["MEMORY_FRAC", "Device", "short"]

#: Share of a device's memory that models may take between leases (leasing, 4.2); the rest is for what is computed.
MEMORY_FRAC = 0.6


class Device:
    """The device of one executor, which others may share.

    Parameters
    ----------
    name
        ``cpu`` or ``cuda``: the one that this process sees.
    total_bytes
        Its memory.
    n_sharing
        Executors of the node that share it, this one included; at least 1.
    """

    def __init__(self, name: str, total_bytes: float = inf, n_sharing: int = 1) -> None:
        self.name, self.total_bytes, self.n_sharing = name, total_bytes, n_sharing
        #: Most bytes that computing took beside the models so far: activations, experience, gradients.
        self._beside_bytes = 0

    @property
    def on_cuda(self) -> bool:
        """Whether it is a CUDA device."""
        return self.name.startswith("cuda")

    @property
    def broken(self) -> str:
        """Why this process cannot use its device any more, empty if it can.

        What a kernel did wrong (an index out of bounds, say) stays: each later call of the process fails with it.
        """
        try:
            self.synchronise()
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        return ""

    def synchronise(self) -> None:
        """Wait until the device has done what it was asked.

        Raises
        ------
        RuntimeError
            If one of its kernels failed.
        """
        if self.on_cuda and torch.cuda.is_initialized():
            torch.cuda.synchronize()

    @property
    def models_bytes(self) -> float:
        """Bytes that models may take between leases: what computing needs beside them stays free."""
        share = self.total_bytes / self.n_sharing
        return min(MEMORY_FRAC * share, share - self._beside_bytes)

    def computed(self) -> None:
        """Measure what the latest work took at most, and give back what the allocator keeps beyond our share."""
        if self.on_cuda:
            beside = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
            self._beside_bytes = max(self._beside_bytes, beside)
            torch.cuda.reset_peak_memory_stats()
            if torch.cuda.memory_reserved() > self.total_bytes / self.n_sharing:
                self.free()

    def memory(self) -> dict[str, int]:
        """Return the bytes of its memory that anybody uses, and all of them; zeros on a CPU."""
        free, total = torch.cuda.mem_get_info() if self.on_cuda else (0, 0)
        return {"used_bytes": total - free, "total_bytes": total}

    def free(self) -> None:
        """Give back what the allocator keeps: the device's other executors may need it."""
        if self.on_cuda and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def short(error: torch.OutOfMemoryError) -> torch.OutOfMemoryError:
    """Return a device's lack of memory in one line: bytes wanted and free, and what needs less."""
    wanted, free, _ = str(error).partition(" is free")
    return torch.OutOfMemoryError(
        f"{wanted}{free}, with no other task's model on this slot; a smaller batch_size needs less, with "
        "environments also n_steps or n_envs, and so do fewer seats on the device"
    )
