"""Remember transitions in a ring per environment: each observation once, exact over every cut.

The observation after a step is the next row of the same ring; what follows the newest row is kept beside it, so nothing
is read across the write head.  Where the next row is not what the step led to (a time limit, an environment that was
started anew without an end) the observation is set aside.  A true end is the only one that stops the
bootstrap.

All minibatches of a round are drawn as one block, from the counters (seed, REPLAY, round): neither the order in which
fragments arrive nor the split of the environments over collectors enters.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from drlnb.records.spec import RlWork
from drlnb.rl.fragments import Fragment
from drlnb.rl.seeding import REPLAY, generator
from drlnb.rl.settings.dqn import DqnSettings

__all__ = ["MAX_SAVED_BYTES", "Replay", "ReplayRing"]

#: A larger ring is not saved with a checkpoint; it is filled again after a resume.
MAX_SAVED_BYTES = 1 << 30


class ReplayRing:
    """The latest transitions of each environment of a task; numpy only.

    Parameters
    ----------
    capacity
        Transitions in all; each environment keeps ``max(capacity // n_envs, 1)``, as Stable-Baselines3 has it.
    n_envs
        Environments of the task.
    obs_shape, obs_dtype
        Of one observation, as the environment returns it.
    """

    def __init__(self, capacity: int, n_envs: int, obs_shape: Sequence[int], obs_dtype: np.dtype | str) -> None:
        self.n_rows, self.n_envs = max(capacity // n_envs, 1), n_envs
        shape = (self.n_rows, n_envs)
        #: By name; `cut`: whether what followed a row is set aside, else it is the next row; `made`: the global vector
        #: step at which a row was made: its age is a difference of these.
        self._columns = {  # pages of these that nothing was written to yet cost no memory
            "obs": np.zeros((*shape, *obs_shape), np.dtype(obs_dtype)),
            "action": np.zeros(shape, np.int64),
            "reward": np.zeros(shape, np.float32),
            "terminated": np.zeros(shape, np.bool_),
            "cut": np.zeros(shape, np.bool_),
            "made": np.zeros(shape, np.int64),
        }
        self._obs, self._cut = self._columns["obs"], self._columns["cut"]
        #: What followed each environment's newest row.
        self._last = np.zeros((n_envs, *obs_shape), self._obs.dtype)
        #: Transitions that each environment has ever put in.
        self._put = np.zeros(n_envs, np.int64)
        #: (row, environment) -> what followed, set aside.
        self._aside: dict[tuple[int, int], np.ndarray] = {}

    # ---------------------------------------------------------------------------------------------- what it holds

    @property
    def size(self) -> int:
        """Transitions that can be drawn."""
        return int(np.minimum(self._put, self.n_rows).sum())

    @property
    def n_seen(self) -> int:
        """Transitions put in since the ring was empty."""
        return int(self._put.sum())

    @property
    def n_bytes(self) -> int:
        """Bytes of :meth:`state`, but for its header."""
        filled = min(int(self._put.max()), self.n_rows)
        row = sum(array.nbytes for array in self._columns.values()) // self.n_rows
        return filled * row + self._last.nbytes + self._put.nbytes + len(self._aside) * self._last[0].nbytes

    # ---------------------------------------------------------------------------------------------- in

    def add(self, fragment: Fragment, *, first_step: int) -> None:
        """Put one fragment in; the fragments of one environment must come in the order of time.

        Parameters
        ----------
        fragment
            Of some environments; its rewards are taken as they are.
        first_step
            Vector steps that each environment had made before it.

        Raises
        ------
        ValueError
            If an environment is not one of the ring's.
        """
        arrays = fragment.arrays
        finals: dict[int, dict[int, np.ndarray]] = {}
        for (t, column), obs in zip(arrays["final_at"].tolist(), arrays["final_obs"], strict=True):
            finals.setdefault(column, {})[t] = obs
        for column, env in enumerate(int(i) for i in fragment.header["env_indices"]):
            if not 0 <= env < self.n_envs:
                raise ValueError(f"the ring holds environments 0 to {self.n_envs - 1}, got {env}")
            self._add_column(env, arrays, column, finals.get(column, {}), first_step)

    def _add_column(
        self, env: int, arrays: Mapping[str, np.ndarray], column: int, finals: Mapping[int, np.ndarray], first_step: int
    ) -> None:
        obs = arrays["obs"][:, column]
        self._mend(env, obs[0])
        skipped = max(len(obs) - self.n_rows, 0)  # a fragment longer than the ring: its first rows are gone already
        put = int(self._put[env]) + skipped
        rows = (put + np.arange(len(obs) - skipped)) % self.n_rows
        for row in rows[self._cut[rows, env]].tolist():
            del self._aside[row, env]
        for name in ("obs", "action", "reward", "terminated"):
            self._columns[name][rows, env] = arrays[name][skipped:, column]
        self._columns["made"][rows, env] = first_step + skipped + np.arange(len(rows))
        self._cut[rows, env] = False
        for t, final in finals.items():
            if t >= skipped:
                self._set_aside(int(rows[t - skipped]), env, final)
        self._last[env] = arrays["last_obs"][column]
        self._put[env] = put + len(rows)

    def _mend(self, env: int, first: np.ndarray) -> None:
        """Move what followed the newest row aside if the environment goes on from elsewhere.

        A collector that was started anew without a snapshot begins a new episode, and no end shows it.
        """
        newest = (int(self._put[env]) - 1) % self.n_rows
        goes_on = not (self._cut[newest, env] or self._columns["terminated"][newest, env])
        if self._put[env] and goes_on and not np.array_equal(self._last[env], first):
            self._set_aside(newest, env, self._last[env])

    def _set_aside(self, row: int, env: int, obs: np.ndarray) -> None:
        self._cut[row, env], self._aside[row, env] = True, np.array(obs)

    # ---------------------------------------------------------------------------------------------- out

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return transitions drawn uniformly, with replacement.

        Parameters
        ----------
        shape
            Leading shape of the result, for example ``(gradient steps, batch size)``.
        rng
            Keyed by the round.

        Returns
        -------
        dict
            ``obs``, ``next_obs`` (``(*shape, *obs)``), ``action`` int64, ``reward`` float32, ``terminated`` bool, and
            ``made`` int64, the vector step that made each row.

        Raises
        ------
        ValueError
            If the ring is empty.
        """
        sizes = np.minimum(self._put, self.n_rows)
        bounds = np.cumsum(sizes)
        if not bounds[-1]:
            raise ValueError("the ring is empty: nothing can be drawn")
        drawn = rng.integers(0, bounds[-1], shape)
        envs = np.searchsorted(bounds, drawn, side="right")
        rows = (self._put[envs] - 1 - (drawn - (bounds - sizes)[envs])) % self.n_rows  # counted from the newest
        return self._gather(rows, envs)

    def _gather(self, rows: np.ndarray, envs: np.ndarray) -> dict[str, np.ndarray]:
        following = self._obs[(rows + 1) % self.n_rows, envs]
        newest = rows == (self._put[envs] - 1) % self.n_rows
        following[newest] = self._last[envs[newest]]
        for at in zip(*np.nonzero(self._cut[rows, envs]), strict=True):
            following[at] = self._aside[int(rows[at]), int(envs[at])]
        drawn = {name: array[rows, envs] for name, array in self._columns.items() if name != "cut"}
        return {**drawn, "next_obs": following}

    # ---------------------------------------------------------------------------------------------- checkpoints

    def state(self, since: Sequence[int] | None = None) -> Fragment:
        """Return everything as flat arrays; rows that were never written are left out.

        Parameters
        ----------
        since
            Array ``put`` of an earlier state: what has come or changed since then is enough, and `part` is true in the
            header, unless that is as much as everything.
        """
        filled = min(int(self._put.max()), self.n_rows)
        # What followed the newest row of that time may have been set aside since.
        n = filled if since is None else min(filled, int((self._put - np.array(since)).max()) + 1)
        arrays = {name: array[:filled] for name, array in self._columns.items()}
        aside, first = self._aside, np.zeros_like(self._put)
        if n < filled:
            first = self._put - n
            rows, envs = self._places(first, n)
            arrays = {name: array[rows, envs] for name, array in self._columns.items()}
            aside = {at: obs for at, obs in aside.items() if (self._put[at[1]] - 1 - at[0]) % self.n_rows < n}
        arrays |= {"first": first, "last": self._last, "put": self._put}
        arrays["aside_at"] = np.array([*aside], np.int64).reshape(-1, 2)
        arrays["aside"] = np.array([*aside.values()], self._obs.dtype).reshape(-1, *self._obs.shape[2:])
        return Fragment({"n_rows": self.n_rows, "n_envs": self.n_envs, "part": n < filled}, arrays)

    def _places(self, first: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return row and environment of `n` transitions of each environment from its `first` one on."""
        return (first + np.arange(n)[:, None]) % self.n_rows, np.arange(self.n_envs)

    def restore(self, state: Fragment) -> None:
        """Load the state of another ring, or a part of it over those before it.

        Raises
        ------
        ValueError
            If that ring had another size or held other observations.
        """
        theirs, mine = (state.header["n_rows"], state.header["n_envs"]), (self.n_rows, self.n_envs)
        arrays = state.arrays
        if theirs != mine or arrays["obs"].dtype != self._obs.dtype or arrays["obs"].shape[1:] != self._obs.shape[1:]:
            has = f"{theirs} rows and environments of {arrays['obs'].shape[2:]} {arrays['obs'].dtype}"
            needed = f"{mine} of {self._obs.shape[2:]} {self._obs.dtype}"
            raise ValueError(f"the ring's state has {has}, this task needs {needed}")
        rows, envs = self._places(arrays["first"], len(arrays["made"]))
        for name, array in self._columns.items():
            array[rows, envs] = arrays[name]
        self._last[:], self._put[:] = arrays["last"], arrays["put"]
        places = arrays["aside_at"].tolist()
        self._aside = {at: obs for at, obs in self._aside.items() if self._cut[at]}
        self._aside |= {(row, env): obs for (row, env), obs in zip(places, np.array(arrays["aside"]), strict=True)}


class Replay:
    """The memory of one off-policy task, whose spaces are filled in: fragments in, a block of minibatches out."""

    def __init__(self, spec: RlWork) -> None:
        self.spec = spec
        self.settings = DqnSettings.from_mapping(spec.hyperparameters)
        space = spec.observation_space or {}
        self.ring = ReplayRing(self.settings.buffer_size, spec.n_envs, space["shape"], space["dtype"])
        #: Vector steps up to which the target network's updates have been handed to the learner.
        self._target_step = 0

    def take(self, fragments: Sequence[Fragment], *, round: int, n_timesteps: int) -> Fragment:
        """Put a round's fragments in, in the order of their environments, and draw all its minibatches.

        Parameters
        ----------
        fragments
            One of each collector, in any order.
        round
            Number of the round; part of the draw's key.
        n_timesteps
            Environment steps of the task before this round.

        Returns
        -------
        Fragment
            The header has ``n_gradient_steps`` (0: nothing is learnt yet, there are no arrays), ``n_target_updates``
            since the last round that learnt, ``n_timesteps`` after the round and ``metrics``; the arrays have the
            shape ``(n_gradient_steps, batch_size, ...)``: ``obs``, ``next_obs``, ``action``, ``reward``,
            ``terminated``.
        """
        n_envs, settings = self.spec.n_envs, self.settings
        for fragment in sorted(fragments, key=lambda fragment: fragment.header["env_indices"][0]):
            self.ring.add(fragment, first_step=n_timesteps // n_envs)
        n_new = sum(int(fragment.header["n_samples"]) for fragment in fragments)
        done = n_timesteps + n_new
        n_steps = settings.n_gradient_steps(n_new) if self.ring.n_seen > settings.learning_starts else 0
        metrics = {
            "rollout/exploration_rate": settings.epsilon(np.array(done), self.spec.total_timesteps).item(),
            "replay/size": self.ring.size,
            "train/replay_ratio": n_steps / n_new,
        }
        header = {"task": self.spec.name, "round": round, "n_timesteps": done, "n_gradient_steps": n_steps}
        header |= {"n_samples": n_steps * settings.batch_size, "n_target_updates": 0, "metrics": metrics}
        if not n_steps:
            return Fragment(header, {})
        header["n_target_updates"] = settings.n_target_updates(self._target_step, done // n_envs, n_envs)
        self._target_step = done // n_envs
        block = self.ring.draw((n_steps, settings.batch_size), generator(self.spec.seed, REPLAY, round))
        metrics["replay/age_mean"] = float(done // n_envs - 1 - block.pop("made").mean())
        return Fragment(header, block)

    def state(self, since: Sequence[int] | None = None) -> Fragment:
        """Return all that is needed to go on exactly; a ring of more than 1 GiB is left out, see `n_bytes` of it.

        `since`: as of :meth:`ReplayRing.state`.
        """
        if self.ring.n_bytes > MAX_SAVED_BYTES:
            return Fragment({"target_step": self._target_step, "left_out_bytes": self.ring.n_bytes}, {})
        saved = self.ring.state(since)
        return Fragment({**saved.header, "target_step": self._target_step}, saved.arrays)

    def restore(self, state: Fragment) -> int:
        """Go on from :meth:`state`.

        Returns
        -------
        int
            Bytes of experience that were not saved and must be made again, 0 if all is there.

        Raises
        ------
        ValueError
            If the state is that of another task.
        """
        self._target_step = int(state.header["target_step"])
        if "left_out_bytes" in state.header:
            return int(state.header["left_out_bytes"])
        self.ring.restore(state)
        return 0
