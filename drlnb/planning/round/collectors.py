"""Which of a task's collectors are up, which have acted this round, and which hosts hold the present version?

No collector acts before its host holds the version of the round: :meth:`Crew.wake` is the one gate (seed 000,
paragraph 6; the counter "env steps below the round's version" stays 0 because of it).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BACKOFF_MAX_S", "BACKOFF_S", "Crew", "Member"]

#: First pause before a lost collector is started again; doubles with each loss (Kubernetes starts at 10 s, too slow
#: for rounds of milliseconds).
BACKOFF_S = 0.5
#: Longest pause before a restart.
BACKOFF_MAX_S = 30.0


@dataclass(slots=True, kw_only=True)
class Member:
    """One collector."""

    env_indices: tuple[int, ...]
    node: str | None = None
    #: ``absent`` | ``starting`` | ``ready`` | ``acting`` | ``sent`` | ``stopped`` (it has sent, its process ended).
    status: str = "absent"
    n_restarts: int = 0
    #: Round of the start that it waits for while it is starting; 0: started at once, whatever the round.
    awaits: int = 0
    #: Losses since the last experience; decides the pause before the next start.
    n_losses: int = 0

    @property
    def is_awaited(self) -> bool:
        """Whether its process ended after a round, and the start for another one has not made it ready yet."""
        return self.status == "stopped" or (self.status == "starting" and self.awaits > 0)


class Crew:
    """Collectors and hosts of one task; it changes by method calls of the round machine alone."""

    def __init__(self, env_shares: Sequence[tuple[int, ...]]) -> None:
        self.members = {i: Member(env_indices=share) for i, share in enumerate(env_shares)}
        #: Node -> newest version that its store holds; 0 if none.
        self.hosts: dict[str, int] = {}

    @property
    def n_restarts(self) -> int:
        """Restarts of collectors so far."""
        return sum(member.n_restarts for member in self.members.values())

    def placed(self, nodes: Sequence[str]) -> tuple[int, ...]:
        """Take over the placement; return the collectors that must be started on their (new) node."""
        to_start = []
        for i, (member, node) in enumerate(zip(self.members.values(), nodes, strict=True)):
            if member.status == "absent" or member.node != node:
                member.node, member.status, member.awaits = node, "starting", 0
                to_start.append(i)
        kept = set(nodes)
        self.hosts = {node: self.hosts.get(node, 0) for node in sorted(kept)}
        return tuple(to_start)

    def ready(self, collector: int, node: str, round_: int = 0) -> bool:
        """Note that a collector is up; false if this is not the start that we wait for."""
        member = self.members.get(collector)
        if member is None or (member.node, member.status, member.awaits) != (node, "starting", round_):
            return False
        member.status = "ready"
        return True

    def lost(self, collector: int, node: str) -> float | None:
        """Note a loss; return the pause in seconds before the restart, or ``None`` if the loss is old news."""
        member = self.members.get(collector)
        if member is None or member.node != node or member.status == "absent":
            return None
        had_sent = member.status == "sent"
        member.status, member.awaits = "starting", 0
        member.n_restarts += 1
        pause = min(BACKOFF_MAX_S, BACKOFF_S * 2.0**member.n_losses)
        member.n_losses += 1
        # What it had sent stays good: only its environments are lost.
        return 0.0 if had_sent else pause

    def sent(self, collector: int) -> None:
        """Note that a collector has sent its share of this round and rests."""
        member = self.members[collector]
        member.n_losses = 0
        if member.status == "acting":
            member.status = "sent"

    def stopped(self, collector: int) -> None:
        """Note that the process of a collector that has sent ends."""
        member = self.members[collector]
        if member.status in {"sent", "ready", "acting"}:  # what arrived may be a lost process's last word
            member.status = "stopped"

    def starts(self, collector: int, round_: int) -> None:
        """Note that a stopped collector is started for a round."""
        member = self.members[collector]
        if member.status == "stopped":
            member.status, member.awaits = "starting", round_

    def revoked(self, collector: int) -> None:
        """Note that the start of a stopped collector was taken back."""
        member = self.members[collector]
        if member.status in {"starting", "ready"}:
            member.status = "stopped"

    def next_round(self) -> None:
        """Everybody may be woken once more."""
        for member in self.members.values():
            if member.status == "sent":
                member.status = "ready"

    def completed(self, host: str, version: int) -> bool:
        """Note that a host holds a version; false if the host is not ours any more or holds a newer one."""
        if self.hosts.get(host, version) >= version:
            return False
        self.hosts[host] = version
        return True

    def dropped(self, host: str) -> tuple[int, ...]:
        """Note that a host is gone; return its collectors, which are absent now."""
        self.hosts.pop(host, None)
        gone = tuple(i for i, member in self.members.items() if member.node == host)
        for i in gone:
            self.members[i].node, self.members[i].status = None, "absent"
            self.members[i].n_restarts += 1
        return gone

    def wake(self, version: int, done: Iterable[int]) -> tuple[int, ...]:
        """Return, and note as acting, the collectors that may act on `version` now and have not (`done`)."""
        done = set(done)
        woken = []
        for i, member in self.members.items():
            if member.status == "ready" and i not in done and self.hosts.get(member.node or "") == version:
                member.status = "acting"
                woken.append(i)
        return tuple(woken)

    def behind(self, version: int) -> tuple[str, ...]:
        """Return the hosts that do not hold `version` yet, in name order."""
        return tuple(host for host, held in self.hosts.items() if held < version)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data."""
        rows = [
            [list(m.env_indices), m.node, m.status, m.n_restarts, m.n_losses, m.awaits] for m in self.members.values()
        ]
        return {"members": rows, "hosts": dict(self.hosts)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of :meth:`snapshot`."""
        self.members = {
            i: Member(
                env_indices=tuple(share),
                node=node,
                status=status,
                n_restarts=n_restarts,
                n_losses=n_losses,
                awaits=awaits,
            )
            for i, (share, node, status, n_restarts, n_losses, awaits) in enumerate(state["members"])
        }
        self.hosts = dict(state["hosts"])
