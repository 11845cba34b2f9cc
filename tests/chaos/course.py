"""Strike a real cluster with faults of every kind, and collect what broke a law.

Faults strike in acts of :data:`ACT` each.  An act is a run of three tasks on two slots; after its last fault every task
must go on (or have ended well) within a time, is then stopped, and its journal must obey every law of
:mod:`tests.chaos.laws`; every slot must be free again, and no process without an owner.  What happens is drawn from the
seed; when exactly it strikes is the machine's.
"""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.errors import JournalError, PeerError
from drlnb.records.journal import Journal
from drlnb.runtime.client.link import Link
from tests.chaos.arena import KINDS, N_SLOTS, Arena, TooQuiet, left_over, open_arena, pool_state
from tests.chaos.laws import LAWS, broken_laws

#: Faults per act.
ACT = 20
#: Pause after a fault, in seconds: drawn between these, so that faults overlap and yet rounds end between them.
_PAUSE_S = (0.1, 1.5)
#: Share of faults after which a round ends before the next one, if it does so within seconds.
_RESTS, _REST_S = 0.5, 8.0
#: How long a task may take after the last fault until two rounds have ended, an end until it is there, and everything
#: else until it is in order again; in seconds.
_GO_ON_S, _END_S, _ORDER_S = 90.0, 60.0, 30.0
#: Laws that a journal alone does not show.
_BESIDE = {
    "stuck": "every task goes on or ends well, and so does its anchor",
    "slots": "every slot is in the pool and free once nobody asks",
    "orphans": "no process lives without an owner",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault to come."""

    kind: str
    #: Which of its possible victims, in [0, 1).
    pick: float
    #: Pause afterwards, in seconds.
    pause_s: float
    #: Whether the next one waits, for a while, until a round has ended; else it comes on top.
    rests: bool


def plan(n_faults: int, seed: int) -> tuple[Strike, ...]:
    """Draw faults: every kind by its share, in random order.

    Raises
    ------
    ValueError
        If `n_faults` is below 1.

    Examples
    --------
    >>> len(plan(200, 0)), plan(40, 1) == plan(40, 1), plan(40, 1) == plan(40, 2)
    (200, True, False)
    """
    if n_faults < 1:
        raise ValueError(f"n_faults must be >= 1, got {n_faults}")
    draw = random.Random(seed)
    total = sum(KINDS.values())
    # Shares are dealt out like cards: any first n of a long plan, too, have about the shares of all.
    dealt = sorted(
        ((i + draw.random()) * total / share, kind)
        for kind, share in KINDS.items()
        for i in range(-(-n_faults * share // total))
    )
    kinds = [kind for _, kind in dealt][:n_faults]
    return tuple(
        Strike(kind=kind, pick=draw.random(), pause_s=draw.uniform(*_PAUSE_S), rests=draw.random() < _RESTS)
        for kind in kinds
    )


@dataclass(slots=True)
class Found:
    """What a chaos run came to."""

    #: Faults that struck, by kind.
    struck: Counter[str] = field(default_factory=Counter)
    #: Law, or ``stuck``, ``slots``, ``orphans`` -> what broke it, in words.
    broken: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in (*LAWS, *_BESIDE)})
    #: Figures that say that something happened at all.
    counts: Counter[str] = field(default_factory=Counter)


# ------------------------------------------------------------------ the course
def live_through(strikes: Sequence[Strike], *, act: int = ACT, keep: Path) -> Found:
    """Strike a cluster of its own and look what became of it.

    Parameters
    ----------
    strikes
        In their order.
    act
        Faults per act.
    keep
        Folder for the journals of acts in which a law was broken.
    """
    found = Found()
    with open_arena() as arena:
        for n, at in enumerate(range(0, len(strikes), act)):
            before = _broken(found)
            _act(arena, f"act{n}", strikes[at : at + act], found)
            new = sorted(set(_broken(found)) - set(before))
            print(f"act{n}: {found.struck.total()} faults, {found.counts['updates']} updates", *new, sep="\n  ")
            if new:
                for run in arena.runs:
                    shutil.copytree(arena.folder / run, keep / run, dirs_exist_ok=True)
    found.broken["orphans"] += [f"after the end: {process}" for process in left_over(arena)]
    return found


def _broken(found: Found) -> list[str]:
    return [f"{law}: {text}" for law, texts in found.broken.items() for text in texts]


def _act(arena: Arena, run: str, strikes: Sequence[Strike], found: Found) -> None:
    arena.begin(run)
    for strike in strikes:
        try:
            arena.strike[strike.kind](strike.pick)
        except (TooQuiet, PeerError) as error:
            found.broken["stuck"].append(f"{run}: before {strike.kind}: {error}")
            break
        found.struck[strike.kind] += 1
        time.sleep(strike.pause_s)
        if strike.rests:
            _rest(arena, run)
    arena.let_go()
    found.broken["stuck"] += [f"{run}: {what}" for what in _gone_on(arena, run)]
    found.broken["stuck"] += _ended(arena)
    found.broken["slots"] += [f"{run}: {what}" for what in _unfree(arena)]
    found.broken["stuck"] += [f"{run}: anchor {key} is left" for key in _anchors(arena)]
    found.broken["orphans"] += [f"{run}: {what}" for what in _strays(arena)]
    for one in arena.runs:
        _judge(arena, one, found)


def _wait(holds: Callable[[], bool], limit_s: float) -> bool:
    """Wait until something holds; false if the time is up first."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _rest(arena: Arena, run: str) -> None:
    """Wait a while until any task has ended a round."""

    def steps() -> list[int]:
        return [row["n_timesteps"] for row in arena.tasks(run).values()]

    before = steps()
    _wait(lambda: steps() != before, _REST_S)


def _gone_on(arena: Arena, run: str) -> list[str]:
    """Wait until each task has ended two more rounds, or has ended well; return what did not."""
    seen: dict[str, tuple[int, int]] = dict.fromkeys(arena.tasks(run), (-1, -1))

    def all_did() -> bool:
        for name, row in arena.tasks(run).items():
            n, steps = seen[name]
            if row["n_timesteps"] != steps:
                seen[name] = (n + 1, row["n_timesteps"])
        return all(seen[name][0] >= 2 or row["state"] in words.ENDS for name, row in arena.tasks(run).items())

    _wait(all_did, _GO_ON_S)
    return [
        f"task {name} is {row['state']} on node {row['node'] or 'none'} after {row['n_timesteps']} steps, "
        f"attempt {row['attempt']}: {row['reason'] or 'no round ended'}"
        for name, row in arena.tasks(run).items()
        if row["state"] == "failed" or (row["state"] not in words.ENDS and seen[name][0] < 2)
    ]


def _ended(arena: Arena) -> list[str]:
    """Stop every run and wait until it is over; return what is not."""
    late = []
    for run in arena.runs:
        Link(arena.client).control(run, "stop")
    for run in arena.runs:
        _wait(lambda run=run: all(row["state"] in words.ENDS for row in arena.tasks(run).values()), _END_S)  # type: ignore[misc]
        late += [
            f"{run}: task {name} is {row['state']} {_END_S:g} s after it was to stop: {row['reason']}"
            for name, row in arena.tasks(run).items()
            if row["state"] not in ("done", "stopped")
        ]
    return late


def _unfree(arena: Arena) -> list[str]:
    """Wait until every slot is free; return which are not, and requests that are left."""
    state: dict[str, Any] = {}

    def free() -> bool:
        state.update(arena.client.run_on_scheduler(pool_state))
        return list(state["slots"].values()) == ["free"] * N_SLOTS and not state["open"]

    if _wait(free, _ORDER_S):
        return []
    return [f"{N_SLOTS} slots were opened, now they are {state['slots']}; open requests {state['open']}"]


def _anchors(arena: Arena) -> list[str]:
    def left() -> list[str]:
        return list(arena.client.run_on_scheduler(pool_state)["anchors"])

    _wait(lambda: not left(), _ORDER_S)
    return left()


def _strays(arena: Arena) -> list[str]:
    """Return collectors that no task has, and processes that nobody owns."""
    _wait(lambda: not arena.collectors() and not arena.family.strays(), _ORDER_S)
    return [str(process) for process in (*arena.collectors(), *arena.family.strays())]


def _judge(arena: Arena, run: str, found: Found) -> None:
    """Hold a run's journal against the laws."""
    time.sleep(0.6)  # the writers' threads flush four times a second
    try:
        journal = Journal.read(arena.folder / run)
    except JournalError as error:
        found.broken["replay"].append(f"{run}: {error}")
        return
    for law, texts in broken_laws(journal, run=run).items():
        found.broken[law] += [f"{run}: {text}" for text in texts]
    found.counts["streams"] += len(journal.streams)
    found.counts["events"] += sum(1 for stream in journal.streams.values() for _ in stream.records)
    found.counts["attempts"] += len(journal.of(words.TaskOpened))
    found.counts["updates"] += len(journal.of(words.ParametersCommitted))
    found.counts["grants"] += len(journal.of(leasing.LeaseGranted))
    found.counts["expired"] += len(journal.of(leasing.LeaseExpired))
