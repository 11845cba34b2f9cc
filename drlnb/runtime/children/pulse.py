"""Send the agent signs of life of a child that computes or acts."""

import time
from collections.abc import Callable

from drlnb.runtime.protocol import Plain

__all__ = ["Pulse"]

#: Shortest time between two signs of life, in seconds: the agent's deadlines count tens of seconds.
_PULSE_S = 0.5


class Pulse:
    """Sends a frame now and then that says that the child is at work.

    Parameters
    ----------
    send
        Sends a frame.
    """

    def __init__(self, send: Callable[[Plain], None]) -> None:
        self._send = send
        self._sent_t = time.perf_counter()

    @property
    def due(self) -> bool:
        """Whether the latest sign of life was a while ago."""
        return time.perf_counter() - self._sent_t >= _PULSE_S

    def beat(self, *_progress: int) -> None:
        """Send a sign of life if it is due; a learner calls it with its minibatches done, and in all."""
        if self.due:
            self._sent_t = time.perf_counter()
            self._send({"op": "progress"})
