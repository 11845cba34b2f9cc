"""How does off-policy work map to rounds?  Fragments enter a ring; one block of minibatches goes to the slot.

All fragments of a round enter the ring together, in the order of their environments, and all its minibatches are drawn
at once: that block is the round's one batch.  A round without a gradient step asks for no slot.
"""

from drlnb.planning.leasing.hold import Batch
from drlnb.planning.round.state import RING, RoundState
from drlnb.records import replay

__all__ = ["Replaying"]


class Replaying(RoundState):
    """The part of the round machine that speaks to the replay ring."""

    def _replay_ready(self, event: replay.ReplayReady) -> None:
        if self.ring_up:
            return  # told twice
        self.ring_up = True
        if event.n_bytes_lost:
            size = f"{event.n_bytes_lost / 2**30:.2f} GiB"
            text = f"resumed without the replay ring ({size}, not saved): learning waits until it has been filled again"
            self._out.append(replay.RingRefilling(n_bytes=event.n_bytes_lost, text=text))
        self._draw()

    def _draw(self) -> None:
        """Put the round's fragments into the ring, once all are here and the ring is up."""
        if not self.ring_up or len(self.fragments) < len(self.crew.members):
            return
        self._out.append(
            replay.DrawMinibatches(
                round=self.round,
                keys=tuple([self.fragments[i].key for i in sorted(self.fragments)]),
                n_timesteps=self.progress.n_timesteps,
            )
        )

    def _minibatches_drawn(self, event: replay.MinibatchesDrawn) -> None:
        if event.round != self.round or self.hold.batches:
            return  # told twice
        for i in sorted(self.fragments):
            self._drop(self.fragments[i].key, i, event.round, "in the ring")
        if event.n_gradient_steps:
            self.hold.add(Batch(collector=RING, key=event.key, n_samples=event.n_samples))
            self._plan_hold()
            return
        self.metrics = dict(event.metrics)
        self._out.append(replay.UpdateSkipped(round=event.round, reason="learning has not started"))
        self._out.append(replay.CarryParameters(version=event.round + 1, round=event.round))

    def _parameters_carried(self, event: replay.ParametersCarried) -> None:
        if event.version == self.round + 1:
            self._next_round(event.t, 0.0)

    def _replay_lost(self, event: replay.ReplayLost) -> None:
        """Go back to the newest checkpoint: what the ring held cannot be made again."""
        n_losses = self.config["n_replay_losses"] + 1
        if event.detail or n_losses > self.config["max_replay_losses"]:
            self._end("failed", f"the replay ring was lost: {event.reason}\n{event.detail}".strip())
            return
        self._leave("replay ring lost")
        self._out.append(replay.RestartTask(reason=f"the replay ring was lost: {event.reason}"))
