"""Act between two rounds: settings, checkpoints, pauses, stops, evaluations and the end of the task."""

from collections.abc import Sequence
from dataclasses import replace

from drlnb.planning.batching import BATCHING, one_learner
from drlnb.planning.batching.gather import gathering_problem
from drlnb.planning.decisions import KINDS
from drlnb.planning.machine import Out
from drlnb.planning.round.acting import go_on, publish, wake
from drlnb.planning.round.moves import end, enter, swap, warm
from drlnb.planning.round.state import RoundState, Slowdown
from drlnb.planning.settings import SETTINGS
from drlnb.records import round as words
from drlnb.records.base import Row
from drlnb.records.columns import batching
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import DeadlinePassed, SetDeadline, SettingChanged

#: Reason of a pause that ends by itself once a checkpoint is on disk, and the seconds between two trials of that.
_FULL, _AGAIN_S = "no checkpoint can be written", 5.0
#: Name of the deadline for the next one.
_TRIAL = "checkpoint"
#: Setting -> the decision whose planner it names; warm-up keeps its own.
_PLANNERS = {
    key: KINDS[setting.decision]
    for key, setting in SETTINGS.items()
    if setting.decision in {"batching", "collect", "distribution", "hold", "placement", "swapping"}
}


def boundary(state: RoundState, t: float, out: Out) -> None:
    """Do what waits for the end of a round; then the new parameters go out."""
    done = _is_done(state)
    if done:
        close(state, ["checkpoint", "evaluation"], out)
    elif "stop" in state.asked:
        close(state, ["checkpoint"], out)
    if "evaluation" in state.closing:
        warm(state, words.ResumeAsked(t=t), out)  # whoever plays it must be up, pause or not
    elif state.closing:
        warm(state, words.StopAsked(t=t, reason=state.asked.get("stop", "")), out)
    state.resting = "pause" in state.asked and not state.closing
    state.judging = not state.closing and _evaluation_due(state)
    if state.closing or state.resting or "checkpoint" in state.asked or _checkpoint_due(state, t):
        write_checkpoint(state, t, "end" if done else next(iter(state.asked), "periodic"), out)
        state.asked.pop("checkpoint", None)
    if state.closing != ["checkpoint"]:
        publish(state, out)


def _is_done(state: RoundState) -> bool:
    return bool(state.progress.n_timesteps >= state.config["total_timesteps"])


# ---------------------------------------------------------------------- checkpoints
def _checkpoint_due(state: RoundState, t: float) -> bool:
    age_s, config = t - state.checkpoint_t, state.config
    by_round = state.progress.n_rounds % config["checkpoint_every"] == 0
    least_s, most_s = config["checkpoint_min_s"], config["checkpoint_max_s"]
    is_worth_it = not least_s or age_s >= state.checkpoint_s / config["checkpoint_cost_frac"]
    return bool(is_worth_it and ((by_round and age_s >= least_s) or age_s >= most_s))


def write_checkpoint(state: RoundState, t: float, reason: str, out: Out) -> None:
    """Have a checkpoint of the present version written."""
    state.gathering, state.unsaved = True, False
    state.checkpoint_t, state.saving = t, state.version
    progress = state.progress
    out.append(
        words.WriteCheckpoint(
            version=state.version,
            n_rounds=progress.n_rounds,
            n_timesteps=progress.n_timesteps,
            reason=reason,
            elapsed_s=t - progress.origin_t,
            episodes=tuple(progress.episodes),
            eval_best=state.eval_best,
            settings=dict(state.settings),
            collectors=() if state.unfinished else _at_rest(state),
            unfinished=state.unfinished,
            swapping=state.swap.snapshot() if state.swap.state.active else None,
            memories=dict(state.memories),
        )
    )


def _at_rest(state: RoundState) -> tuple[tuple[int, str], ...]:
    """Return who can be asked for its environments, with its node: not who plays an evaluation."""
    return tuple(pair for pair in state.crew.at_rest if pair[0] != state.evaluator)


def checkpoint_gathered(state: RoundState, event: words.CheckpointGathered, out: Out) -> None:
    """Wake the collectors: their states have been copied."""
    if event.version == state.version:
        state.gathering = False
        go_on(state, out)


def checkpoint_written(state: RoundState, event: words.CheckpointWritten, out: Out) -> None:
    """Go on, rest or end, as the checkpoint was written for; rest and try again if the disk refused it."""
    state.checkpoint_s = event.elapsed_s
    if event.failure:
        state.saving = 0
        state.asked.setdefault("pause", _FULL)
    else:
        state.saved = max(state.saved, event.version)
    if event.version != state.version:
        return  # an older one, that a slow disk has finished only now
    state.gathering, state.unwritten = False, event.failure
    if event.failure and (state.closing or state.resting):
        enter(state, "paused", out)
        out.append(SetDeadline(name=_TRIAL, after_s=_AGAIN_S))
    elif "checkpoint" in state.closing:
        state.closing.remove("checkpoint")
        _close_if_ready(state, out)
    elif state.resting and "stop" not in state.asked and state.asked["pause"] == _FULL:
        resume = words.ResumeAsked(t=event.t)
        resume_asked(state, resume, out)
        warm(state, resume, out)
    elif state.resting:
        enter(state, "paused", out)
        if "stop" in state.asked:
            end(state, "stopped", state.asked["stop"], out)
    else:
        go_on(state, out)


