"""Fold the splits of one task: what each learner, or collector, was given and when it was done."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from drlnb.records.columns import batching as words
from drlnb.records.columns.warmup import WakeCollector
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.records.journal import StreamOpened
from drlnb.records.round import (
    ComputeGradient,
    EndTask,
    ExperienceArrived,
    FinishRound,
    GradientComputed,
    ParametersCommitted,
    ParametersReady,
    RequestSlot,
)
from drlnb.views.folds.entries import folds

__all__ = ["BatchFold", "Share", "Split", "Splits"]

#: Splits that are kept, at most: the newest ones.
_MOST = 1024
#: Decision -> key of the setting that names its planner.
_PLANNERS = {"batching": "batching.planner", "collect": "batching.collect"}


@dataclass(slots=True)
class Share:
    """Units of one member of a split; NaN: not known, or not yet."""

    member: str
    n_planned: int
    #: Units per second that it was expected to make.
    planned_hz: float = math.nan
    n_done: int = 0
    #: Seconds of computing; and since the split began until it was done, all of it.
    compute_s: float = math.nan
    finish_s: float = math.nan
    #: From its order to its answer, as the master measured it.
    elapsed_s: float = math.nan
    #: So many times as long as it took, on purpose: its times are emulated then.
    slowed: float = 1.0
    #: What became of it: ``open``, ``used``, ``cut`` (a part is used), ``late``, ``not used``; ``none``: there is none.
    fate: str = "open"
    key: str = ""

    def __post_init__(self) -> None:
        if not self.n_planned:
            self.fate = "none"

    @property
    def planned_s(self) -> float:
        """Seconds that its units were expected to take, messages apart."""
        return self.n_planned / self.planned_hz if self.planned_hz > 0 else math.nan

    @property
    def hz(self) -> float:
        """Units per second that it made."""
        return self.n_done / self.compute_s if self.n_done and self.compute_s > 0 else math.nan


@dataclass(slots=True)
class Split:
    """One cycle of plan, compute and gather."""

    round: int
    #: Number in its attempt; 0: a round's gradient, or its steps.
    number: int
    planner: str
    began_t: float
    #: Number of the attempt, whose clock its times are of.
    attempt: int
    shares: dict[str, Share]
    #: Seconds that it was expected to take.
    predicted_s: float = math.nan
    #: Seconds until as many had answered as are needed, and that the others had then; NaN: all were waited for.
    quorum_s: float = math.nan
    grace_s: float = math.nan
    duration_s: float = math.nan
    wait_s: float = math.nan
    n_used: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    #: Units that the next split shares anew, for the same step.
    n_moved: int = 0
    #: ``all``, ``deadline``, ``cut``, or ``lease ended`` (what is not kept is computed anew); empty while it is open.
    cause: str = ""

    @property
    def n_planned(self) -> int:
        """Units of all shares."""
        return sum(share.n_planned for share in self.shares.values())

    @property
    def n_lost(self) -> int:
        """Units that are not used."""
        return sum(self.lost.values())

    def complete(self, t: float) -> None:
        """End a split whose shares are all there: its own records do not say so."""
        self.cause, self.duration_s, self.n_used = "all", t - self.began_t, self.n_planned
        done = [share.finish_s for share in self.shares.values() if share.n_done]
        self.wait_s = self.duration_s - sum(done) / len(done)


class Splits:
    """Splits among one kind of members, oldest first.

    Parameters
    ----------
    most
        Splits that are kept; None: all.
    """

    def __init__(self, most: int | None = _MOST) -> None:
        self.kept: deque[Split] = deque(maxlen=most)
        #: Every member that ever had a share -> its number, in the order in which they came.
        self.members: dict[str, int] = {}
        #: Splits that began, and that are over.
        self.n_begun = self.n_closed = 0
        #: Units that were used; reason -> those that were not, and in how many splits.
        self.n_used = 0
        self.lost: dict[str, int] = {}
        self.n_losing: dict[str, int] = {}

    @property
    def newest(self) -> Split | None:
        """The last split that began."""
        return self.kept[-1] if self.kept else None

    @property
    def lost_frac(self) -> float:
        """Share of all units that were not used; NaN before there are any."""
        n_lost = sum(self.lost.values())
        return n_lost / (self.n_used + n_lost) if self.n_used + n_lost else math.nan

    def begin(self, split: Split) -> None:
        """Begin a split; one that is open was ended by the loss of its lease: what of it is kept counts."""
        former = self.newest
        if former and not former.cause:
            former.cause = "lease ended"
            former.n_used = 0 if former.number else sum(share.n_done for share in former.shares.values())
            self.count(former)
        self.kept.append(split)
        self.n_begun += 1
        for member in split.shares:
            self.members.setdefault(member, len(self.members))

    def count(self, split: Split) -> None:
        """Count a split that is over."""
        self.n_closed += 1
        self.n_used += split.n_used
        for reason, n in split.lost.items():
            self.lost[reason] = self.lost.get(reason, 0) + n
            self.n_losing[reason] = self.n_losing.get(reason, 0) + 1

    def void(self, split: Split) -> None:
        """Count what was used of a split no more: its step was undone with its round, and nothing of it is kept."""
        self.n_used -= split.n_used
        for reason, n in split.lost.items():
            self.lost[reason] -= n
            self.n_losing[reason] -= 1
            if not self.n_losing[reason]:
                del self.lost[reason], self.n_losing[reason]
        split.cause, split.n_used, split.n_moved, split.lost = "lease ended", 0, 0, {}
        for share in split.shares.values():
            share.fate = "not used" if share.fate in {"used", "cut"} else share.fate

    def numbered(self) -> Iterator[tuple[int, Split]]:
        """Yield the splits that are kept with their numbers, from 1 for the first one ever."""
        return enumerate(self.kept, start=self.n_begun - len(self.kept) + 1)


@folds()
class BatchFold:
    """Splits of a task: of its gradients among learners (``update``), of its rounds among collectors (``collect``).

    Parameters
    ----------
    most
        Splits of each kind that are kept; None: all.
    """

    def __init__(self, most: int | None = _MOST) -> None:
        self.roles = {"update": Splits(most), "collect": Splits(most)}
        #: Key of a setting of batching -> what it was set to last.
        self.settings: dict[str, object] = {}
        #: Role -> (splits that had begun, what was changed).
        self.marks: dict[str, list[tuple[int, str]]] = {role: [] for role in self.roles}
        self.n_attempts = 0
        #: Splits that are over, of a round whose parameters are not committed yet; of how many the steps are made; and
        #: whether their lease was lost, and nobody has gone on from them yet.
        self._uncommitted: list[Split] = []
        self._n_made, self._is_lost = 0, False
        #: Whether learners share a round's gradient by whole shares of collectors, not by samples of minibatches.
        self.has_whole_shares = True
        #: Lease under which the newest split's minibatches are shared; None: under none that goes on.
        self._fence: Fence | None = None

    @property
    def shared(self) -> list[str]:
        """The kinds of splits among several members."""
        return [role for role, of in self.roles.items() if len(of.members) > 1]

    def void(self, first: int = 0) -> None:
        """Count splits of a round that is not committed no more, from one on: it was lost, or its attempt has ended."""
        for split in self._uncommitted[first:]:
            self.roles["update"].void(split)
        del self._uncommitted[first:]
        self._n_made, self._is_lost = first, False

    def _opened(self, header: StreamOpened, t: float) -> None:
        self.void()
        self.n_attempts += 1
        config = header.config or {}
        self.has_whole_shares = bool(config.get("streams", True))
        own = {f"batching.{name}": value for name, value in (config.get("batching") or {}).items()}
        planners = config.get("planners") or {}
        self.settings = own | {key: planners[name] for name, key in _PLANNERS.items() if name in planners}

    def _setting(self, event: SettingChanged, t: float) -> None:
        if event.key.startswith("batching."):
            self.settings[event.key] = event.value
            for role, of in self.roles.items():
                self.marks[role].append((of.n_begun, f"{event.key.partition('.')[2]}: {event.value}"))

    def _slowed(self, event: words.MemberSlowed, t: float) -> None:
        role = "collect" if event.member.isdigit() else "update"
        said = f"{event.member} x{event.factor:g} for {event.n_rounds} rounds, emulated"
        self.marks[role].append((self.roles[role].n_begun, said))

    def _ordered(
        self, command: words.ComputeShare | words.JoinRound | ComputeGradient | FinishRound | WakeCollector, t: float
    ) -> None:
        if isinstance(command, WakeCollector):
            split, member = self.roles["collect"].newest, str(command.collector)
        else:
            split, member = self.roles["update"].newest, command.slot
        if split and not split.cause and split.round == command.round and (share := split.shares.get(member)):
            share.slowed = command.slowed

    # -- collectors
    def _steps(self, decision: words.BatchPlanned, t: float) -> None:
        pairs = zip(map(str, decision.collectors), decision.n_steps, strict=True)
        shares = {name: Share(name, n) for name, n in pairs}
        self.roles["collect"].begin(Split(decision.round, 0, decision.planner, t, self.n_attempts, shares))

    def _arrived(self, event: ExperienceArrived, t: float) -> None:
        split = self.roles["collect"].newest
        share = split.shares.get(str(event.collector)) if split and not split.cause else None
        if split and share and share.fate == "open" and event.round == split.round:
            share.n_done, share.fate = share.n_planned, "used"
            share.compute_s, share.finish_s = event.collect_s, event.t - split.began_t
            share.elapsed_s = share.finish_s

    def _collected(self, decision: words.RoundClosed, t: float) -> None:
        _whole(self.roles["collect"], t)

    # -- learners
    def _planned(self, decision: words.SplitPlanned, t: float) -> None:
        if self._is_lost:
            self.void()
        speeds = decision.speeds_hz or (math.nan,) * len(decision.members)
        shares = {
            name: Share(name, n, hz) for name, n, hz in zip(decision.members, decision.sizes, speeds, strict=True)
        }
        predicted_s = decision.predicted_s or math.nan
        self.roles["update"].begin(
            Split(
                decision.round,
                decision.split,
                decision.planner,
                t,
                self.n_attempts,
                shares,
                predicted_s=predicted_s,
            )
        )

    def _gradient(self, event: GradientComputed, t: float) -> None:
        of = self.roles["update"]
        split = of.newest
        if not split or split.cause or split.number or split.round != event.round:
            return
        share = split.shares.get(event.slot)
        if not share or share.n_done == share.n_planned:
            return
        share.n_done += 1
        share.compute_s = event.elapsed_s + (share.compute_s if share.n_done > 1 else 0.0)
        share.finish_s = share.elapsed_s = event.t - split.began_t
        share.fate = "used" if share.n_done == share.n_planned else "open"
        if all(each.n_done == each.n_planned for each in split.shares.values()):
            _whole(of, t)

    def _finishing(self, command: FinishRound, t: float) -> None:
        if self._is_lost:
            self.void()
        split = self.roles["update"].newest
        parts = [share.member for share in split.shares.values() if share.n_planned] if split else []
        self._fence = command.fence if command.members or parts == [command.slot] else None

    def _joined(self, event: words.RoundJoined, t: float) -> None:
        if split := self._together(event.round, event.fence):
            _part(self.roles["update"], split, event.slot, event.compute_s, event.elapsed_s, event.t)

    def _made(self, event: ParametersReady, t: float) -> None:
        # The lead is the first slot of a lease; nobody else had a part where it has measured none of its own.
        if split := self._together(event.round, event.fence):
            lead, elapsed_s = next(iter(split.shares)), event.elapsed_s
            _part(self.roles["update"], split, lead, event.compute_s or elapsed_s, elapsed_s, event.t)

    def _together(self, round_: int, fence: Fence) -> Split | None:
        """Return the split of a round whose minibatches are shared, while it is open: its shares count together."""
        split = self.roles["update"].newest
        is_open = split and not (split.cause or split.number) and split.round == round_
        return split if is_open and fence == self._fence else None

    def _share(self, event: words.ShareComputed, t: float) -> None:
        split = self._numbered(event.split)
        share = split.shares.get(event.slot) if split else None
        if not split or not share:
            return
        if share.fate == "late":  # it was over; its speed is known all the same
            share.n_done, share.compute_s, share.elapsed_s = event.n_done, event.compute_s, event.elapsed_s
            share.finish_s = event.t - split.began_t
            return
        share.n_done += event.n_done
        share.compute_s = event.compute_s + (0.0 if math.isnan(share.compute_s) else share.compute_s)
        share.finish_s, share.elapsed_s, share.key = event.t - split.began_t, event.elapsed_s, event.key
        share.fate = "used" if share.n_done >= share.n_planned else "cut"

    def _quorum(self, decision: words.QuorumReached, t: float) -> None:
        if split := self._numbered(decision.split):
            split.quorum_s, split.grace_s = t - split.began_t, decision.grace_s

    def _closed(self, decision: words.SplitClosed, t: float) -> None:
        split = self._numbered(decision.split)
        if split and not split.cause:
            split.cause, split.duration_s, split.wait_s = decision.cause, decision.duration_s, decision.wait_s
            split.n_used, split.lost = decision.n_used, {why: int(n) for why, n in decision.lost.items()}
            split.n_moved = decision.n_moved
            for share in split.shares.values():
                share.fate = "late" if share.fate == "open" else share.fate
            self.roles["update"].count(split)
            self._uncommitted.append(split)

    def _stepped(self, event: words.GradientsApplied, t: float) -> None:
        if event.split:
            self._n_made = len(self._uncommitted)
        elif event.key:  # the lead has what it made
            self.void(self._n_made)

    def _committed(self, event: ParametersCommitted, t: float) -> None:
        self._uncommitted.clear()
        self._n_made = 0

    def _asked(self, command: RequestSlot, t: float) -> None:
        self._is_lost = bool(self._uncommitted)  # a round that asks once more has lost its lease

    def _ended(self, command: EndTask, t: float) -> None:
        self.void()

    def _applied(self, command: words.ApplyGradients, t: float) -> None:
        split = self._numbered(command.split)
        for share in split.shares.values() if split else ():
            if share.key and share.key not in command.keys:
                share.fate = "not used"

    def _numbered(self, number: int) -> Split | None:
        """Return one of the newest splits of learners by its number."""
        return next((split for split in reversed(self.roles["update"].kept) if split.number == number), None)


def _part(of: Splits, split: Split, slot: str, compute_s: float, elapsed_s: float, t: float) -> None:
    """Count a member's part of minibatches, and all of them once the last one is there."""
    if share := split.shares.get(slot):
        share.compute_s, share.elapsed_s, share.finish_s = compute_s, elapsed_s, t - split.began_t
    parts = [each for each in split.shares.values() if each.n_planned]
    if any(math.isnan(each.finish_s) for each in parts):
        return
    for each in parts:
        each.n_done, each.fate = each.n_planned, "used"
    _whole(of, t)


def _whole(of: Splits, t: float) -> None:
    """Count the newest split, which is all there."""
    if of.newest and not of.newest.cause:
        of.newest.complete(t)
        of.count(of.newest)
