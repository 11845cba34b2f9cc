"""Track a task's collectors, which of them have acted this round, and which hosts hold the present version.

Each collector has a budget of restarts of its own, per time: a node that takes many along costs each of them one.

No collector acts before its host holds the version of the round: :meth:`Crew.wake` is the one gate (the leasing patent,
paragraph 6; the counter "env steps below the round's version" stays 0 because of it).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from drlnb.planning.distribution import Publication

__all__ = ["BACKOFF_MAX_S", "BACKOFF_S", "RESTART_WINDOW_S", "Crew", "Member"]

#: First pause before a lost collector is started again; doubles with each loss (Kubernetes starts at 10 s, too slow
#: for rounds of milliseconds).
BACKOFF_S = 0.5
#: Longest pause before a restart.
BACKOFF_MAX_S = 30.0
#: Time over which restarts are counted, in seconds; 20 that follow one another at once need 8 minutes of pauses.
RESTART_WINDOW_S = 3600.0


@dataclass(slots=True, kw_only=True)
class Member:
    """One collector."""

    env_indices: tuple[int, ...]
    node: str | None = None
    #: ``absent`` | ``starting`` | ``ready`` | ``acting`` | ``sent`` | ``stopped`` (it has sent, its process ended).
    status: str = "absent"
    n_restarts: int = 0
    #: When it was lost within :data:`RESTART_WINDOW_S` before the latest loss, oldest first, in seconds.
    lost_t: list[float] = field(default_factory=list)
    #: Round of the start that it waits for while it is starting; 0: started at once, whatever the round.
    awaits: int = 0
    #: Losses since the last experience; decides the pause before the next start.
    n_losses: int = 0
    #: Where its environments were at the latest loss, and how many of these losses in a row were there.
    where: str = ""
    n_there: int = 0

    @property
    def is_awaited(self) -> bool:
        """Whether its process ended after a round, and the start for another one has not made it ready yet."""
        return self.status == "stopped" or (self.status == "starting" and self.awaits > 0)

    def lost(self, t: float, where: str = "") -> None:
        """Count a loss, of its process alone or with its node."""
        self.n_there = self.n_there + 1 if where and where == self.where else min(1, len(where))
        self.where = where
        self.n_restarts += 1
        self.lost_t = [*(at for at in self.lost_t if at > t - RESTART_WINDOW_S), t]


@dataclass(slots=True, kw_only=True)
class Crew:
    """Collectors and hosts of one task; it changes by method calls of the round machine's rules alone."""

    members: dict[int, Member]
    #: The nodes, as hosts of versions.
    publication: Publication = field(default_factory=Publication)

    @classmethod
    def of(cls, env_shares: Sequence[tuple[int, ...]]) -> Self:
        """Return the collectors that have these environments, none of them placed yet."""
        return cls(members={i: Member(env_indices=share) for i, share in enumerate(env_shares)})

    @property
    def hosts(self) -> Mapping[str, int]:
        """Node -> newest version that its store holds; 0 if none."""
        return self.publication.hosts

    @property
    def at_rest(self) -> tuple[tuple[int, str], ...]:
        """Collectors that have a node and do not act, each with its node: their environments stand still."""
        return tuple((i, m.node) for i, m in self.members.items() if m.node and m.status not in {"absent", "acting"})

    @property
    def gone(self) -> tuple[int, ...]:
        """Collectors that were lost and are not up again."""
        lost = {i: m.status == "starting" and m.n_losses > 0 for i, m in self.members.items()}
        return tuple(i for i, m in self.members.items() if m.status == "absent" or lost[i])

    def placed(self, nodes: Sequence[str]) -> tuple[int, ...]:
        """Adopt a placement; return the collectors that must be started on their (new) node."""
        to_start = []
        for i, (member, node) in enumerate(zip(self.members.values(), nodes, strict=True)):
            if member.status == "absent" or member.node != node:
                member.node, member.status, member.awaits = node, "starting", 0
                to_start.append(i)
        self.publication.placed(nodes)
        return tuple(to_start)

    def ready(self, collector: int, node: str, round_: int = 0) -> bool:
        """Mark a collector as up; false if this is not the start that we wait for."""
        member = self.members.get(collector)
        if member is None or (member.node, member.status, member.awaits) != (node, "starting", round_):
            return False
        member.status = "ready"
        return True

    def lost(self, collector: int, node: str, t: float, where: str = "") -> float | None:
        """Mark a collector as lost at time `t`; return the seconds until its restart, None if the loss is old news."""
        member = self.members.get(collector)
        if member is None or member.node != node or member.status == "absent":
            return None
        had_sent = member.status == "sent"
        member.status, member.awaits = "starting", 0
        member.lost(t, where)
        pause = min(BACKOFF_MAX_S, BACKOFF_S * 2.0**member.n_losses)
        member.n_losses += 1
        # What it had sent stays good: only its environments are lost.
        return 0.0 if had_sent else pause

    def sent(self, collector: int) -> None:
        """Mark a collector as resting: it has sent its share of this round."""
        member = self.members[collector]
        member.n_losses = member.n_there = 0
        if member.status == "acting":
            member.status = "sent"

    def stopped(self, collector: int) -> None:
        """Mark a collector that has sent as stopped: its process ends."""
        member = self.members[collector]
        if member.status in {"sent", "ready", "acting"}:  # what arrived may be a lost process's last word
            member.status = "stopped"

    def starts(self, collector: int, round_: int) -> None:
        """Mark a stopped collector as starting for a round."""
        member = self.members[collector]
        if member.status == "stopped":
            member.status, member.awaits = "starting", round_

    def revoked(self, collector: int) -> None:
        """Mark a collector as stopped again: its start was taken back."""
        member = self.members[collector]
        if member.status in {"starting", "ready"}:
            member.status = "stopped"

    def next_round(self) -> None:
        """Mark everybody who has sent as ready: a new round begins."""
        for member in self.members.values():
            if member.status == "sent":
                member.status = "ready"

    def dropped(self, host: str, t: float) -> tuple[int, ...]:
        """Mark the collectors of a host that is gone at time `t` as absent; return them."""
        gone = tuple(i for i, member in self.members.items() if member.node == host)
        for i in gone:
            self.members[i].node, self.members[i].status = None, "absent"
            self.members[i].lost(t)
        return gone

    def wake(self, version: int, done: Iterable[int]) -> tuple[int, ...]:
        """Mark as acting, and return, the collectors that may act on `version` now and have not (`done`)."""
        done = set(done)
        woken = []
        for i, member in self.members.items():
            if member.status == "ready" and i not in done and self.hosts.get(member.node or "") == version:
                member.status = "acting"
                woken.append(i)
        return tuple(woken)
