"""Texts of planners: what is printed is read back, whatever the parameters; and settings as the machines judge them."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lease_indices import LeaseTable

from drlnb.planning.decisions import KINDS, kind_of
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.registry import Named, PlannerKind
from drlnb.planning.settings import SETTINGS, setting_problem, settings_problems
from drlnb.planning.warmup import WarmupMachine, WarmupSettings
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError, nearest
from tests.matches import like
from tests.strategies import fewer

words = st.text("abcxyz_.-", min_size=1, max_size=6)
names = st.text("abcdefgh", min_size=1, max_size=6)
VALUES = {int: st.integers(-(10**9), 10**9), float: st.floats(allow_nan=False), str: words}
params = st.dictionaries(names, st.sampled_from([int, float, str]), max_size=4)


class Made:
    """A planner that holds what it was given."""

    name = "made"

    def __init__(self, **given):
        self.given = given


def kind_with(name, wanted):
    kind = PlannerKind("adding", name, problem=lambda view, plan: "", recorded=lambda view, answer: None)
    kind.register(name, Made, wanted)
    return kind


# ------------------------------------------------------------------ texts
@given(names, params, st.data())
def test_what_is_printed_is_read_back(name, wanted, data):
    """In any order of the parameters; the planner gets each in its type, and is called by its whole text."""
    kind = kind_with(name, wanted)
    values = {key: data.draw(VALUES[of]) for key, of in wanted.items()}
    text = str(Named(name, values))
    assert kind.parse(text) == Named(name, values)
    assert str(kind.parse(text)) == text
    pairs = data.draw(st.permutations([f"{key}={value}" for key, value in values.items()]))
    planner = kind.build(f"{name}:{','.join(pairs)}" if pairs else name)
    assert planner.given == values
    assert {key: type(value) for key, value in planner.given.items()} == wanted
    assert planner.name == (text if values else "made")


@given(names, params.filter(bool), st.data())
def test_a_parameter_too_few_too_many_or_twice_is_named(name, wanted, data):
    """One line each, that names the planner and the parameter."""
    kind = kind_with(name, wanted)
    pairs = {key: f"{key}={data.draw(VALUES[of])}" for key, of in wanted.items()}
    key = data.draw(st.sampled_from(sorted(pairs)))
    few, twice = [pair for other, pair in pairs.items() if other != key], [*pairs.values(), pairs[key]]
    more = [*pairs.values(), "zzzz=1"]
    for given_, said in ((few, f"needs {key} ("), (twice, f"is given {key} twice"), (more, "got 'zzzz'")):
        with pytest.raises(ValueError, match=f"^adding planner {name} ") as refused:
            kind.parse(f"{name}:{','.join(given_)}" if given_ else name)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


@given(st.text(max_size=12))
def test_any_text_is_a_planner_or_one_clear_line(text):
    """For every decision; what is no planner's text holds itself and the decision in its complaint."""
    for decision, kind in KINDS.items():
        if text in kind.names:
            assert kind.build(text).name == str(kind.parse(text)) == text
        else:
            with pytest.raises(ValueError, match=f"^{decision} planner "):
                kind.parse(text)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_slip_of_a_letter_is_recognised(decision, data):
    """One letter that is missing: the right name is suggested, for decisions and for their planners."""
    for name, known in ((decision, KINDS), (data.draw(st.sampled_from(KINDS[decision].names)), KINDS[decision].names)):
        assume(len(name) > 4)
        at = data.draw(st.integers(1, len(name) - 1))
        slip = name[:at] + name[at + 1 :]
        assert nearest(slip, known) == f"; did you mean {name!r}?"
    with pytest.raises(ConfigError, match="unknown kind of planner"):
        kind_of(decision + "?")


