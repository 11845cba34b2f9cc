"""Map off-policy work to rounds: fragments enter a ring; one block of minibatches goes to the slot.

All fragments of a round enter the ring together, in the order of their environments, and all its minibatches are drawn
at once: that block is the round's one batch.  A round without a gradient step asks for no slot.
"""

from drlnb.planning.leasing.hold import Batch
from drlnb.planning.machine import Out
from drlnb.planning.round.compute import next_round
from drlnb.planning.round.holding import plan_hold
from drlnb.planning.round.moves import drop, end, leave
from drlnb.planning.round.state import RING, RoundState
from drlnb.records import replay


def replay_ready(state: RoundState, event: replay.ReplayReady, out: Out) -> None:
    """Draw from the ring, which is up."""
    if state.ring_up:
        return  # reported twice
    state.ring_up = True
    if event.n_bytes_lost:
        size = f"{event.n_bytes_lost / 2**30:.2f} GiB"
        text = f"resumed without the replay ring ({size}, not saved): learning waits until it has been filled again"
        out.append(replay.RingRefilling(n_bytes=event.n_bytes_lost, text=text))
    draw(state, out)


def draw(state: RoundState, out: Out) -> None:
    """Put the round's fragments into the ring, once all are here and the ring is up."""
    if not state.ring_up or len(state.fragments) < len(state.crew.members):
        return
    out.append(
        replay.DrawMinibatches(
            round=state.round,
            keys=tuple([state.fragments[i].key for i in sorted(state.fragments)]),
            n_timesteps=state.progress.n_timesteps,
        )
    )


def minibatches_drawn(state: RoundState, event: replay.MinibatchesDrawn, out: Out) -> None:
    """Queue the block of minibatches, or keep the parameters if nothing is learnt in this round."""
    if event.round != state.round or state.hold.batches:
        return  # reported twice
    for i in sorted(state.fragments):
        drop(state.fragments[i], event.round, "in the ring", out)
    if event.n_gradient_steps:
        state.hold.add(Batch(collector=RING, key=event.key, n_samples=event.n_samples))
        plan_hold(state, out)
        return
    state.metrics = dict(event.metrics)
    out.append(replay.UpdateSkipped(round=event.round, reason="learning has not started"))
    out.append(replay.CarryParameters(version=event.round + 1, round=event.round))


def parameters_carried(state: RoundState, event: replay.ParametersCarried, out: Out) -> None:
    """Begin the next round with the same parameters."""
    if event.version == state.round + 1 and not state.unfinished:
        next_round(state, event.t, out)


def replay_lost(state: RoundState, event: replay.ReplayLost, out: Out) -> None:
    """Go back to the newest checkpoint: what the ring held cannot be made again."""
    n_losses = state.config["n_replay_losses"] + 1
    if event.detail or n_losses > state.config["max_replay_losses"]:
        end(state, "failed", f"the replay ring was lost: {event.reason}\n{event.detail}".strip(), out)
        return
    leave(state, "replay ring lost", out)
    out.append(replay.RestartTask(reason=f"the replay ring was lost: {event.reason}"))
