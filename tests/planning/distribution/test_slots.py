"""Which slot of a host store is written next."""

from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution.slots import choose_slot

WRITTEN = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(WRITTEN, st.sets(st.integers(0, 5)))
def test_the_slot_that_was_left_longest_ago_is_taken(written, held):
    """Never one that is held; none only if each is."""
    slot = choose_slot(written, held)
    free = set(range(len(written))) - held
    assert (slot in free) if free else (slot is None)
    assert all(written[slot] <= written[other] for other in free)


@given(st.integers(2, 8), st.integers(1, 40))
def test_without_slow_readers_slots_are_taken_in_turn(n_slots, n_versions):
    """So a slot that was current is written again after all others."""
    written, current, taken = [0] * n_slots, 0, []
    for version in range(1, n_versions + 1):
        current = choose_slot(written, {current})
        written[current] = version
        taken.append(current)
    window = taken[-n_slots:]
    assert len(set(window)) == len(window)
