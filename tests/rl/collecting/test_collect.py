"""Collectors: what a fragment holds, and that the split of environments changes nothing."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from drlnb.records.errors import EnvError
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector, split_envs


@pytest.fixture
def collector(request, make_spec):
    """Build collectors that are closed after the test."""

    def make(spec, indices=None):
        made = Collector(spec, env_indices=range(spec.n_envs) if indices is None else indices)
        request.addfinalizer(made.close)
        return made

    return make


def start(spec):
    return make_learner(spec).published()


@pytest.mark.thorough
def test_importing_the_collector_loads_no_torch():
    """A process that imports what a collector imports has neither torch nor yaml nor dask loaded."""
    code = (
        "import sys, drlnb.rl.collecting.collector, drlnb.rl.collecting.evaluation;"
        "print(*sorted({'torch', 'yaml', 'dask', 'distributed', 'plotly'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(("n", "k", "sizes"), [(8, 3, [3, 3, 2]), (4, 4, [1, 1, 1, 1]), (5, 1, [5])])
def test_shares_differ_by_at_most_one(n, k, sizes):
    """Environments are dealt in order, in near-equal shares that cover all of them once."""
    shares = split_envs(n, k)
    assert [len(share) for share in shares] == sizes
    assert [i for share in shares for i in share] == list(range(n))


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_split_over_collectors_changes_nothing(env, make_spec, collector):
    """1, 2 and 3 collectors of 5 environments give the same samples, bit for bit, over two rounds."""
    spec = make_spec(env, n_envs=5, normalize=True)
    parameters = start(spec)
    whole = collector(spec)
    expected = [whole.collect(parameters, version=r, round=r, n_steps=30) for r in range(2)]
    for n_collectors in (2, 3):
        parts = [collector(spec, share) for share in split_envs(5, n_collectors)]
        for number in range(2):
            found = [part.collect(parameters, version=number, round=number, n_steps=30) for part in parts]
            for name in ("obs", "action", "log_prob", "reward", "terminated", "truncated"):
                joined = np.concatenate([fragment.arrays[name] for fragment in found], axis=1)
                assert joined.tobytes() == expected[number].arrays[name].tobytes(), name
            for name in ("last_obs", "obs_moments", "return_moments"):
                joined = np.concatenate([fragment.arrays[name] for fragment in found])
                assert joined.tobytes() == expected[number].arrays[name].tobytes(), name


def test_scattered_environments_are_the_same_ones(make_spec, collector):
    """A collector of environments 1, 2 and 4 plays columns 1, 2 and 4 of the whole, bit for bit."""
    spec = make_spec(n_envs=5)
    parameters = start(spec)
    whole = collector(spec).collect(parameters, version=0, round=0, n_steps=20)
    part = collector(spec, [1, 2, 4]).collect(parameters, version=0, round=0, n_steps=20)
    for name in ("obs", "action", "log_prob"):
        assert part.arrays[name].tobytes() == whole.arrays[name][:, [1, 2, 4]].tobytes()
    assert part.header["env_indices"] == [1, 2, 4]


def test_observations_show_no_made_up_row(make_spec, collector):
    """Episodes of 3 steps: observations count 0 1 2 0 1 2 0, so the ending step is also the resetting one."""
    spec = make_spec("rl/Clock-v0", n_envs=1)
    found = collector(spec).collect(start(spec), version=0, round=0, n_steps=7)
    assert found.arrays["obs"][:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert found.arrays["terminated"][:, 0].tolist() == [False, False, True] * 2 + [False]
    assert found.arrays["last_obs"].tolist() == [[1.0]]
    assert found.arrays["final_obs"].shape == (0, 1)
    assert found.header["episodes"] == [[3.0, 3], [3.0, 3]]
    assert (found.header["n_samples"], found.header["n_envs"], found.header["env_indices"]) == (7, 1, [0])


def test_a_truncated_episodes_last_observation_is_kept(make_spec, collector):
    """At a time limit after 3 steps, final_obs is 3 (not the reset's 0), at its step and column."""
    spec = make_spec("rl/Cut-v0", n_envs=2)
    arrays = collector(spec).collect(start(spec), version=0, round=0, n_steps=4).arrays
    assert arrays["truncated"].tolist() == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert arrays["final_obs"].tolist() == [[3.0], [3.0]]
    assert arrays["final_at"].tolist() == [[2, 0], [2, 1]]


@pytest.mark.parametrize("env", ["rl/ResetsItself-v0", "rl/ResetsItselfOld-v0"])
def test_an_environment_that_resets_itself_gives_what_one_does_that_waits(env, make_spec, collector):
    """The last observation is the one in the info, 3, not the next episode's first one; all else is the same."""
    arrays, waits = (
        collector(spec).collect(start(spec), version=0, round=0, n_steps=7).arrays
        for spec in (make_spec(env, n_envs=2), make_spec("rl/Cut-v0", n_envs=2))
    )
    assert arrays["final_obs"].tolist() == [[3.0]] * 4
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: array.tolist() for name, array in waits.items()
    }