# ------------------------------------------------------------------ settings, judged by those who hold them
odd = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 200), st.floats(), st.sampled_from(["", "fifo", "drr", "keep", "last"]),
)  # fmt: skip
#: Values that are right by themselves, and wrong beside some others.
near = st.sampled_from([0.5, 9, 11, 30])
times = st.sampled_from(["leasing.ttl_s", "leasing.holder_ttl_s", "leasing.renew_s"])
windows = st.sampled_from(["warmup.window", "warmup.filter_window", "warmup.min_rounds"])
leasing_keys = st.sampled_from([f"leasing.{name}" for name in LeasingSettings.declared()])
warmup_keys = st.sampled_from([f"warmup.{name}" for name in WarmupSettings.declared() if name != "collector_mode"])


@given(st.lists(st.tuples(leasing_keys, odd) | st.tuples(times, near), min_size=4, max_size=12))
def test_a_table_takes_what_is_said_to_be_right(changes):
    """One after the other: a value is refused exactly where the check of it says so, and then nothing changes."""
    table, in_force = LeaseTable(LeasingSettings(), epoch=1), {}
    for key, value in changes:
        problem, before = setting_problem(key, value, in_force=in_force), table.state.settings
        out = table.handle(SettingChanged(t=0.0, key=key, value=value, task=None))
        assert bool(problem) == (out != ()), f"{key} = {value!r}: {problem or 'right'}, and yet {out}"
        if problem:
            assert out == (like(RequestRefused, subject=key),)
            assert out[0].reason in problem
            assert table.state.settings == before
        else:
            in_force[key] = value
            assert table.state.settings == replace(before, **{key.partition(".")[2]: value})


@given(st.lists(st.tuples(warmup_keys, odd) | st.tuples(windows, near), min_size=4, max_size=12))
def test_warm_up_takes_what_is_said_to_be_right(changes):
    """The same of a task's own settings, which count from the next round on."""
    machine, in_force = WarmupMachine({"task": "a", "env_shares": [[0]]}), {}
    for key, value in changes:
        problem = setting_problem(key, value, in_force=in_force)
        out = machine.handle(SettingChanged(t=0.0, key=key, value=value, task="a"))
        assert bool(problem) == (out != ()), f"{key} = {value!r}: {problem or 'right'}, and yet {out}"
        if not problem:
            in_force[key] = value
            assert machine.state.changed[key.partition(".")[2]] == value


@given(st.dictionaries(leasing_keys | warmup_keys, odd, max_size=5))
def test_settings_together_are_those_that_could_be_built(changes):
    """No complaint exactly where both rooms' settings can be made of the values."""
    rooms = {"leasing": LeasingSettings, "warmup": WarmupSettings}
    problems, n = settings_problems(changes), 0
    for room, kind in rooms.items():
        values = {key.partition(".")[2]: value for key, value in changes.items() if key.startswith(f"{room}.")}
        if wrong := kind.problems(values):
            with pytest.raises(ConfigError) as refused:
                kind.from_mapping(values)
            assert refused.value.problems == tuple(wrong)
        assert all(any(said.endswith(text) for said in problems) for text in wrong)
        n += len(wrong)
    assert len(problems) == n


@pytest.mark.parametrize("kind", [LeasingSettings, WarmupSettings], ids=lambda kind: kind.ROOM)
def test_every_number_has_a_limit_below_which_it_is_refused(kind):
    """At the limit it is taken or refused alike by the class and by its mapping; nan never."""
    for name, setting in kind.declared().items():
        if isinstance(setting.default, bool) or not isinstance(setting.default, int | float):
            continue
        assert kind.problems({name: setting.default}) == []
        for wrong in (-1, math.nan, "1", None):
            (problem, *_) = kind.problems({name: wrong})
            assert problem.startswith(f"{name} must be ")
            assert problem.endswith(f"got {wrong!r}")
            with pytest.raises(ConfigError) as refused:
                kind(**{name: wrong})
            assert refused.value.problems == tuple(kind.problems({name: wrong}))


@fewer(3)
@given(st.sampled_from(sorted(SETTINGS)), odd)
def test_a_complaint_names_the_key(key, value):
    """And is one line, whatever the value is."""
    problem = setting_problem(key, value)
    assert "\n" not in problem
    assert problem == "" or key in problem or key.partition(".")[2] in problem or "planner must be" in problem
