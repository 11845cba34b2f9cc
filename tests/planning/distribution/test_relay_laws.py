"""A relay beside the plainest model of it: the set of bytes of the newest version that are here."""

from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import Chunk, RelayAssembly, Taken

chunks = st.builds(
    Chunk,
    attempt=st.integers(1, 2),
    version=st.integers(1, 3),
    start=st.integers(-1, 7),
    stop=st.integers(0, 8),
    total=st.sampled_from([7, 7, 7, 4]),
    children=st.sampled_from([(), (1,), (3, 2)]),
)


@given(st.lists(chunks, max_size=30))
def test_a_relay_is_the_set_of_the_newest_versions_bytes(arrivals):
    """Whatever comes: refused, repeated or new; forwarded as far as it is new; whole with its last byte, once."""
    relay, newest, total, here, n_whole = RelayAssembly(), (0, 0), 0, set(), 0
    for chunk in arrivals:
        key, bytes_ = (chunk.attempt, chunk.version), set(range(chunk.start, chunk.stop))
        fits = 0 <= chunk.start < chunk.stop <= chunk.total
        taken = relay.take(chunk)
        if key < newest or not fits or (key == newest and chunk.total != total):
            assert taken == Taken(refused=taken.refused)
            assert taken.refused
            continue
        if key > newest:
            newest, total, here, n_whole = key, chunk.total, set(), 0
        new = bytes_ - here
        here |= bytes_
        whole = bool(new) and len(here) == total
        n_whole += whole
        assert taken == (Taken(forward=chunk.children, new=True, whole=whole) if new else Taken())
        assert n_whole <= 1
        assert (relay.newest, relay.whole) == (newest, len(here) == total)


@given(st.lists(chunks, max_size=20), st.data())
def test_a_chunk_once_more_is_never_forwarded(arrivals, data):
    """Neither at once nor later: nobody gets a byte from this host twice."""
    relay = RelayAssembly()
    for i, chunk in enumerate(arrivals):
        relay.take(chunk)
        again = relay.take(arrivals[data.draw(st.integers(0, i))])
        assert again.forward == ()
        assert not again.new
        assert not again.whole


@given(st.lists(chunks, max_size=20))
def test_a_refusal_names_what_was_wrong(arrivals):
    """The version that is older and the one that is here, the range and its limits, or both sizes."""
    relay, total = RelayAssembly(), 0
    for chunk in arrivals:
        before = relay.newest
        taken = relay.take(chunk)
        if taken.refused is None:
            total = chunk.total
        elif (chunk.attempt, chunk.version) < before:
            assert taken.refused == (
                f"attempt {chunk.attempt}, version {chunk.version} is older than {before[0]}, {before[1]}"
            )
        elif not 0 <= chunk.start < chunk.stop <= chunk.total:
            assert taken.refused.endswith(f"got [{chunk.start}, {chunk.stop})")
            assert f"[0, {chunk.total})" in taken.refused
        else:
            assert taken.refused == f"total must be {total} bytes as before, got {chunk.total}"
