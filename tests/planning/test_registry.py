"""Planners are registered by decision, built from a text, and their plans checked."""

import re
from dataclasses import dataclass

import pytest

from drlnb.planning import decisions
from drlnb.planning.decisions import KINDS, kind_of
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.recorded import Recorded
from drlnb.planning.registry import Answer, Named, PlannerFailed, PlannerKind
from drlnb.records.columns.batching import BatchPlanned
from drlnb.records.errors import ConfigError
from drlnb.records.round import EndTask


@dataclass
class Relay:
    """Plans its own parameter, whatever the view."""

    m: int
    share: float = 0.5
    name: str = "relay"

    def __post_init__(self):
        if self.m < 1:
            raise ValueError(f"m must be >= 1, got {self.m}")

    def plan(self, view):
        return view + self.m


def recorded(view, answer):
    planned = answer.next(BatchPlanned)
    return planned and planned.round


@pytest.fixture
def kind(monkeypatch):
    made = PlannerKind(
        "adding", "relay", problem=lambda view, plan: "" if plan > 0 else f"got {plan}", recorded=recorded
    )
    monkeypatch.setattr(decisions, "KINDS", {**KINDS, "adding": made})
    kind_of("adding").register("relay", Relay, {"m": int})
    kind_of("adding").register("shared", Relay, {"m": int, "share": float})
    return made


def test_a_text_names_a_planner_and_its_parameters(kind):
    """What the journal calls it is the text, in the order of the parameters."""
    planner = kind.build("shared:share=0.25,m=4")
    assert (planner.m, planner.share, planner.name) == (4, 0.25, "shared:m=4,share=0.25")
    assert kind_of("adding").parse("relay:m=4") == Named("relay", {"m": 4})
    assert kind.names == ("relay", "shared")
    assert DISTRIBUTION.build("chain").name == "chain"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rely:m=4", "adding planner must be one of relay, shared, got 'rely:m=4'; did you mean 'relay'?"),
        ("x", "adding planner must be one of relay, shared, got 'x'"),
        ("", "adding planner must be one of relay, shared, got ''"),
        ("relay", "adding planner relay needs m (a whole number), such as relay:m=..."),
        ("relay:m=x", "adding planner relay: m must be a whole number, got 'x'"),
        ("shared:m=1,share=much", "adding planner shared: share must be a number, got 'much'"),
        ("relay:m=1,k=2", "adding planner relay takes m, got 'k'"),
        ("shared:m=1,shar=2", "adding planner shared takes m, share, got 'shar'; did you mean 'share'?"),
        ("relay:m", "adding planner relay takes parameters as NAME=VALUE, got 'm'"),
        ("relay:m=", "adding planner relay takes parameters as NAME=VALUE, got 'm='"),
        ("relay:m=1,m=2", "adding planner relay is given m twice"),
        ("relay:m=0", "adding planner relay:m=0: m must be >= 1, got 0"),
    ],
)
def test_a_wrong_text_is_refused_in_one_line(kind, text, message):
    """Each names the decision, the planner, and the way out."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        kind.build(text)


def test_a_planner_without_parameters_says_so():
    """And one whose parameters have values of their own says which they are."""
    with pytest.raises(ValueError, match="distribution planner star takes no parameter, got 'm'"):
        DISTRIBUTION.build("star:m=2")
    with pytest.raises(ValueError, match="distribution planner chain takes c, got 'm'"):
        DISTRIBUTION.build("chain:m=2")
    assert DISTRIBUTION.build("chain").name == "chain"
    assert DISTRIBUTION.build("chain:c=2").name == "chain:c=2"


def test_a_name_is_registered_once(kind):
    """A second planner of a name would hide the first."""
    with pytest.raises(ValueError, match="adding planner 'relay' is registered already"):
        kind.register("relay", Relay)


def test_an_unknown_decision_is_refused_with_the_nearest():
    """All of them are listed if none is near."""
    assert kind_of("distribution") is DISTRIBUTION
    with pytest.raises(ConfigError, match="unknown kind of planner 'placment'; did you mean 'placement'"):
        kind_of("placment")
    with pytest.raises(ConfigError, match=r"unknown kind of planner 'x'; known are .*batching"):
        kind_of("x")


class Broken:
    """Raises a message of two lines."""

    name = "mine"

    def plan(self, view):
        raise KeyError("first\nsecond")


def test_a_plan_is_checked_before_it_is_used(kind):
    """The planner is named, and what is wrong, in one line."""
    planner = kind.build("relay:m=1")
    assert kind.ask(planner, 1) == 2
    with pytest.raises(PlannerFailed, match=r"^adding planner relay:m=1: got 0$"):
        kind.ask(planner, -1)
    with pytest.raises(PlannerFailed) as failed:
        kind.ask(Broken(), 1)
    assert str(failed.value) == r"adding planner mine raised KeyError: 'first\nsecond'"


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def test_a_planner_whose_error_has_no_words_fails_as_others_do(kind):
    """It would else end whoever asks."""
    broken = Broken()
    broken.plan = lambda view: (_ for _ in ()).throw(Mute())
    with pytest.raises(PlannerFailed) as failed:
        kind.ask(broken, 1)
    assert str(failed.value) == "adding planner mine raised Mute: no words of its own, its __str__ raises RuntimeError"


def batch(round_):
    return BatchPlanned(round=round_, planner="mine", collectors=(0,), n_steps=(1,))


def test_recorded_plans_come_back_in_their_order(kind):
    """Each record of an answer is one plan; what failed there fails again with the same words."""
    end = EndTask(state="failed", reason="round 2: adding planner mine: got 0")
    answer = Answer([batch(7), batch(8), end])
    planner = Recorded(kind, "mine", lambda: answer)
    assert [kind.ask(planner, 0), kind.ask(planner, 0)] == [7, 8]
    with pytest.raises(PlannerFailed, match=r"^round 2: adding planner mine: got 0$"):
        kind.ask(planner, 0)
    with pytest.raises(PlannerFailed, match="the journal holds no plan of adding here"):
        kind.ask(planner, 0)


def test_an_answer_hands_each_record_out_once():
    """By class, whatever stands between."""
    end = EndTask(state="done", reason="")
    answer = Answer([batch(1), end, batch(2)])
    assert answer.next(EndTask) is end
    assert answer.next(EndTask) is None
    assert [answer.next(BatchPlanned).round, answer.next(BatchPlanned).round] == [1, 2]
    assert answer.next(BatchPlanned) is None
