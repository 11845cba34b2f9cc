"""Messages of what travels, with their places in a whole version, and back."""

from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution.changes import gathered, spread

PARTS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=6)


@given(PARTS, st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_what_was_spread_is_gathered_as_it_was_cut(parts, sizes):
    """Each byte of each message stands where it stood: bytes are numbered, and compared one by one."""
    changed, end = [], 0
    for gap, n in parts:
        changed.append((end + gap, end + gap + n))
        end += gap + n
    places = [place for low, high in changed for place in range(low, high)]
    sends, begin = [], 0
    for route, n in enumerate(sizes):
        sends.append((begin, min(begin + n, len(places)), route))
        begin = min(begin + n, len(places))
    apart = list(spread(sends, tuple(changed)))
    assert [(place, route) for start, stop, route in apart for place in range(start, stop)] == [
        (places[byte], route) for start, stop, route in sends for byte in range(start, stop)
    ]
    back = list(gathered(apart, tuple(changed)))
    assert [(byte, route) for start, stop, route in back for byte in range(start, stop)] == [
        (byte, route) for start, stop, route in sends for byte in range(start, stop)
    ]
