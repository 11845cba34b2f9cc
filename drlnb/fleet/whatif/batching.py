"""Try out planners of shares: on contention that is drawn, or on the speeds that the members of a run had."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

from drlnb.planning.batching import BATCHING
from drlnb.planning.batching.gather import Gathering
from drlnb.records.base import Record
from drlnb.records.columns import batching as words
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.sim.batching.play import CLAIRVOYANT, Gang, Outcome, Played, Trace, play_splits, simulate_batching
from drlnb.sim.batching.traces import FAMILIES, MIXED, Contention, Slowed
from drlnb.views.batching.compared import Came
from drlnb.views.folds.batching import BatchFold, Split, Splits

__all__ = [
    "COMPARED",
    "FAMILIES",
    "MIXED",
    "Contention",
    "Gang",
    "Recorded",
    "Slowed",
    "Trace",
    "compare",
    "gathered",
    "play",
    "recorded",
    "tried",
]

#: Planners that are compared, and who knows the speeds before.
COMPARED = (*BATCHING.names, CLAIRVOYANT)
#: Least splits that a recorded trace has, and newest ones that it is made of.
_FEWEST, _MOST = 4, 400
_FENCE = Fence(epoch=1, token=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The speeds that the members of a run had: usually, and split by split."""

    speeds: tuple[float, ...]
    speeds_hz: npt.NDArray[np.float64]
    #: Seconds of these splits as they were, on average.
    split_s: float
    #: Splits of these in which a member was slowed down on purpose.
    n_emulated: int = 0
    seed: int = 0

    @property
    def said(self) -> str:
        """Whose speeds they are, in words."""
        emulated = f", {self.n_emulated} of them with an emulated slow member" if self.n_emulated else ""
        return f"the speeds of {len(self.speeds_hz)} recorded splits{emulated}"


def recorded(of: Splits) -> tuple[Recorded, Gang]:
    """Return what a run has measured of its members, for :func:`play` and :func:`compare`.

    A member's first split is left out: the start of libraries is in it.  One that was not measured in a split has its
    usual speed there, the median.  Splits have the units that most of them had; what a share takes beside computing,
    and a split beside its last share, are medians, too.

    Parameters
    ----------
    of
        Splits of a task.

    Raises
    ------
    ConfigError
        If fewer than two members, or four splits, were measured.
    """
    warm = {id(split) for split in _warm(of.kept)}
    steps = [each for each in _steps(of.kept) if id(each[0]) in warm and each[0].duration_s > 0][-_MOST:]
    splits = [split for split, _ in steps]
    done = [[share for share in split.shares.values() if share.hz > 0] for split in splits]
    measured = [name for name in of.members if any(share.member == name for shares in done for share in shares)]
    if len(measured) < 2 or len(splits) < _FEWEST:
        found = f"{len(measured)} and {len(splits)}"
        raise ConfigError(f"two members and {_FEWEST} splits must have been measured, there are {found}")
    hz = np.full((len(splits), len(measured)), math.nan)
    for i, shares in enumerate(done):
        for share in shares:
            hz[i, measured.index(share.member)] = share.hz
    usual = np.nanmedian(hz, axis=0)
    beside_s = [max(0.0, share.elapsed_s - share.compute_s) for shares in done for share in shares]
    after_s = [
        max(0.0, split.duration_s - max(share.finish_s for share in shares))
        for split, shares in zip(splits, done, strict=True)
        if shares
    ]
    trace = Recorded(
        speeds=tuple(map(float, usual)),
        speeds_hz=np.where(np.isfinite(hz), hz, usual),
        split_s=fmean(step_s for _, step_s in steps),
        n_emulated=sum(any(share.slowed > 1 for share in split.shares.values()) for split in splits),
    )
    n_units = Counter(split.n_planned for split in splits).most_common(1)[0][0]
    return trace, Gang(n_units=n_units, overhead_s=median(beside_s), comm_s=median(after_s))


def _steps(splits: Iterable[Split]) -> list[tuple[Split, float]]:
    """Return the splits that are over, each with its seconds and those of what was shared anew after it."""
    steps: list[tuple[Split, float]] = []
    goes_on = False
    for split in splits:
        if not split.cause:
            continue
        if goes_on and steps:
            first, step_s = steps[-1]
            steps[-1] = first, step_s + split.duration_s
        else:
            steps.append((split, split.duration_s))
        goes_on = split.n_moved > 0
    return steps


def _warm(splits: Iterable[Split]) -> Iterator[Split]:
    """Yield the splits in which no member has its first share."""
    seen = set[str]()
    for split in splits:
        shared = {share.member for share in split.shares.values() if share.n_planned}
        if shared <= seen:
            yield split
        seen |= shared


def gathered(gang: Gang, **gathering: object) -> Gang:
    """Return a gang that waits for others: ``quorum``, ``late``, ``deadline_s``, ``max_age_s``, ``steal``.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """
    return Gang.from_mapping({**asdict(gang), **gathering})


