"""Values of a journal against what the fields of its records may hold."""

from drlnb.records.common import DeadlinePassed, LoopLagged
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.records.kinds import first_wrong

HEADER = StreamOpened(stream="s", machine="pool", config={}, origin="measured", version="0")


def stream(source, *records, header=HEADER):
    return Stream(header=header, records=records, torn=False, source=source)


def test_the_first_value_of_another_kind_is_named_with_its_stream():
    """Streams and records in their order, headers included; of a journal as drlnb writes it nothing is said."""
    good = stream("a", DeadlinePassed(t=1.0, name="reap"), LoopLagged(t=2, lag_s=0.5))
    bad = stream("b", DeadlinePassed(t=1.0, name="reap"), LoopLagged(t="soon", lag_s=None), DeadlinePassed(t=1, name=2))
    odd = stream("c", header=StreamOpened(stream="s", machine=7, config={}, origin="measured", version="0"))
    assert first_wrong(Journal(streams={"a": good})) == ""
    said = first_wrong(Journal(streams={"a": good, "b": bad, "c": odd}))
    assert said == "b is not what drlnb wrote: LoopLagged: t must be a number, got 'soon'"
    said = first_wrong(Journal(streams={"c": odd, "b": bad}))
    assert said == "c is not what drlnb wrote: StreamOpened: machine must be text, got 7"