def test_an_own_reset_below_a_wrapper_is_refused(make_spec, collector):
    """The observation in the info has not come through the wrapper: it is none to learn from."""
    spec = make_spec("rl/Doubled-v0", n_envs=1)
    with pytest.raises(EnvError, match=r"environment 0, step 2 of round 0: it resets itself .* without its own reset"):
        collector(spec).collect(start(spec), version=0, round=0, n_steps=4)


def test_a_true_end_wins_over_a_time_limit(make_spec, collector):
    """With both flags in one step the episode counts as terminated and nothing is kept for bootstrapping."""
    spec = make_spec("rl/Both-v0", n_envs=1)
    arrays = collector(spec).collect(start(spec), version=0, round=0, n_steps=3).arrays
    assert (arrays["terminated"].sum(), arrays["truncated"].sum(), len(arrays["final_obs"])) == (1, 0, 0)


def test_discounted_returns_restart_after_an_end(make_spec, collector):
    """With gamma .5, reward 1, episodes of 3: R = 1, 1.5, 1.75, 1; count 4, mean 1.3125, M2 = .421875."""
    spec = make_spec("rl/Clock-v0", n_envs=1, gamma=0.5, normalize=True)
    arrays = collector(spec).collect(start(spec), version=0, round=0, n_steps=4).arrays
    assert arrays["return_moments"].tolist() == [[4.0, 1.3125, 0.421875]]
    assert arrays["obs_moments"].tolist() == [[4.0, 0.75, 2.75]]


def test_what_is_seen_is_normalised_from_the_first_step_on(make_spec, collector):
    """The clock shows 0, 1, 2, 0, 1 and R is 1, 1.5, 1.75, 1 (gamma .5): each by what was there until then.

    Of 0, 1: mean .5, deviation .5.  Of 0, 1, 2: 1 and .8165.  Of 0, 1, 2, 0: .75 and .8292; of all five: .8 and .7483.
    Deviations of R: .0141, .25, .3118, .3248.  In the second round the published statistics would come first.
    """
    spec = make_spec("rl/Clock-v0", n_envs=1, gamma=0.5, normalize=True)
    arrays = collector(spec).collect(start(spec), version=0, round=0, n_steps=4).arrays
    np.testing.assert_allclose(arrays["obs"][:, 0, 0], [0.0, 1.0, 1.2247, -0.9045], rtol=1e-3)
    np.testing.assert_allclose(arrays["last_obs"], [[0.2673]], rtol=1e-3)
    np.testing.assert_allclose(arrays["reward"][:, 0], [10.0, 4.0, 3.2071, 3.0792], rtol=3e-3)
    assert arrays["obs"].dtype == arrays["reward"].dtype == np.float32


