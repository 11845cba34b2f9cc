"""Decide who acts now: publish the version, then wake collectors, or one of them for an evaluation.

A task without collectors publishes nothing: its next round begins with a request for a slot.
"""

from drlnb.planning.batching import COLLECT, BatchView, collect_members, collect_steps
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing.hold import Batch, middle
from drlnb.planning.machine import Out
from drlnb.planning.round.holding import plan_hold
from drlnb.planning.round.moves import enter
from drlnb.planning.round.state import RING, RoundState
from drlnb.records import round as words
from drlnb.records.columns import batching, warmup

__all__ = ["evaluate", "go_on", "publish", "wake"]

#: Seconds that a round of a task without collectors shall take, so that a kill or a stop costs little, and so does what
#: is saved after it; steps of the first one, of which nothing is known; and least seconds that a step counts for.
_ROUND_S, _FIRST_STEPS, _LEAST_S = 2.0, 10, 1e-6


def publish(state: RoundState, out: Out) -> None:
    """Send the present version to the hosts that do not hold it; where nobody acts, the next round begins."""
    if not state.crew.members:
        wake(state, out)
        return
    sent: Out = []
    planner, publication = state.planner(DISTRIBUTION), state.crew.publication
    is_sent = publication.begin(
        state.version, state.n_bytes, planner, state.t, sent, base=state.base, changed=state.changed
    )
    if not is_sent:
        return
    if not state.arrived and state.phase != "paused":
        enter(state, "publishing", out)
    out.extend(sent)


def go_on(state: RoundState, out: Out) -> None:
    """Wake whom nothing keeps any more, or one collector for the evaluation that is due."""
    if "evaluation" in state.closing or state.judging:
        evaluate(state, out)
    else:
        wake(state, out)


def wake(state: RoundState, out: Out) -> None:
    """Wake the collectors whose hosts hold the round's version, unless something keeps all of them."""
    if state.gathering or state.closing or state.resting or state.judging or not state.n_bytes:
        return
    if not state.crew.members:
        if state.begun != state.version:
            _begin_steps(state, out)
        return
    woken = state.crew.wake(state.version, state.arrived)
    if not woken:
        return
    if state.begun != state.version:
        _begin_round(state, out)
    out.extend(
        warmup.WakeCollector(
            collector=i,
            node=state.crew.members[i].node or "",
            round=state.version,
            version=state.version,
            n_steps=state.n_steps[i],
            n_timesteps=state.progress.n_timesteps,
            slowed=state.slowness(i),
        )
        for i in woken
    )
    if not state.arrived:
        enter(state, "collecting", out)


def _begin_steps(state: RoundState, out: Out) -> None:
    """Begin a round of a task without collectors: its one batch is so many steps on data that the slot has itself."""
    _begin(state)
    config, made = state.config, state.progress.n_timesteps
    # The lower median of the latest rounds: the first has the start of libraries in it, some have an evaluation.
    paces = sorted(state.paces.get(RING, ())) or [_ROUND_S / _FIRST_STEPS]
    pace_s = paces[(len(paces) - 1) // 2]
    n_steps = min(config["n_steps"], config["total_timesteps"] - made, max(1, int(_ROUND_S / max(pace_s, _LEAST_S))))
    if config["epoch_steps"]:
        n_steps = min(n_steps, config["epoch_steps"] - made % config["epoch_steps"])
    state.n_steps = {RING: n_steps}
    state.hold.add(Batch(collector=RING, key="", n_samples=n_steps))
    plan_hold(state, out)


def _begin(state: RoundState) -> None:
    """Put in force what the user changed."""
    state.begun = state.version
    state.in_force = dict(sorted(state.settings.items()))
    state.names = {**state.names, **state.next_names}  # the configuration keeps those of the start
    state.next_names = {}


def _begin_round(state: RoundState, out: Out) -> None:
    """Size every collector's share: the round's first ones are woken now."""
    _begin(state)
    members, n_steps = state.crew.members, state.config["n_steps"]
    n_envs = tuple([len(member.env_indices) for member in members.values()])
    sample_s = [middle(state.paces.get(i, [])) for i in members]
    view = BatchView(
        round=state.version,
        role="collect",
        n_units=n_steps * len(members),
        members=collect_members(tuple(members), n_envs, sample_s, n_steps=n_steps),
        memory=state.memories.get(state.memory_of(COLLECT)),
        n_steps=n_steps,
        collectors=tuple(members),
        n_envs=n_envs,
        nodes=tuple([member.node or "" for member in members.values()]),
        divisible=state.config["streams"],
        n_learners=state.config["n_learners"],
    )
    plan = COLLECT.ask(state.planner(COLLECT), view)
    steps = collect_steps(view, plan)
    state.n_steps = dict(zip(members, steps, strict=True))
    state.learners = dict(zip(members, plan.learners, strict=False))
    planner = state.planner(COLLECT).name
    out.append(
        batching.BatchPlanned(
            round=state.version,
            planner=planner,
            collectors=view.collectors,
            n_steps=steps,
            learners=tuple(plan.learners),
        )
    )


def evaluate(state: RoundState, out: Out) -> None:
    """Have one collector play the evaluation that is due, once its host holds the version."""
    if state.evaluator is not None or (state.judging and (state.resting or state.gathering)):
        return
    final = "evaluation" in state.closing
    for i, member in state.crew.members.items():
        if member.status in {"ready", "sent"} and state.crew.hosts.get(member.node or "") == state.version:
            state.evaluator = i
            enter(state, "evaluating", out)
            out.append(
                words.Evaluate(
                    collector=i,
                    node=member.node or "",
                    version=state.version,
                    n_episodes=state.config["n_eval_episodes" if final else "eval_episodes"],
                    deterministic=final or state.config["eval_deterministic"],
                    last=final,
                )
            )
            return
