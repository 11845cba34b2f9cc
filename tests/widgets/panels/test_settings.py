import math

import pytest

from drlnb.records.settings import choice
from drlnb.widgets.panels import settings
from drlnb.widgets.transport.live import Registry

CHECKS = {"window_s": settings.seconds, "env": settings.text, "algo": choice("ppo", "dqn").read}


def test_an_unknown_setting_is_told_with_the_nearest_name_and_all():
    """One look tells what was meant."""
    with pytest.raises(
        TypeError, match=r"panel leasing has no setting 'windows'; did you mean 'window_s'\?; there are win"
    ):
        settings.checked("leasing", CHECKS, {"windows": 3})
    with pytest.raises(TypeError, match="no setting 'x'; there are none"):
        settings.checked("fleet", {}, {"x": 3})


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "long", True])
def test_a_span_is_refused_with_limit_and_value(value):
    """Nothing is clamped."""
    with pytest.raises(ValueError, match="window_s must be a number > 0 s, or none, got ") as error:
        settings.checked("leasing", CHECKS, {"window_s": value})
    assert repr(value) in str(error.value)


def test_right_values_pass():
    """None means all; what was typed is read."""
    given = {"window_s": 30, "env": "CartPole-v1", "algo": "ppo"}
    assert settings.checked("x", CHECKS, given) == {"window_s": 30.0, "env": "CartPole-v1", "algo": "ppo"}
    assert settings.checked("x", CHECKS, {"window_s": None}) == {"window_s": None}
    assert settings.checked("x", CHECKS, {"window_s": "2.5", "env": "5"}) == {"window_s": 2.5, "env": "5"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"env": 3}, "env must be a text of one line"),
        ({"env": "a\nb"}, "env must be a text of one line"),
        ({"algo": "sac"}, "algo must be one of ppo, dqn, got 'sac'"),
    ],
)
def test_wrong_texts_and_choices_are_refused(given, said):
    """The sentence names the setting and the value."""
    with pytest.raises(ValueError, match=said):
        settings.checked("x", CHECKS, given)


class Thing:
    def __init__(self, registry):
        self.closed = False
        self.registry = registry

    def close(self):
        self.closed = True
        self.registry.forget(self)


def test_the_same_words_give_the_same_panel_until_it_is_closed():
    """Get or create; a closed one is made anew."""
    registry = Registry()
    first = registry.get("a", lambda: Thing(registry))
    assert registry.get("a", lambda: Thing(registry)) is first
    assert registry.get("b", lambda: Thing(registry)) is not first
    first.closed = True
    assert registry.get("a", lambda: Thing(registry)) is not first
    registry.close_all()
    assert len(registry) == 0
