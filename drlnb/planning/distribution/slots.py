"""Choose the slot of a host store that the next version is written into; readers look at some of the others."""

from collections.abc import Collection, Sequence

__all__ = ["choose_slot"]


def choose_slot(written: Sequence[int], held: Collection[int]) -> int | None:
    """Return the slot that was written longest ago among those that nobody holds; None if every slot is held.

    Longest ago, because a reader may be about to announce a slot that was current until now.

    Parameters
    ----------
    written
        Per slot, when it was written: any number that grows from version to version; 0 = never.
    held
        Slots that are current, announced by a reader, or being filled.

    Examples
    --------
    >>> choose_slot([5, 2, 4, 3], {1, 3})
    2
    >>> choose_slot([5, 2], {0, 1}) is None
    True
    """
    return min((slot for slot in range(len(written)) if slot not in held), key=lambda slot: written[slot], default=None)
