"""End a task that is to be stopped within seconds, whatever its environments do.

Between two rounds that is at once.  A round in hand is finished if nobody of it is lost and it does not take long; else
it is left unfinished: what has been made of it is dropped, and the task ends as of the last commit.
"""

from drlnb.planning.machine import Out
from drlnb.planning.round.boundary import close, write_checkpoint
from drlnb.planning.round.moves import end, release, warm
from drlnb.planning.round.state import RoundState
from drlnb.records import round as words
from drlnb.records.common import DeadlinePassed, SetDeadline

__all__ = ["STOP_S", "finish_round_until", "give_up_with", "stop_asked"]

#: Longest time that a round may take once its task is to be stopped, in seconds; and a commit that is under way then.
STOP_S, _COMMIT_S = 5.0, 1.0
#: Name of the deadline for it.
_STOP = "stop"


def stop_asked(state: RoundState, event: words.StopAsked, out: Out) -> None:
    """Stop now if nothing would be lost, else within seconds; the evaluation at the end is not played any more."""
    if state.closing:
        state.asked.setdefault("stop", event.reason)
        close(state, state.closing, out)
        return
    is_first = "stop" not in state.asked
    # The pause's checkpoint does not know what was changed in it, or there is none.
    if state.phase == "paused" and (state.unsaved or state.unwritten):
        state.asked["stop"] = event.reason
        state.closing = ["checkpoint"]
        write_checkpoint(state, event.t, "stop", out)
    elif state.phase == "paused" or not state.n_bytes:
        end(state, "stopped", event.reason, out)
    elif state.resting:
        state.asked["stop"] = event.reason  # the pause's checkpoint is being written
    elif state.begun != state.version:
        state.asked["stop"] = event.reason
        _end_here(state, event.t, out)
    elif is_first:
        state.asked["stop"] = event.reason
        gone = [i for i in state.crew.gone if i not in state.arrived]
        if gone:
            _give_up(state, event.t, f"collector {gone[0]} was lost", out)
        else:
            out.append(SetDeadline(name=_STOP, after_s=STOP_S))


def finish_round_until(state: RoundState, event: DeadlinePassed, out: Out) -> None:
    """Leave the round unfinished that has taken too long, but for a commit that is under way."""
    if event.name != _STOP or "stop" not in state.asked or state.closing or state.begun != state.version:
        return
    if (state.hold.held and state.hold.committing) or (state.is_drawn and not state.hold.batches):
        out.append(SetDeadline(name=_STOP, after_s=_COMMIT_S))
    else:
        _give_up(state, event.t, f"it takes longer than {STOP_S:g} s", out)


def give_up_with(state: RoundState, collector: int, why: str, out: Out) -> bool:
    """Leave the round unfinished if it would have to wait for a lost collector; return whether that is so."""
    waits = state.begun == state.version and collector not in state.arrived
    if not ("stop" in state.asked and waits) or state.closing or state.resting:
        return False
    _give_up(state, state.t, f"collector {collector} was lost: {why}", out)
    return True


def _give_up(state: RoundState, t: float, why: str, out: Out) -> None:
    """End in the midst of a round, as of the last commit."""
    state.unfinished = True
    task, round_, n_timesteps = state.config["task"], state.version, state.progress.n_timesteps
    # The ring holds this round's experience already, which no older version has seen.
    kept = f"the last commit, after {n_timesteps:,} steps" if not state.is_drawn else "its newest checkpoint"
    text = f"{task}: round {round_} was left unfinished ({why}); the task ends as of {kept}"
    out.append(words.RoundUnfinished(round=round_, reason=why, text=text))
    if state.is_drawn:
        end(state, "stopped", state.asked["stop"], out)
    else:
        _end_here(state, t, out)


def _end_here(state: RoundState, t: float, out: Out) -> None:
    """Drop what has been made since the last commit, and end once that is on disk."""
    release(state, "the task is stopped", out)
    warm(state, words.StopAsked(t=t, reason=state.asked["stop"]), out)
    state.judging = state.gathering = False
    is_saved = state.saved == state.version and not state.unsaved
    if not is_saved and (state.saving != state.version or state.unsaved):
        write_checkpoint(state, t, "stop", out)
    state.evaluator = None
    close(state, [] if is_saved else ["checkpoint"], out)
