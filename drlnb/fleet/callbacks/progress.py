"""Show how far a training is: a line now and then, or one line that is kept up to date."""

import sys
from typing import TextIO

from drlnb.fleet.callbacks.base import BaseCallback, Metrics
from drlnb.fleet.faces import faces
from drlnb.fleet.faces.say import say
from drlnb.fleet.plain import checked_count

__all__ = ["ProgressLine"]


class ProgressLine(BaseCallback):
    """Show how far training is.

    Parameters
    ----------
    every
        Rounds between two lines.
    in_place
        Write over the line before instead of adding one.
    """

    def __init__(self, every: int = 1, *, in_place: bool = False) -> None:
        super().__init__()
        self._every, self._in_place = checked_count("log_interval", every), in_place
        self._width = 0

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Show the round's counters."""
        if self.n_calls % self._every == 0:
            self._show(words(metrics, self.model.spec.total_timesteps))
        return None

    def on_training_end(self) -> None:
        """Leave the last line standing."""
        if self._width:
            self._stream().write("\n")

    def _show(self, text: str) -> None:
        if not self._in_place:
            say(text)
            return
        stream = self._stream()
        stream.write("\r" + text.ljust(self._width))
        stream.flush()
        self._width = len(text)

    @staticmethod
    def _stream() -> TextIO:
        return sys.stdout if faces.notebook() else sys.stderr


def words(metrics: Metrics, total_timesteps: int) -> str:
    """Return a round's counters in words.

    Examples
    --------
    >>> words({"time/total_timesteps": 2048, "time/fps": 1024.0, "rollout/ep_rew_mean": 21.5}, 4096)
    '2,048 of 4,096 steps, mean return 21.5, 1,024 steps/s, 0:02 left'
    """
    done, fps = int(metrics["time/total_timesteps"]), float(metrics["time/fps"])
    parts = [f"{done:,} of {total_timesteps:,} steps"]
    if "rollout/ep_rew_mean" in metrics:
        parts.append(f"mean return {metrics['rollout/ep_rew_mean']:.1f}")
    parts.append(f"{fps:,.0f} steps/s")
    if fps > 0:
        left_s = round(max(0, total_timesteps - done) / fps)
        parts.append(f"{left_s // 60}:{left_s % 60:02d} left")
    return ", ".join(parts)
