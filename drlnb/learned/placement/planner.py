"""Choose jobs and slots by networks: one for any cluster, and the one of the placement patent, for one of a size."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from drlnb.learned.placement.features import Array, Gang, Seen, job_rows
from drlnb.learned.placement.network import Network, Policy, load, shipped
from drlnb.planning.placement.cluster import ClusterView, Pick
from drlnb.records.errors import ConfigError

__all__ = [
    "Learned",
    "Patent",
    "Question",
    "Scores",
    "Steps",
    "ended",
    "state_of",
    "steps",
    "steps_by_name",
    "steps_of_patent",
]


Asked = TypeVar("Asked")
Sent = TypeVar("Sent")
Ended = TypeVar("Ended")


@dataclass(frozen=True, slots=True)
class Question:
    """What a network is asked: one of the rows is to be chosen."""

    #: Of the network.
    part: str
    rows: Array
    #: Slot of each answer; empty: the answers are jobs.
    slots: Sequence[int] | npt.NDArray[np.int_] = ()


#: Asks questions about a view, is sent the number of a row for each, and returns what starts.
Steps = Generator[Question, int, Pick | None]


class Scores(Protocol):
    """A network."""

    def logits(self, part: str, groups: Sequence[Array]) -> Array:
        """Return the scores of the answers to several questions, the higher the better."""
        ...


def ended(asking: Generator[Asked, Sent, Ended], answer: Callable[[Asked], Sent]) -> Ended:
    """Return what a generator returns that is sent the answer to whatever it yields."""
    try:
        asked = next(asking)
        while True:
            asked = asking.send(answer(asked))
    except StopIteration as end:
        returned: Ended = end.value
        return returned


def _best(network: Scores, asking: Steps) -> Pick | None:
    """Answer each question with the highest score; the pick has the chances of slots."""
    chances, asked, p = dict[int, float](), Question("", np.zeros((0, 0))), np.zeros(0)

    def answer(question: Question) -> int:
        nonlocal asked, p
        logits = network.logits(question.part, [question.rows])[0]
        best = int(logits.argmax())
        if len(question.slots) and logits[best] > -np.inf:
            asked, p = question, np.exp(logits - logits[best])
            p /= p.sum()
            chances[int(question.slots[best])] = float(p[best])
        return best

    pick = ended(asking, answer)
    last = {int(slot): chance for slot, chance in zip(asked.slots, p.tolist(), strict=True) if chance > 0.0}
    return pick and replace(pick, chances=tuple(sorted({**last, **chances}.items())))


def steps(view: ClusterView) -> Steps:
    """Choose a job of the window, then its slots one by one; what cannot be chosen otherwise is not asked.

    None of several jobs may be chosen, too, while any slot is busy.
    """
    if not view.window:
        return None
    seen, k = Seen(view), 0
    if len(view.window) > 1:
        k = yield Question("jobs", job_rows(seen, waits="busy" in view.state))
        if k == len(view.window):
            return None
    gang = Gang(seen, view.window[k])
    while gang.n_missing:
        gang.take((yield Question("slots", gang.rows(), gang.open)) if gang.n_missing < gang.n_open else 0)
    return Pick(gang.job.job, tuple(gang.chosen))


class Learned:
    """Chooses by a network that looks at health, nodes and what the rules would do.

    Parameters
    ----------
    weights
        File of weights; empty: those that travel with the package.
    window
        1: choose among several jobs, or wait; 0: choose the slots of the next job alone.
    network
        The network itself.
    """

    name = "learned"
    #: Sums of numpy depend on the processor: a replay reads the plans from the journal.
    exact = False

    def __init__(self, weights: str = "", window: int = 1, network: Scores | None = None) -> None:
        if window not in (0, 1):
            raise ConfigError(f"window must be 0 or 1, got {window}")
        self.window = bool(window)
        self._network = network or (load(weights, Network) if weights else shipped())

    def plan(self, view: ClusterView) -> Pick | None:
        """Return the job that starts, and its slots; None to wait."""
        return _best(self._network, steps(view))


def state_of(view: ClusterView, n_missing: int, chosen: Sequence[int]) -> Array:
    """Return the patent's state, shape ``(1, N + 2)``: slots wanted, log of the run time, 0 of a free slot, else 1."""
    taken = np.array([state != "free" for state in view.state], dtype=float)
    taken[list(chosen)] = 1.0
    return np.array([[float(n_missing), np.log1p(view.window[0].work_s) / 12, *taken]])


