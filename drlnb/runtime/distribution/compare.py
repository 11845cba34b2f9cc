"""Find the bytes in which two versions differ."""

import numpy as np

from drlnb.planning.distribution.changes import BLOCK_BYTES, Ranges, changed_ranges
from drlnb.runtime.protocol import Payload

__all__ = ["changed"]

#: Words of a block that are looked at first: where a network trains, a block differs there already.
_FIRST = 8
#: Blocks that are compared at once: so many lie in a processor's cache.
_AT_ONCE = 16


def changed(old: Payload, new: Payload) -> Ranges:
    """Return the ranges of bytes in which `new` may differ from `old`; none: all of it, or nearly."""
    before, after = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    n_bytes, n_whole = len(after), len(after) // BLOCK_BYTES
    if len(before) != n_bytes or not n_whole:
        return ()
    words = [each[: n_whole * BLOCK_BYTES].view(np.uint64).reshape(n_whole, -1) for each in (before, after)]
    differs = (words[0][:, :_FIRST] != words[1][:, :_FIRST]).any(axis=1)
    if not changed_ranges(np.flatnonzero(differs).tolist(), n_bytes):
        return ()
    same = np.flatnonzero(~differs)
    for first in range(0, len(same), _AT_ONCE):
        part = same[first : first + _AT_ONCE]
        run = slice(part[0], part[-1] + 1) if part[-1] - part[0] == len(part) - 1 else part
        differs[part] = (words[0][run] != words[1][run]).any(axis=1)
    blocks = np.flatnonzero(differs).tolist()
    if (before[n_whole * BLOCK_BYTES :] != after[n_whole * BLOCK_BYTES :]).any():
        blocks.append(n_whole)
    return changed_ranges(blocks, n_bytes)
