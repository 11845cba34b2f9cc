"""Collect experience: a few environments, a policy in numpy, and one loop.

Environments are stepped by a plain loop (a quarter faster than gymnasium's ``SyncVectorEnv``) with the meaning of its
``SAME_STEP`` autoreset: the step that ends an episode also resets, the last observation of a truncated episode is kept
apart, no row is made up.

The policy's forward pass always has as many rows as the *task* has environments, each environment at its own row.
A BLAS product of three rows may differ in the last bit from the same rows among eight; so the same shape everywhere
makes fragments equal, bit for bit, however the environments are split over collectors.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import gymnasium
import numpy as np

from drlnb.records.base import Facts
from drlnb.records.episodes import success
from drlnb.records.errors import EnvError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.collecting.gathering import Run, Sight, Stepping, Told, drained, last_observation
from drlnb.rl.envs.make import training_env
from drlnb.rl.envs.masks import MaskSource, masked, uses_masks
from drlnb.rl.envs.snapshots import freeze, restorable, thaw
from drlnb.rl.envs.wrappers import tally_of
from drlnb.rl.fragments import Fragment
from drlnb.rl.normalise import Moments, continued_var, scale
from drlnb.rl.rows import fitting, form_of, scalar
from drlnb.rl.schedules import progress_remaining
from drlnb.rl.seeding import ACT, ENV, NoiseStreams, reset_seed

__all__ = ["Collector", "split_envs"]


def split_envs(n_envs: int, n_collectors: int) -> list[range]:
    """Return each collector's environment indices: contiguous, sizes differ by at most 1, larger ones first.

    Examples
    --------
    >>> split_envs(8, 3)
    [range(0, 3), range(3, 6), range(6, 8)]
    """
    size, extra = divmod(n_envs, n_collectors)
    starts = [i * size + min(i, extra) for i in range(n_collectors + 1)]
    return [range(*ends) for ends in pairwise(starts)]


class Collector:
    """Some of a task's environments, stepped by the published policy.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    env_indices
        Which of the task's environments live here, in ascending order, each in ``[0, n_envs)``.

    Raises
    ------
    ValueError
        If an index is out of range or the indices do not ascend.
    EnvError
        If an environment cannot be made or reset.
    """

    def __init__(self, spec: RlWork, *, env_indices: Sequence[int]) -> None:
        indices = tuple(int(i) for i in env_indices)
        if not indices or list(indices) != sorted(set(indices)) or indices[0] < 0 or indices[-1] >= spec.n_envs:
            raise ValueError(f"env_indices must ascend within [0, {spec.n_envs}), got {indices}")
        self.spec = spec
        self.env_indices = indices
        self.actor = make_actor(spec)
        self._gamma = float(spec.hyperparameters.get("gamma", 0.99))
        self._noise = NoiseStreams(spec.seed, ACT, indices)
        #: Whether its environments can be frozen and thawed exactly.
        self.restorable = restorable(spec, index=indices[0]) if spec.can_snapshot is None else spec.can_snapshot
        self._round = 0
        n = len(indices)
        adjacent = indices[-1] - indices[0] + 1 == n
        self._rows: slice | list[int] = slice(indices[0], indices[-1] + 1) if adjacent else list(indices)
        space = spec.observation_space or {}
        self._current = np.zeros((spec.n_envs, *space["shape"]), np.dtype(space["dtype"]))  # a row per env of the task
        self._sight = Sight(self._current, self._rows, form_of(space), normalised=self.actor.layout.norm_obs)
        self._discounted, self._returns, self._lengths = [0.0] * n, [0.0] * n, [0] * n
        #: Which actions are allowed, a row per environment of the task; None: all, always.
        self._masks = np.ones((spec.n_envs, self.actor.head.width), np.bool_) if uses_masks(spec) else None
        #: What each environment has just answered, where somebody wants to know; None: nobody does.
        self.told: list[Told] | None = None
        #: Its environments, in the order of their indices.
        self.envs: list[gymnasium.Env] = [training_env(spec, index) for index in indices]
        self._mask_of = [MaskSource(env, self.actor.head) for env in self.envs]
        for column, index in enumerate(indices):
            self._start(column, reset_seed(spec.seed, ENV, index))

    def _start(self, column: int, seed: int) -> None:
        try:
            obs, info = self.envs[column].reset(seed=seed)
            self._current[self.env_indices[column]] = fitting(obs, self._current.shape[1:], self._current.dtype)
            if self._masks is not None:
                self._masks[self.env_indices[column]] = self._mask_of[column](info)
        except Exception as error:
            raise EnvError(f"{self._at(column, 'reset')}: {_broken(None, error)}") from error
        self._discounted[column], self._returns[column], self._lengths[column] = 0.0, 0.0, 0

    def _at(self, column: int, when: str) -> str:
        return f"{self.spec.env}, environment {self.env_indices[column]}, {when}"

    def collect(
        self,
        parameters: np.ndarray,
        *,
        version: int,
        round: int,
        n_steps: int,
        n_timesteps: int | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> Fragment:
        """Step every environment `n_steps` times with one version of the policy, as :meth:`steps` does step by step.

        Parameters
        ----------
        parameters
            What the learner published; uint8, shape ``(published_bytes,)``.  Read until the round is over.
        version
            Number of the published version; rides in the header.
        round
            Number of the round, at least 0; part of the noise's key.
        n_steps
            Steps per environment, at least 1.
        n_timesteps
            Environment steps of the task before this round; acting that depends on progress reads it.  None: rounds
            count from 1 and all had `n_steps`.
        on_step
            Called after each step of all environments: a sign of life.

        Returns
        -------
        Fragment
            ``n_steps`` x environments samples, in time order per environment.

        Raises
        ------
        EnvError
            If an environment raises, breaks gymnasium's contract (five values per step, observations of the space's
            shape and kind), returns an observation or reward that is not finite, or gives no action mask where the
            task needs one; it is named with its step.
        ValueError
            If the parameters belong to another layout.
        """
        steps = self.steps(parameters, version=version, round=round, n_steps=n_steps, n_timesteps=n_timesteps)
        return drained(steps, on_step)

    def steps(
        self, parameters: np.ndarray, *, version: int, round: int, n_steps: int, n_timesteps: int | None = None
    ) -> Stepping:
        """Step as :meth:`collect` does, yield after each step of all environments, and return the fragment."""
        started = time.perf_counter()
        self.actor.load(parameters)
        done = max(round - 1, 0) * n_steps * self.spec.n_envs if n_timesteps is None else n_timesteps
        self.actor.at(progress_remaining(done, self.spec.total_timesteps), round)
        hold, noise = self._noises(round, n_steps)
        self._sight.begin(self.actor.statistics[0])
        run = self._run(round, n_steps)
        for t in range(n_steps):
            self._step(t, run, noise[t // hold])
            yield
        arrays = self._arrays(run)
        self._check_finite(arrays, round)
        self._round = round + 1
        return Fragment(self._header(run, version, time.perf_counter() - started), arrays)

    def _run(self, round: int, n_steps: int) -> Run:
        masked = self._masks is not None
        return Run(round, n_steps, len(self.env_indices), self._sight, self.actor.head, masked=masked)

    def _follow(self, round: int, actions: np.ndarray) -> None:
        """Repeat the actions ``(T, n)`` of a round: the environments are then where it left them."""
        run = self._run(round, len(actions))
        for t, taken in enumerate(actions):
            run.begin_step(t)
            self._step_envs(t, run, self.actor.to_env(taken))
        self._episodes(run)
        self._round = round + 1

    def _header(self, run: Run, version: int, collect_s: float) -> Facts:
        n_steps, n = run.terminated.shape
        return {
            "task": self.spec.name,
            "round": run.round,
            "version": version,
            "env_indices": list(self.env_indices),
            "n_envs": n,
            "n_steps": n_steps,
            "n_samples": n_steps * n,
            "collect_s": collect_s,
            "episodes": self._episodes(run),
        }

    def _noises(self, round: int, n_steps: int) -> tuple[int, np.ndarray]:
        """Return for how many steps each draw holds, and the round's acting noise.

        It is float32, of the shape ``(draws, environments of the task, noise_width)``.
        """
        head, hold = self.actor.head, 1
        if head.kind == "sde":  # drawn at the round's start, and every so many steps
            every = int(self.spec.hyperparameters.get("sde_sample_freq", -1))
            hold = every if every > 0 else n_steps
        shape = -(-n_steps // hold), head.noise_width
        noise = np.zeros((shape[0], self.spec.n_envs, shape[1]), np.float32)
        for column, index in enumerate(self.env_indices):
            noise[:, index] = self._noise.block(column, round, shape, noise=head.noise)
        return hold, noise

    def _episodes(self, run: Run) -> list[list[float]]:
        """Return what :data:`drlnb.records.episodes.Episode` holds; with wrappers by the tallies beneath them."""
        if not self.spec.env_wrappers:
            return run.episodes
        tallies = [tally for env in self.envs if (tally := tally_of(env)) is not None]
        return [list(episode) for tally in tallies for episode in tally.drain()]

    def _step(self, t: int, run: Run, noise: np.ndarray) -> None:
        masks = self._masks
        run.begin_step(t)
        outputs = self.actor.respond(self._sight.seen)
        if masks is not None:
            run.masks[t], outputs = masks, masked(outputs, masks)
        run.outputs[t] = outputs
        actions = run.actions[t] = self.actor.choose(outputs, noise)
        self._step_envs(t, run, self.actor.to_env(actions[self._rows]))

    def _step_envs(self, t: int, run: Run, taken: np.ndarray | list[int]) -> None:
        current, discounted, returns, lengths = self._current, self._discounted, self._returns, self._lengths
        gamma, indices, masks, column = self._gamma, self.env_indices, self._masks, 0
        shape, dtype, answer, told = current.shape[1:], current.dtype, None, self.told
        try:
            for column, env in enumerate(self.envs):
                answer = env.step(taken[column])
                obs, raw, terminated, truncated, info = answer
                reward = raw if type(raw) is float else scalar(raw)
                run.rewards.append(reward)
                returns[column] += reward
                lengths[column] += 1
                discounted[column] = gamma * discounted[column] + reward
                run.discounted.append(discounted[column])
                if getattr(obs, "shape", None) != shape or obs.dtype != dtype:
                    obs = fitting(obs, shape, dtype)
                if told is not None:
                    told.append(Told(reward, terminated, truncated, info, obs.copy(), returns[column], lengths[column]))
                if terminated or truncated:
                    obs = last_observation(env, obs, info)
                    run.end(t, column, terminated, obs, [returns[column], lengths[column], *success(info)])
                    obs, info = env.reset()
                    obs = fitting(obs, shape, dtype)
                    discounted[column], returns[column], lengths[column] = 0.0, 0.0, 0
                current[indices[column]] = obs
                if masks is not None:
                    masks[indices[column]] = self._mask_of[column](info)
        except Exception as error:
            where = self._at(column, f"step {t} of round {run.round}")
            raise EnvError(f"{where}: {_broken(answer, error)}") from error
        run.end_step()

    def _arrays(self, run: Run) -> dict[str, np.ndarray]:
        n_steps, n = run.terminated.shape
        # On all rows of the task, for the same reason as the forward pass: equal shapes give equal bits.
        log_prob = self.actor.log_prob(run.outputs, run.actions)
        obs_shape = self._current.shape[1:]
        arrays = {
            "obs": run.seen,
            "last_obs": self._sight.seen[self._rows].copy(),
            "action": np.ascontiguousarray(run.actions[:, self._rows]),
            "log_prob": np.ascontiguousarray(log_prob[:, self._rows], dtype=np.float32),
            "reward": np.array(run.rewards, np.float32).reshape(n_steps, n),
            "terminated": run.terminated,
            "truncated": run.truncated,
            "final_obs": np.array(run.final_obs, self._sight.seen.dtype).reshape(-1, *obs_shape),
            "final_at": np.array(run.final_at, np.int32).reshape(-1, 2),
        }
        if self._masks is not None:
            arrays["action_mask"] = np.ascontiguousarray(run.masks[:, self._rows])
        if self.actor.layout.norm_obs:
            arrays["obs_moments"] = np.stack([self._sight.moments(column) for column in np.moveaxis(run.obs, 1, 0)])
        if self.actor.layout.norm_reward:
            returns = np.array(run.discounted).reshape(n_steps, n)
            arrays["return_moments"] = np.stack([Moments.of(column[:, None]).row() for column in returns.T])
            arrays["reward"] = scale(arrays["reward"], continued_var(self.actor.statistics[1], returns))
        return arrays | self.actor.extras(self._rows)

    def _check_finite(self, arrays: Mapping[str, np.ndarray], round: int) -> None:
        for name in ("reward", "obs", "last_obs", "final_obs"):
            if arrays[name].dtype.kind != "f" or (finite := np.isfinite(arrays[name])).all():
                continue
            place = tuple(int(i) for i in np.argwhere(~finite)[0])
            # The observation of row t was returned by the step before it.
            at = {"reward": place, "obs": (place[0] - 1, *place[1:]), "last_obs": (len(arrays["reward"]) - 1, *place)}
            step, column = arrays["final_at"][place[0]] if name == "final_obs" else at[name][:2]
            subject = "the reward" if name == "reward" else "the observation"
            where = self._at(column, f"step {step} of round {round}")
            raise EnvError(f"{where}: {subject} is not finite: {arrays[name][place]}")

    def acted(self) -> np.ndarray:
        """Return what its environments show now, raw; shape ``(n, *obs)``."""
        return np.array(self._current[self._rows])

    def state(self) -> Facts:
        """Return all that is needed to go on exactly: plain data and bytes.

        Returns
        -------
        dict
            ``{"round", "envs"}``; `envs` maps the index, as text, to snapshot (bytes or None), current observation,
            running discounted return, return and length.  States of several collectors may be joined by merging
            their `envs`, and restored under another split.
        """
        envs = {}
        for column, (index, env) in enumerate(zip(self.env_indices, self.envs, strict=True)):
            envs[str(index)] = {
                "snapshot": freeze(env) if self.restorable else None,
                "obs": self._current[index].tobytes(),
                "discounted": self._discounted[column],
                "return": self._returns[column],
                "length": self._lengths[column],
            }
            if self._masks is not None:
                envs[str(index)]["mask"] = self._masks[index].tobytes()
        return {"round": self._round, "envs": envs}

    def restore(self, state: Facts) -> int:
        """Go on from :meth:`state`.

        Parameters
        ----------
        state
            A state that holds at least this collector's environments.  It may have `actions`: arrays ``(T, n)`` of the
            rounds that followed it, which are taken once more.

        Returns
        -------
        int
            Number of episodes lost: environments without a snapshot, or with one that cannot be used here, which start
            anew with seeds of their own.

        Raises
        ------
        ValueError
            If an environment of this collector is missing.
        """
        missing = [i for i in self.env_indices if str(i) not in state["envs"]]
        if missing:
            raise ValueError(f"collector state lacks environments {missing}, it holds {sorted(state['envs'])}")
        self._round = int(state["round"])
        lost = 0
        for column, index in enumerate(self.env_indices):
            saved = state["envs"][str(index)]
            env = self._thawed(saved)
            if env is None:
                lost += not saved.get("fresh", False)  # a new budget begins new episodes by intent
                # + 1 apart from the first start; the round apart from earlier resumptions.
                self._start(column, reset_seed(self.spec.seed, ENV, index, self._round + 1))
                continue
            self.envs[column].close()
            self.envs[column] = env
            self._mask_of[column] = MaskSource(self.envs[column], self.actor.head)
            if self._masks is not None:
                self._masks[index] = np.frombuffer(saved["mask"], np.bool_)
            obs = np.frombuffer(saved["obs"], self._current.dtype)
            self._current[index] = obs.reshape(self._current.shape[1:])
            self._discounted[column] = float(saved["discounted"])
            self._returns[column], self._lengths[column] = float(saved["return"]), int(saved["length"])
        for actions in state.get("actions", ()):
            self._follow(self._round, actions)
        return lost

    def _thawed(self, saved: Facts) -> gymnasium.Env | None:
        """Return a saved environment; None if none was kept, or it cannot go on here."""
        if saved["snapshot"] is None or (self._masks is not None and "mask" not in saved):
            return None  # it was saved before the task learnt with masks
        try:
            return thaw(saved["snapshot"])
        except Exception:  # noqa: BLE001 - foreign code, of another version perhaps: an episode is lost, not the run
            return None

    def close(self) -> None:
        """Close every environment, also if one raises."""
        with contextlib.ExitStack() as closing:
            for env in self.envs:
                closing.callback(env.close)


def _broken(answer: object, error: Exception) -> str:
    """Return what an environment did wrong: its own exception, or how its answer breaks the contract."""
    if isinstance(error, EnvError):
        return str(error)
    if answer is not None and not (isinstance(answer, tuple) and len(answer) == 5):
        return f"step must return (observation, reward, terminated, truncated, info), got {answer!r:.200}"
    return f"{type(error).__name__}: {error}"