def tried(of: BatchFold, settings: Mapping[str, object]) -> tuple[Recorded, Outcome]:
    """Return what a run has measured of its learners, and what its splits would come to under settings, by key.

    Raises
    ------
    ConfigError
        As of :func:`recorded`, or if the settings do not fit these members.
    ValueError
        If there is no such planner here.
    """
    trace, gang = recorded(of.roles["update"])
    known = {key.removeprefix("batching."): value for key, value in settings.items()}
    gang = gathered(gang, **{name: known[name] for name in Gathering.declared() if name in known})
    return trace, simulate_batching(trace, str(known.get("planner", BATCHING.default)), gang)


def compare(trace: Trace, gang: Gang, planners: Sequence[str] = COMPARED) -> list[Came]:
    """Return what a split comes to under each planner, on the same speeds; the best that can be known is among them.

    Raises
    ------
    ConfigError
        If so many members cannot be waited for.
    """
    came = [simulate_batching(trace, name, gang) for name in planners]
    best = next(each.split_s for each in came if each.planner == CLAIRVOYANT)
    return [
        Came(
            planner=each.planner,
            split_s=each.split_s,
            ratio=each.split_s / best,
            samples_hz=each.samples_hz,
            lost_frac=each.lost_frac,
        )
        for each in came
    ]


def play(trace: Trace, gang: Gang, planner: str) -> Journal:
    """Return the journal of a gang whose splits are played: what a run would say of them, simulated.

    Parameters
    ----------
    trace, gang, planner
        As of :func:`~drlnb.sim.batching.play.play_splits`.

    Raises
    ------
    ConfigError, ValueError
        As it does.
    """
    said: list[tuple[float, Record]] = []
    t = 0.0
    for number, each in enumerate(play_splits(trace, planner, gang), start=1):
        said += _records(number, each, gang, t)
        t += each.step.duration_s
    said.sort(key=lambda pair: pair[0])  # stable: at one moment as they were said
    header = StreamOpened(
        stream="batching",
        machine="batching",
        config={"planners": {"batching": planner}},
        origin="simulated",
        version="0",
    )
    records = tuple(record for _, record in said)
    return Journal(streams={"batching": Stream(header=header, records=records, torn=False, source="batching")})


def _records(number: int, of: Played, gang: Gang, t: float) -> Iterator[tuple[float, Record]]:
    """Yield what is said of a split, each record with its time."""
    step, sizes, names = of.step, of.plan.sizes, tuple(f"member {each.id}" for each in of.members)
    yield (
        t,
        words.SplitPlanned(
            round=1,
            planner=of.planner,
            members=names,
            sizes=sizes,
            speeds_hz=of.plan.speeds_hz,
            split=number,
            predicted_s=of.predicted_s,
        ),
    )
    for i, n in enumerate(sizes):
        if n:
            answer = _computed(number, of, i, names[i], t)
            yield answer.t, answer
    shared = [i for i, n in enumerate(sizes) if n]
    if len(step.first) < len(shared):
        others = tuple(names[i] for i in shared if i not in step.first)
        grace_s = gang.grace_s(step.reached_s)
        first = tuple(names[i] for i in step.first)
        yield t + step.reached_s, words.QuorumReached(split=number, first=first, targets=others, grace_s=grace_s)
    lost: dict[str, int] = {}
    for i in shared:
        if n := sizes[i] - step.used[i]:
            reason = "cut" if step.used[i] else "late"
            lost[reason] = lost.get(reason, 0) + n
    in_time = gang.steal or all(step.finish_s[i] <= step.closed_s for i in shared)
    n_moved, lost = (step.n_lost, {}) if gang.steal else (0, lost)
    yield (
        t + step.closed_s,
        words.SplitClosed(
            round=1,
            split=number,
            n_used=step.n_used,
            lost=lost,
            duration_s=step.closed_s,
            wait_s=step.wait_s,
            cause="all" if in_time else "deadline" if gang.late == "drop" else "cut",
            n_moved=n_moved,
        ),
    )
    if n_moved:
        return  # the step is made of what the next split brings, too
    end_t = t + step.duration_s
    yield (
        end_t,
        words.GradientsApplied(t=end_t, round=1, split=number, fence=_FENCE, elapsed_s=gang.comm_s, key=f"{number}"),
    )


def _computed(number: int, of: Played, i: int, name: str, began_t: float) -> words.ShareComputed:
    """Return the answer of a member: all of its share, or what was done when it was cut."""
    n, each = of.plan.sizes[i], of.members[i]
    n_done = min(n, round((of.step.free_s[i] - each.overhead_s) * each.speed_hz))
    return words.ShareComputed(
        t=began_t + of.step.free_s[i],
        round=1,
        split=number,
        slot=name,
        fence=_FENCE,
        first=sum(of.plan.sizes[:i]),
        n_planned=n,
        n_done=n_done,
        denominator=float(n_done),
        loss=math.nan,
        norm_sq=math.nan,
        compute_s=n_done / each.speed_hz,
        elapsed_s=of.step.free_s[i],
        age_s=of.step.free_s[i],
        key="",
    )