def try_again(state: RoundState, event: DeadlinePassed, out: Out) -> None:
    """Write a checkpoint that the disk has refused."""
    if event.name == _TRIAL and state.unwritten and (state.resting or "checkpoint" in state.closing):
        write_checkpoint(state, event.t, next(iter(state.asked)), out)


# ---------------------------------------------------------------------- pause, resume, settings
def asked(state: RoundState, event: words.PauseAsked | words.CheckpointAsked, out: Out) -> None:
    """Remember the wish for the boundary."""
    state.asked["pause" if isinstance(event, words.PauseAsked) else "checkpoint"] = "asked for"


def resume_asked(state: RoundState, event: words.ResumeAsked, out: Out) -> None:
    """Go on after a pause, or forget one that has not begun; a task that was stopped while it rested ends."""
    if state.resting and "stop" in state.asked:
        return
    state.asked.pop("pause", None)
    state.resting = False
    go_on(state, out)


def setting_changed(state: RoundState, event: SettingChanged, out: Out) -> None:
    """Keep a changed setting for the next round, or pass it on to swapping; warm-up gets its own from the machine."""
    if event.key.startswith("rl."):
        state.settings[event.key], state.unsaved = event.value, True
    elif event.key == "leasing.switch_limit_frac":
        state.hold.switch_limit_frac = float(event.value)
    elif event.key in _PLANNERS:
        kind = _PLANNERS[event.key]
        if kind is BATCHING and state.config["n_learners"] == 1:
            out.append(RequestRefused(subject=event.key, reason=one_learner(str(event.value))))
            return
        try:
            state.next_names[kind.decision] = state.planners.make(kind, str(event.value)).name
        except ValueError as error:
            out.append(RequestRefused(subject=event.key, reason=str(error)))
            return
    elif event.key.startswith("batching."):
        gathering = replace(state.splits.gathering, **{event.key.partition(".")[2]: event.value})
        if problem := gathering_problem(gathering, state.config["n_learners"] if state.shares_steps else 1):
            out.append(RequestRefused(subject=event.key, reason=problem))
            return
        state.splits.gathering = gathering
    if event.key.startswith("swapping."):
        state.unsaved = True
        swap(state, event, out)


def member_slowed(state: RoundState, event: batching.MemberSlowed, out: Out) -> None:
    """Have a member take longer in the rounds that have not begun yet, so many of them."""
    first = state.begun + 1
    state.slowed[event.member] = Slowdown(factor=event.factor, first=first, last=state.begun + event.n_rounds)


def emulated_scalars(state: RoundState) -> Row:
    """Return what tells that times of the round are emulated; nothing where they are not."""
    factor = max(map(state.slowness, state.slowed), default=1.0)
    return {"batching/slowed": factor} if factor > 1 else {}


# ---------------------------------------------------------------------- evaluations
def plan_evaluation(state: RoundState) -> None:
    """Set when the next evaluation is due."""
    every = state.config["eval_freq"]
    state.eval_at = (state.progress.n_timesteps // every + 1) * every if every else 0


def _evaluation_due(state: RoundState) -> bool:
    if not state.config["eval_freq"] or state.progress.n_timesteps < state.eval_at:
        return False
    plan_evaluation(state)
    return True


def evaluation_finished(state: RoundState, event: words.EvaluationFinished, out: Out) -> None:
    """Go on with the round, or with the end, after an evaluation."""
    final = "evaluation" in state.closing
    if not (final or state.judging) or state.evaluator is None:
        return  # it is over, or its collector was lost: another one plays it
    if event.failure:
        end(state, "failed", f"{'the final' if final else 'an'} evaluation failed: {event.failure}", out)
    elif final:
        state.closing.remove("evaluation")
        _close_if_ready(state, out)
    else:
        state.judging, state.evaluator = False, None
        if state.eval_best is None or event.mean_reward > state.eval_best:
            state.eval_best = event.mean_reward
            if state.config["eval_keep_best"]:
                write_checkpoint(state, event.t, "best", out)
        wake(state, out)


# ---------------------------------------------------------------------- the end
def close(state: RoundState, waits_for: Sequence[str], out: Out) -> None:
    """End the task once all of this has been done; the evaluation only if it has episodes and nobody asked to stop."""
    evaluates = state.config["n_eval_episodes"] and "stop" not in state.asked
    state.closing = [step for step in waits_for if step != "evaluation" or evaluates]
    _close_if_ready(state, out)


def _close_if_ready(state: RoundState, out: Out) -> None:
    if state.closing:
        return
    if _is_done(state):
        end(state, "done", f"{state.progress.n_timesteps} steps made", out)
    else:
        end(state, "stopped", state.asked.get("stop", "asked for"), out)


def task_failed(state: RoundState, event: words.TaskFailed, out: Out) -> None:
    """End the task: nothing can be mended by trying again."""
    end(state, "failed", f"{event.reason}\n{event.detail}".strip(), out)
