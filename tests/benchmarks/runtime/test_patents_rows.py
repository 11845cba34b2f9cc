"""What is counted of trainings by both sets of rules; the trainings themselves take minutes."""

import pytest

from benchmarks.efforts import Patents
from benchmarks.runtime import patents
from drlnb.records.columns.distribution import SendParameters
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal


def came(cartpole, acrobot, counted, replayed=1.0, parameters=b"p"):
    return {
        "returns": {"CartPole-v1": cartpole, "Acrobot-v1": acrobot},
        "counted": dict.fromkeys(patents._COUNTED, counted),
        "replayed": replayed,
        "parameters": {"CartPole-v1": b"q", "Acrobot-v1": parameters},
    }


def test_rows_of_two_seeds(monkeypatch):
    """The worst seed of each set has the bar; what the patents' rules took stands beside what the others did."""
    trained = iter([
        came(500.0, -80.0, 6.0),
        came(490.0, -90.0, 2.0),
        came(470.0, -99.0, 9.0),
        came(476.0, -101.0, 3.0),
    ])
    asked = []
    monkeypatch.setattr(patents, "_train", lambda *how: [asked.append(how), next(trained)][1])
    rows = {row.id: row for row in patents.patents(Patents(steps=1000, seeds=2, seed=5))}
    assert asked == [("patent", 5, 1000), ("auto", 5, 1000), ("patent", 6, 1000), ("auto", 6, 1000)]
    returns = {name: (list(row.samples), row.holds) for name, row in rows.items() if name.startswith("return")}
    assert returns == {
        "return-CartPole-v1-patent": ([500.0, 470.0], False),
        "return-CartPole-v1-auto": ([490.0, 476.0], True),
        "return-Acrobot-v1-patent": ([-80.0, -99.0], True),
        "return-Acrobot-v1-auto": ([-90.0, -101.0], False),
    }
    assert rows["replayed"].holds
    assert (list(rows["same"].samples), rows["same"].holds) == ([1.0] * 4, True)
    assert [(rows[name].value, rows[name].baseline, list(rows[name].pairs)) for name in patents._COUNTED] == [
        (7.5, 2.5, [3.0, 3.0])
    ] * len(patents._COUNTED)


def test_nothing_swapped_has_no_ratio(monkeypatch):
    """None is no part of none; a stream whose replay differs is told, and parameters that do."""
    trained = iter([came(500.0, -80.0, 0.0, replayed=2 / 3, parameters=b"r"), came(500.0, -80.0, 0.0)])
    monkeypatch.setattr(patents, "_train", lambda *how: next(trained))
    rows = {row.id: row for row in patents.patents(Patents())}
    assert (rows["swapped"].value, rows["swapped"].ratio, list(rows["swapped"].pairs)) == (0.0, None, [])
    assert not rows["replayed"].holds
    assert (list(rows["same"].samples), rows["same"].holds) == ([1.0, 0.0], False)


def test_bytes_are_sent_over_each_hop():
    """100 bytes to host 1, which sends them on, and 50 to host 0 alone."""
    command = SendParameters(
        version=1,
        source="",
        hosts=("a", "b"),
        routes=(((-1, 1), (1, 0)), ((-1, 0),)),
        sends=((0, 100, 0), (100, 150, 1)),
        n_in_flight=1,
        deadline_s=1.0,
    )
    assert patents._sent_bytes(command) == 250


def test_a_task_that_was_not_evaluated_is_told():
    """In the end, as it was to be."""
    with pytest.raises(TrainingFailed, match="Acrobot-v1, CartPole-v1 ended without an evaluation"):
        patents._returns(Journal(streams={}))
