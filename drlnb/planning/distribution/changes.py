"""Choose the bytes of a version that travel: those in which it differs from one that the hosts hold.

Hosts copy the others from that one, in their own memory.  A plan is made over the bytes that travel alone, as if they
lay one after the other; its messages name the places in the version.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

__all__ = ["BLOCK_BYTES", "Ranges", "changed_ranges", "common", "gathered", "kept_ranges", "size", "spread"]

#: (start, stop) of ranges of bytes: ascending, disjoint, not empty.
Ranges = tuple[tuple[int, int], ...]

#: Versions are compared in blocks of so many bytes.
BLOCK_BYTES = 64 << 10
#: Most ranges: each message is cut at their ends, and they go along with it.
_MOST_RANGES = 64
#: A version of which less than this share would be kept travels whole: copying and checking it costs hosts time, too.
_LEAST_SHARE = 0.125


def size(ranges: Ranges) -> int:
    """Return the number of bytes in ranges."""
    return sum(stop - start for start, stop in ranges)


def common(first: Ranges, second: Ranges) -> Ranges:
    """Return what two sets of ranges have in common: ascending, disjoint, neighbours joined."""
    both = sorted((max(low, start), min(high, stop)) for low, high in first for start, stop in second)
    joined: list[tuple[int, int]] = []
    for start, stop in both:
        if joined and start <= joined[-1][1] and start < stop:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        elif start < stop:
            joined.append((start, stop))
    return tuple(joined)


def kept_ranges(changed: Ranges, n_bytes: int) -> Ranges:
    """Return the bytes of a version that do not travel.

    Examples
    --------
    >>> kept_ranges(((0, 2), (5, 8)), 8)
    ((2, 5),)
    """
    ends = [0, *(end for pair in changed for end in pair), n_bytes]
    return tuple([(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True) if start < stop])


def changed_ranges(blocks: Sequence[int], n_bytes: int, block_bytes: int = BLOCK_BYTES) -> Ranges:
    """Return the ranges of a version that travel if it differs in some blocks; none: it travels whole.

    The first block always travels, so that a version in which nothing has changed is still one.  Of the gaps the
    longest ones are kept where there are too many.

    Parameters
    ----------
    blocks
        Numbers of the blocks, ascending.
    n_bytes
        Size of the version.
    block_bytes
        Size of a block; the last one may be shorter.

    Examples
    --------
    >>> changed_ranges([2, 3], 100, 10)
    ((0, 10), (20, 40))
    >>> changed_ranges(range(1, 10), 100, 10)
    ()
    """
    numbers = [0, *(number for number in blocks if number)]
    gaps = [(number + 1, following) for number, following in pairwise([*numbers, -(-n_bytes // block_bytes)])]
    gaps = sorted((gap for gap in gaps if gap[0] < gap[1]), key=lambda gap: gap[0] - gap[1])[:_MOST_RANGES]
    kept = tuple([(start * block_bytes, min(stop * block_bytes, n_bytes)) for start, stop in sorted(gaps)])
    return kept_ranges(kept, n_bytes) if size(kept) >= _LEAST_SHARE * n_bytes else ()


def spread(sends: Iterable[tuple[int, int, int]], changed: Ranges) -> Iterator[tuple[int, int, int]]:
    """Yield messages of what travels with their places in the version; a message is cut where its places are apart.

    Parameters
    ----------
    sends
        (start, stop, route) as if what travels lay one after the other.
    changed
        What travels.

    Examples
    --------
    >>> list(spread([(0, 3, 7), (3, 5, 8)], ((10, 12), (20, 23))))
    [(10, 12, 7), (20, 21, 7), (21, 23, 8)]
    """
    ends = list(accumulate((stop - start for start, stop in changed), initial=0))
    for start, stop, route in sends:
        for (place, _), (low, high) in zip(changed, pairwise(ends), strict=True):
            first, last = max(start, low), min(stop, high)
            if first < last:
                yield place + first - low, place + last - low, route


def gathered(sends: Iterable[tuple[int, int, int]], changed: Ranges) -> Iterator[tuple[int, int, int]]:
    """Yield what :func:`spread` was given, as far as it was cut: each message lies within a range of what travels.

    Examples
    --------
    >>> list(gathered([(10, 12, 7), (20, 21, 7), (21, 23, 8)], ((10, 12), (20, 23))))
    [(0, 2, 7), (2, 3, 7), (3, 5, 8)]
    """
    ends = list(accumulate((stop - start for start, stop in changed), initial=0))
    for start, stop, route in sends:
        for (low, high), before in zip(changed, ends, strict=False):
            if low <= start < high:
                yield before + start - low, before + stop - low, route