def test_the_last_observation_of_a_time_limit_is_seen_as_the_others(make_spec, collector):
    """Cut after 3 steps the clock shows 3, and starts at 0: by the statistics of 0, 1, 2, 0 that is 2.25 / .8292."""
    spec = make_spec("rl/Cut-v0", n_envs=2, normalize={"norm_obs": True, "norm_reward": False})
    arrays = collector(spec).collect(start(spec), version=0, round=0, n_steps=4).arrays
    np.testing.assert_allclose(arrays["final_obs"], [[2.7136], [2.7136]], rtol=1e-3)
    assert arrays["reward"].tolist() == [[1.0, 1.0]] * 4


def test_unfinished_episodes_go_on_in_the_next_round(make_spec, collector):
    """Two rounds of 2 steps hold the same steps as one of 4; the episode's length counts across the border."""
    spec = make_spec("rl/Clock-v0", n_envs=1)
    made = collector(spec)
    first, second = (made.collect(start(spec), version=r, round=r, n_steps=2) for r in range(2))
    assert second.arrays["obs"][:, 0, 0].tolist() == [2, 0]
    assert (first.header["episodes"], second.header["episodes"]) == ([], [[3.0, 3]])


def test_box_actions_are_sent_unclipped_and_played_clipped(make_spec, collector):
    """Pendulum's torque limit is 2: with noise of deviation e^3 the fragment holds larger actions, and they play."""
    spec = make_spec("Pendulum-v1", policy_kwargs={"net_arch": [8], "log_std_init": 3.0})
    found = collector(spec).collect(start(spec), version=0, round=0, n_steps=10)
    assert np.abs(found.arrays["action"]).max() > 2.0
    assert found.arrays["action"].shape == (10, 4, 1)


def test_a_nan_reward_names_environment_and_step(make_spec, collector):
    """A reward that is not a number stops the collector with step and column."""
    spec = make_spec("rl/Clock-v0", n_envs=2)
    bad = replace(spec, env="rl/BadReward-v0")
    with pytest.raises(
        EnvError, match=r"rl/BadReward-v0, environment 0, step 1 of round 0: the reward is not finite: nan"
    ):
        collector(bad).collect(start(spec), version=0, round=0, n_steps=3)


def test_parameters_of_another_network_are_refused(make_spec, collector):
    """A buffer published for another width raises, before any environment steps."""
    other = start(make_spec(policy_kwargs={"net_arch": [8, 9]}))
    with pytest.raises(ValueError, match="parameters"):
        collector(make_spec()).collect(other, version=0, round=0, n_steps=1)


def test_a_fingerprint_of_the_same_size_is_refused(make_spec, collector):
    """Another activation has the same size but another fingerprint: refused too."""
    other = start(make_spec(policy_kwargs={"net_arch": [8, 8], "activation_fn": "ReLU"}))
    with pytest.raises(ValueError, match="parameters have layout"):
        collector(make_spec()).collect(other, version=0, round=0, n_steps=1)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_restored_collector_goes_on_bit_for_bit(env, make_spec, collector):
    """State taken after a round, restored under another split: the next round is the same, no episode is lost."""
    spec = make_spec(env, normalize=True)
    parameters = start(spec)
    whole = collector(spec)
    whole.collect(parameters, version=0, round=0, n_steps=25)
    state = whole.state()
    expected = whole.collect(parameters, version=1, round=1, n_steps=25)
    parts = [collector(spec, share) for share in split_envs(4, 2)]
    assert [part.restore(state) for part in parts] == [0, 0]
    found = [part.collect(parameters, version=1, round=1, n_steps=25) for part in parts]
    for name in ("obs", "action", "log_prob", "reward"):
        joined = np.concatenate([fragment.arrays[name] for fragment in found], axis=1)
        assert joined.tobytes() == expected.arrays[name].tobytes()
    episodes = sorted(episode for fragment in found for episode in fragment.header["episodes"])
    assert episodes == sorted(expected.header["episodes"])