def steps_of_patent(view: ClusterView, numbers: Sequence[int] = ()) -> Steps:
    """Choose the slots of the next job one by one; the networks are asked again for each of them.

    `numbers` are what questions call the slots; empty: as the view numbers them.
    """
    if not view.window:
        return None
    job = view.window[0]
    chosen = list(job.kept)
    while len(chosen) < job.n_slots:
        state = state_of(view, job.n_slots - len(chosen), chosen)
        chosen.append((yield Question("patent", state, numbers or range(len(view.state)))))
    return Pick(job.job, tuple(chosen))


def steps_by_name(view: ClusterView, slots: Sequence[str]) -> Steps:
    """Choose the slots of the next job among those of some names, as a network sees them that knows them by number.

    Those that are missing have failed.  Slots of other names are taken in their order, where too few of its own are
    free.

    Raises
    ------
    ConfigError
        If none of the names is there.
    """
    there = {name: i for i, name in enumerate(view.names)}
    if there.keys().isdisjoint(slots):
        theirs, mine = (", ".join(some[:4]) + ", ..." * (len(some) > 4) for some in (tuple(slots), view.names))
        raise ConfigError(f"it was trained for slots {theirs}: none of them is there, but {mine}")
    if not view.window:
        return None
    places, job = [there.get(name, -1) for name in slots], view.window[0]
    state = tuple([view.state[i] if i >= 0 else "failed" for i in places])
    held = tuple([places.index(i) for i in job.kept if i in places])
    n_foreign = len(job.kept) - len(held)
    asked = replace(job, n_slots=min(job.n_slots - n_foreign, len(held) + state.count("free")), kept=held)
    pick = yield from steps_of_patent(replace(view, state=state, window=(asked,)), places)
    chosen = [places[slot] for slot in pick.slots[len(held) :]] if pick else []
    foreign = [i for i in view.free() if i not in places]
    return Pick(job.job, (*job.kept, *chosen, *foreign)[: job.n_slots])


class Patent:
    """Chooses slots by the policy network of the placement patent, for a cluster of the size that it was trained for.

    It knows slots by their numbers: what it has learned of one cluster says nothing about another one.

    Parameters
    ----------
    weights
        File of weights.
    network
        The network itself.
    slots
        Names of the slots that it was trained for, by number, see :func:`steps_by_name`; empty: those of the file.
        Where there are none, or a view has no names, a view has just as many slots.

    Raises
    ------
    ConfigError
        If it has no weights.
    """

    name = "patent"
    exact = False

    def __init__(self, weights: str = "", network: Policy | None = None, slots: Sequence[str] = ()) -> None:
        if network is None and not weights:
            raise ConfigError("it is of one cluster: drlnb.placement.train(net='patent') writes its weights=FILE")
        self._network = network or load(weights, Policy)
        self._slots = tuple(slots) or self._network.slots

    def plan(self, view: ClusterView) -> Pick | None:
        """Return the next job, and its slots.

        Raises
        ------
        ConfigError
            If it was trained for another number of slots, or for slots none of which is there.
        """
        if self._slots and view.names:
            return _best(self._network, steps_by_name(view, self._slots))
        if self._network.n_slots != len(view.state):
            raise ConfigError(
                f"it was trained for {self._network.n_slots} slots, there are {len(view.state)}: train it for these"
            )
        return _best(self._network, steps_of_patent(view))
