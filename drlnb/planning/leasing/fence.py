"""May work under this fence still touch this resource?

A lease can be lost without its holder knowing: a paused process wakes after its lease expired and goes on.  So each
resource keeps the highest fence that it has seen and refuses what is below (Kleppmann's fencing tokens; leasing is
seed 000, the fence is ours).  Nothing here trusts the lease table or the holder.
"""

from collections.abc import Mapping
from typing import Any

from drlnb.records.ids import Fence

__all__ = ["FenceGate", "StoreGate"]


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

    def __init__(self) -> None:
        self._highest: Fence | None = None

    def admit(self, fence: Fence) -> str | None:
        """Admit work under `fence` and remember it, or say why not.

        Returns
        -------
        str or None
            None if the work is admitted; else the reason, and nothing has changed.
        """
        reason = _below(fence, self._highest)
        if reason is None:
            self._highest = fence
        return reason

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"highest": _plain(self._highest)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take on the state of :meth:`snapshot`."""
        self._highest = _fence(snapshot["highest"])


class StoreGate:
    """The gate of a task's host store: versions in order, from the newest attempt and the newest fence only.

    Parameters
    ----------
    version
        The committed version at the start: 0 if there are no parameters yet, else that of the checkpoint.
    """

    def __init__(self, version: int = 0) -> None:
        self._version = version
        self._attempt = 0
        self._highest: Fence | None = None

    @property
    def version(self) -> int:
        """The committed version."""
        return self._version

    def learn(self, fence: Fence, attempt: int) -> str | None:
        """Note a grant, so that work under the task's former leases is refused from now on.

        Returns
        -------
        str or None
            None if it is the newest; else the reason, and nothing has changed.
        """
        reason = _older(attempt, self._attempt) or _below(fence, self._highest)
        if reason is None:
            self._highest, self._attempt = fence, attempt
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
            self._version = version
        return reason

    def carry(self, attempt: int, version: int) -> str | None:
        """Count `version` as committed with the parameters that are here, which takes no lease, or say why not.

        Returns
        -------
        str or None
            None if it is admitted; else the reason, and nothing has changed.
        """
        reason = self._gap(version) or _older(attempt, self._attempt)
        if reason is None:
            self._version = version
        return reason

    def _gap(self, version: int) -> str | None:
        follows = version == self._version + 1
        return None if follows else f"version {version} does not follow the committed version {self._version}"

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"highest": _plain(self._highest), "attempt": self._attempt, "version": self._version}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take on the state of :meth:`snapshot`."""
        self._highest = _fence(snapshot["highest"])
        self._attempt, self._version = snapshot["attempt"], snapshot["version"]


def _below(fence: Fence, highest: Fence | None) -> str | None:
    """Return the complaint about a fence below the highest seen, if it is."""
    if highest is None or fence >= highest:
        return None
    return f"fence {fence} of epoch {fence.epoch} is below the highest seen, {highest} of epoch {highest.epoch}"


def _older(attempt: int, newest: int) -> str | None:
    """Return the complaint about an attempt below the newest seen, if it is."""
    return None if attempt >= newest else f"attempt {attempt} is older than attempt {newest}"


def _plain(fence: Fence | None) -> list[int] | None:
    return None if fence is None else [fence.epoch, fence.token]


def _fence(plain: list[int] | None) -> Fence | None:
    return None if plain is None else Fence(epoch=plain[0], token=plain[1])
