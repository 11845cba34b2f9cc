"""Split units by speeds that fall at regular intervals: a member is slow again one period after it was."""

from dataclasses import replace
from typing import TypedDict, cast

from drlnb.planning.batching.estimate import Memory, followed, planned_by, speeds
from drlnb.planning.batching.jump_reset import JumpReset
from drlnb.planning.batching.planner import BatchPlan, BatchReport, BatchView

__all__ = ["Seasonal"]


class _Season(TypedDict):
    """What is remembered of a member's slow splits."""

    #: Latest splits as binary digits, the newest one the last: 1 where it was slow.
    slow: int
    n_seen: int
    #: Mean speed in slow splits over the long-run one.
    depth: float


class _Remembered(TypedDict):
    members: Memory
    seasons: dict[str, _Season]


#: Latest splits that are looked at, and the periods that are tried, in splits.
_WINDOW, _PERIODS = 64, range(4, 33)
#: A member is slow below this fraction of its long-run speed: exp(-0.5).
_SLOW = 0.61
#: Slow splits without which nothing is said, and the least score of a period that is believed.
_LEAST_SEEN, _LEAST_SCORE = 4, 0.6
#: Weight of the latest slow split in how slow they are.
_WEIGHT = 0.2


class Seasonal:
    """Expects a member that is slow at regular intervals to be slow again, and all others as `jump-reset` does."""

    name = "seasonal"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        known = _remembered(view.memory)
        view = replace(view, memory=known["members"])
        expected = [
            _expected(known["seasons"].get(each.id), now_hz, long_hz)
            for each, now_hz, long_hz in zip(view.members, speeds(view), speeds(view, long=True), strict=True)
        ]
        return planned_by(view, expected)

    def observe(self, memory: object, report: BatchReport) -> _Remembered:
        """Return what is remembered after a report."""
        known = _remembered(memory)
        members = followed(known["members"], report, JumpReset.moved)
        seasons = {
            name: _after(known["seasons"].get(name), each["latest"])
            if name in report.members
            else known["seasons"][name]
            for name, each in members.items()
        }
        return {"members": members, "seasons": seasons}


def _remembered(memory: object) -> _Remembered:
    return cast("_Remembered", memory or {"members": {}, "seasons": {}})


def _after(season: _Season | None, latest: float) -> _Season:
    """Return what is remembered of slow splits after another one."""
    season = season or {"slow": 0, "n_seen": 0, "depth": latest}
    is_slow, depth = latest < _SLOW, season["depth"]
    if is_slow:
        depth = latest if not season["slow"] else depth + _WEIGHT * (latest - depth)
    slow = (season["slow"] << 1 | is_slow) & ((1 << _WINDOW) - 1)
    return {"slow": slow, "n_seen": min(season["n_seen"] + 1, _WINDOW), "depth": depth}


def _expected(season: _Season | None, now_hz: float, long_hz: float) -> float:
    """Return the speed in the next split: by the member's season, if it has one."""
    if season is None or not (period := _period(season)):
        return now_hz
    return long_hz * season["depth"] if season["slow"] >> (period - 1) & 1 else long_hz


def _period(season: _Season) -> int:
    """Return the period, in splits, after which a member is slow again; 0 if none is believed."""
    slow, best, found = season["slow"], 0.0, 0
    for period in _PERIODS:
        earlier = slow >> period
        either = slow & ((1 << max(0, season["n_seen"] - period)) - 1) | earlier
        if (n := either.bit_count()) >= _LEAST_SEEN and (score := (slow & earlier).bit_count() / n) > best:
            best, found = score, period
    return found if best >= _LEAST_SCORE else 0
