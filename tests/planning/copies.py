"""Choose the events that are given to a restored copy of a machine, too: a copy of each would take most of the time."""

import os
from collections import Counter

__all__ = ["is_copied"]

#: So many events of one kind in one situation are given to a copy, then one in so many.
_FIRST, _EVERY = 2, 16
_seen = Counter()


def is_copied(kind, situation):
    """Return whether an event is given to a copy: the first ones of their kind in a situation, then one in sixteen."""
    _seen[kind, situation] += 1
    n = _seen[kind, situation]
    return n <= _FIRST or n % _EVERY == 0 or os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
