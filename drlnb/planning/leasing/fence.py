"""Refuse work under a fence that is no longer the newest at a resource.

A lease can be lost without its holder knowing: a paused process wakes after its lease expired and goes on.  So each
resource keeps the highest fence that it has seen and refuses what is below (Kleppmann's fencing tokens; leasing is
the leasing patent, the fence is ours).  Nothing here trusts the lease table or the holder.
"""

from dataclasses import dataclass

from drlnb.records.ids import Fence

__all__ = ["FenceGate", "StoreGate"]


@dataclass(slots=True)
class FenceGate:
    """The gate of an executor: nothing below the highest fence that it has seen.

    Examples
    --------
    >>> gate = FenceGate()
    >>> gate.admit(Fence(epoch=1, token=5)) is None
    True
    >>> gate.admit(Fence(epoch=1, token=4))
    'fence #4 of epoch 1 is below the highest seen, #5 of epoch 1'
    """

    highest: Fence | None = None

    def admit(self, fence: Fence) -> str | None:
        """Admit work under `fence` and remember it, or say why not.

        Returns
        -------
        str or None
            None if the work is admitted; else the reason, and nothing has changed.
        """
        reason = _below(fence, self.highest)
        if reason is None:
            self.highest = fence
        return reason


@dataclass(slots=True)
class StoreGate:
    """The gate of a task's host store: versions in order, from the newest attempt and the newest fence only."""

    #: The committed version: at the start 0 if there are no parameters yet, else that of the checkpoint.
    version: int = 0
    #: The newest attempt and the highest fence that have been seen.
    attempt: int = 0
    highest: Fence | None = None

    def learn(self, fence: Fence, attempt: int) -> str | None:
        """Remember a grant, so that work under the task's former leases is refused from now on.

        Returns
        -------
        str or None
            None if it is the newest; else the reason, and nothing has changed.
        """
        reason = _older(attempt, self.attempt) or _below(fence, self.highest)
        if reason is None:
            self.highest, self.attempt = fence, attempt
        return reason

    def admit(self, fence: Fence, attempt: int, version: int) -> str | None:
        """Admit the commit of `version` and count it as committed, or say why not.

        Returns
        -------
        str or None
            None if the commit is admitted; else the reason, and nothing has changed.
        """
        reason = self._gap(version) or self.learn(fence, attempt)
        if reason is None:
            self.version = version
        return reason

    def carry(self, attempt: int, version: int) -> str | None:
        """Count `version` as committed with the parameters that are here, which takes no lease, or say why not.

        Returns
        -------
        str or None
            None if it is admitted; else the reason, and nothing has changed.
        """
        reason = self._gap(version) or _older(attempt, self.attempt)
        if reason is None:
            self.version = version
        return reason

    def _gap(self, version: int) -> str | None:
        follows = version == self.version + 1
        return None if follows else f"version {version} does not follow the committed version {self.version}"


def _below(fence: Fence, highest: Fence | None) -> str | None:
    """Return the complaint about a fence below the highest seen, if it is."""
    if highest is None or fence >= highest:
        return None
    return f"fence {fence} of epoch {fence.epoch} is below the highest seen, {highest} of epoch {highest.epoch}"


def _older(attempt: int, newest: int) -> str | None:
    """Return the complaint about an attempt below the newest seen, if it is."""
    return None if attempt >= newest else f"attempt {attempt} is older than attempt {newest}"
