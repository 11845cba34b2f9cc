"""Emulate members of different speed: a module that takes, in training, the time that a trace says of its slot."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from setproctitle import getproctitle
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["OVERHEAD_S", "Emulated"]

#: Seconds of a share beside its samples, as the simulator has them.
OVERHEAD_S = 0.010
#: Name of a work -> its shares that this process has computed.
_n_shares: Counter[str] = Counter()


class Emulated(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Computes what its body computes, then sleeps until its samples' time is over.

    Parameters
    ----------
    body
        What computes.
    speeds_hz
        Samples per second of each slot in each split, shape ``(n_splits, n_slots)``; the last split's go on.
    work
        Name of the training: a process counts the shares of each one.
    """

    def __init__(self, body: nn.Module, speeds_hz: Sequence[Sequence[float]], work: str) -> None:
        super().__init__()
        self.body, self.speeds_hz, self.work = body, speeds_hz, work

    def forward(self, inputs: "Tensor") -> "Tensor":
        """Compute; in an executor and in training mode, take the time of its slot."""
        began = time.perf_counter()
        output: Tensor = self.body(inputs)
        words = getproctitle().split()
        if self.training and words[:2] == ["drlnb", "executor"]:
            slot = int(words[2].rpartition("cpu")[2])
            hz = self.speeds_hz[min(_n_shares[self.work], len(self.speeds_hz) - 1)][slot]
            _n_shares[self.work] += 1
            time.sleep(max(0.0, OVERHEAD_S + len(inputs) / hz - (time.perf_counter() - began)))
        return output