@pytest.mark.parametrize("given", [{}, {"normalize": True}])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_an_old_state_and_the_actions_since_go_on_bit_for_bit(env, given, make_spec, collector):
    """Environments follow what was done in them since their state was taken, whatever parameters did it."""
    spec = make_spec(env, **given)
    parameters, others = start(spec), start(make_spec(env, seed=1, **given))
    whole = collector(spec)
    whole.collect(parameters, version=0, round=0, n_steps=25)
    state, actions = whole.state(), []
    for round_ in (1, 2):
        made = whole.collect([parameters, others][round_ % 2], version=round_, round=round_, n_steps=7)
        actions.append(made.arrays["action"])
    expected = whole.collect(parameters, version=3, round=3, n_steps=25)
    again = collector(spec)
    assert again.restore({**state, "actions": actions}) == 0
    found = again.collect(parameters, version=3, round=3, n_steps=25)
    for name in expected.arrays:
        assert found.arrays[name].tobytes() == expected.arrays[name].tobytes(), name
    assert found.header["episodes"] == expected.header["episodes"]
    rows = [[{**row, "snapshot": b""} for row in made.state()["envs"].values()] for made in (again, whole)]
    assert rows[0] == rows[1]


def test_an_environment_that_cannot_be_frozen_is_counted_lost(make_spec, collector):
    """An EzPickle environment carries no snapshot; restoring says that both episodes are lost and starts new ones."""
    spec = make_spec("rl/Forgetful-v0", n_envs=2)
    made = collector(spec)
    made.collect(start(spec), version=0, round=0, n_steps=5)
    state = made.state()
    assert [entry["snapshot"] for entry in state["envs"].values()] == [None, None]
    other = collector(spec)
    assert other.restore(state) == 2
    assert other.collect(start(spec), version=1, round=1, n_steps=1).arrays["obs"][0].tolist() == [[0.0], [0.0]]


def test_a_snapshot_that_cannot_be_used_here_loses_its_episode_and_not_the_run(make_spec, collector):
    """Of 4 environments one was saved by another version of its code, one is no snapshot at all; the others go on."""
    spec = make_spec()
    made = collector(spec)
    made.collect(start(spec), version=0, round=0, n_steps=5)
    state = made.state()
    wanted = [made.state()["envs"][str(i)]["obs"] for i in (1, 2)]
    state["envs"]["0"]["snapshot"] = b"cno_such_module\nThing\n."
    state["envs"]["3"]["snapshot"] = b"torn"
    other = collector(spec)
    assert other.restore(state) == 2
    assert [other.state()["envs"][str(i)]["obs"] for i in (1, 2)] == wanted
    assert other.state()["envs"]["0"]["length"] == 0


def test_a_state_without_my_environment_is_refused(make_spec, collector):
    """A collector asks for all of its environments."""
    spec = make_spec()
    state = collector(spec, [0, 1]).state()
    with pytest.raises(ValueError, match=r"lacks environments \[2\]"):
        collector(spec, [1, 2]).restore(state)


@pytest.mark.parametrize("indices", [[], [1, 0], [0, 0], [4], [-1]])
def test_wrong_environment_indices_are_refused(indices, make_spec):
    """Indices must ascend within the task's number of environments."""
    with pytest.raises(ValueError, match=r"env_indices must ascend within \[0, 4\)"):
        Collector(make_spec(), env_indices=indices)


def test_seeds_differ_between_environments_and_tasks(make_spec, collector):
    """No two environments start equal, neither do seeds 5 and 6: reset seeds are not seed + i."""
    starts = [collector(make_spec(seed=seed)).collect(start(make_spec(seed=seed)), version=0, round=0, n_steps=1)
              for seed in (5, 6)]  # fmt: skip
    rows = np.concatenate([fragment.arrays["obs"][0] for fragment in starts])
    assert len(np.unique(rows, axis=0)) == 8


def test_global_random_state_is_neither_used_nor_touched(make_spec, collector):
    """With numpy's global generator poisoned the fragment is the same, and the poison stays where it was."""
    spec = make_spec()
    parameters = start(spec)
    first = collector(spec).collect(parameters, version=0, round=0, n_steps=10)
    np.random.seed(1)  # noqa: NPY002 - the poison
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    second = collector(spec).collect(parameters, version=0, round=0, n_steps=10)
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002
    assert first.arrays["obs"].tobytes() == second.arrays["obs"].tobytes()
