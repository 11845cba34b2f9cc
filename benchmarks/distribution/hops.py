"""Send bytes from one host to another, in two forms: what one hop costs before any plan."""

from collections.abc import Iterator
from functools import partial

from benchmarks.distribution.hub import Spec
from benchmarks.distribution.rig import open_rig
from benchmarks.efforts import Distribution
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up

__all__ = ["payload"]

#: Hops per repeat: one takes milliseconds.
_HOPS = 5


def payload(effort: Distribution) -> Iterator[Row]:
    """Compare a version that travels as a memoryview, which is not copied, with one that travels as bytes."""
    with open_rig(Spec(kind="loopback", n_hosts=2, rate_mbit=0.0)) as rig:
        ways = {kind: partial(rig.ask, "hop", n_bytes=effort.n_bytes, kind=kind) for kind in ("memoryview", "bytes")}
        in_turn(1, ways)  # connections are opened
        hops = in_turn(_HOPS * effort.repeats, ways)
    rates = [[effort.n_bytes / hop["hop_s"] / 1e9 for hop in hops[kind]] for kind in ways]
    title = f"{effort.model_mb:g} MB as a memoryview from one host to another, no link between"
    against, bar = "the same as bytes in the message", Bar("ratio", at_least=2.0)
    yield Row("payload", title, unit="GB/s", against=against, bar=bar, **pair_up(*rates))
