"""Train in one process, stop between two rounds and go on exactly: collectors and learner in turn, no cluster.

The same collectors and the same learner as on a cluster, one round after the other; :meth:`LocalLoop.trained` is what a
checkpoint holds, and a loop that is made from it goes on with the same bits.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gymnasium
import numpy as np

from drlnb.records.base import Facts
from drlnb.records.episodes import Episode, episode, rolling
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.learner import Learner
from drlnb.rl.algorithms.registry import make_learner, make_replay, settings_of
from drlnb.rl.algorithms.replay import Replay
from drlnb.rl.checkpoints.trained import State, Trained, joined
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.rl.collecting.gathering import Stepping, Told, drained
from drlnb.rl.fragments import Fragment

__all__ = ["LocalLoop", "LocalResult", "train_local"]


class LocalLoop:
    """One task's rounds in this process.

    Parameters
    ----------
    spec
        The task, with its spaces filled in; its ``n_collectors`` collectors run one after the other.
    trained
        Where to go on from; None: from the beginning.
    device
        A torch device, where the learner computes.

    Raises
    ------
    EnvError
        If an environment cannot be made or reset.
    ValueError
        If `trained` belongs to another network.
    """

    def __init__(self, spec: RlWork, trained: Trained | None = None, *, device: str = "cpu") -> None:
        self.spec = spec
        settings = settings_of(spec)
        self._n_steps = settings.round_steps()
        self._learner: Learner = make_learner(spec, device=device)
        self._replay: Replay | None = make_replay(spec)
        self._episodes: deque[Episode] = deque(maxlen=settings.to_plain()["stats_window_size"])
        #: Rounds finished, and environment steps of the budget.
        self.n_rounds = self.n_timesteps = 0
        #: Environments that could not be restored: their episodes began anew.
        self.episodes_lost = 0
        self._elapsed_s = 0.0
        self._collectors = [Collector(spec, env_indices=share) for share in split_envs(spec.n_envs, spec.n_collectors)]
        try:
            if trained is not None:
                self._restore(trained)
        except BaseException:
            self.close()
            raise
        #: What the learner published last; uint8.
        self.parameters = self._learner.published()

    def _restore(self, trained: Trained) -> None:
        self.n_rounds, self.n_timesteps = trained.n_rounds, trained.n_timesteps
        self._elapsed_s = trained.elapsed_s
        self._episodes.extend(map(episode, trained.episodes))
        self._learner.restore(trained.state.facts, trained.state.buffer)
        if trained.envs is not None:
            self.episodes_lost = sum(collector.restore(trained.envs) for collector in self._collectors)
        if trained.replay is not None and self._replay is not None:
            self._replay.restore(trained.replay)

    def set(self, name: str, value: object) -> None:
        """Change a setting from the next round on; as :meth:`drlnb.rl.algorithms.learner.Learner.set`."""
        self._learner.set(name, value)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The latest episodes."""
        return tuple(self._episodes)

    @property
    def envs(self) -> list[gymnasium.Env]:
        """The environments, in the order of their indices."""
        return [env for collector in self._collectors for env in collector.envs]

    def round(self, on_step: Callable[[int, Facts], None] | None = None) -> dict[str, float]:
        """Make one round; return its metrics, see ``docs/reference/rl.md``; errors are those of :func:`train_local`.

        Parameters
        ----------
        on_step
            Called after each step of all environments with its number in the round, from 1, and what they answered,
            under Stable-Baselines3's names.
        """
        started = time.perf_counter()
        number, done = self.n_rounds + 1, self.n_timesteps  # round 0 makes the first parameters, as on a cluster
        stepping = [
            c.steps(self.parameters, version=number, round=number, n_steps=self._n_steps, n_timesteps=done)
            for c in self._collectors
        ]
        fragments = [drained(each) for each in stepping] if on_step is None else self._in_step(stepping, on_step)
        collected = time.perf_counter()
        for fragment in fragments:
            self._episodes.extend(map(episode, fragment.header["episodes"]))
        metrics = self._learn(fragments, number)
        self.n_rounds = number
        self.n_timesteps += _samples(fragments)
        self.parameters = self._learner.published()
        ended = time.perf_counter()
        self._elapsed_s += ended - started
        metrics |= {"round/time_s": ended - started, "round/collect_s": collected - started}
        metrics |= {"round/update_s": ended - collected, "time/iterations": number}
        metrics |= {"time/time_elapsed": self._elapsed_s, "time/total_timesteps": self.n_timesteps}
        fps = self.n_timesteps / self._elapsed_s if self._elapsed_s else 0.0  # on a coarse clock no time has passed
        metrics |= {"time/fps": fps, **rolling(self._episodes)}
        return metrics

    def _in_step(self, stepping: Sequence[Stepping], on_step: Callable[[int, Facts], None]) -> list[Fragment]:
        """Have all collectors step side by side, and tell of each step."""
        for collector in self._collectors:
            collector.told = []
        try:
            for t in range(self._n_steps):
                for each in stepping:
                    next(each)
                told = [answer for collector in self._collectors for answer in collector.told or ()]
                on_step(t + 1, {**_answers(told), "new_obs": np.concatenate([c.acted() for c in self._collectors])})
                for collector in self._collectors:
                    collector.told = []
            return [drained(each) for each in stepping]
        finally:
            for collector in self._collectors:
                collector.told = None

    def _learn(self, fragments: list[Fragment], number: int) -> dict[str, float]:
        """Make the round's gradient steps; return its metrics."""
        staged = fragments
        if self._replay is not None:
            block = self._replay.take(fragments, round=number, n_timesteps=self.n_timesteps)
            if not block.header["n_gradient_steps"]:
                return dict(block.header["metrics"])
            staged = [block]
        self._learner.begin(number, self.n_timesteps + _samples(fragments))
        for worker, fragment in enumerate(staged):
            self._learner.stage(worker, fragment)
        return self._learner.finish()

    def state(self) -> State:
        """Return the parameters as they are now, and what the learner needs to go on from them."""
        facts, buffer = self._learner.state()
        return State(published=np.array(self.parameters), facts=facts, buffer=np.array(buffer))

    def put(self, state: State) -> None:
        """Go on from other parameters: they are learnt from next, and acted with from the next round on."""
        self._learner.kept.restore(state.facts, state.buffer)
        self.parameters = self._learner.published()

    def trained(self, *, envs: bool = True) -> Trained:
        """Return where this training stands now, independent of what comes after; `envs`: with the environments."""
        return Trained(
            state=self.state(),
            n_rounds=self.n_rounds,
            n_timesteps=self.n_timesteps,
            elapsed_s=self._elapsed_s,
            episodes=tuple(self._episodes),
            envs=joined([collector.state() for collector in self._collectors]) if envs else None,
            replay=None if self._replay is None else _copied(self._replay.state()),
        )

    def close(self) -> None:
        """Close every environment."""
        for collector in self._collectors:
            collector.close()


@dataclass(frozen=True, slots=True)
class LocalResult:
    """What a training in this process left."""

    #: One mapping per round, see ``docs/reference/rl.md``.
    metrics: list[dict[str, float]]
    #: The last published buffer.
    parameters: np.ndarray
    #: Wall time of the rounds, environments' construction not counted.
    seconds: float
    #: Environment steps taken.
    n_timesteps: int


def train_local(
    spec: RlWork, *, callback: Callable[[dict[str, float]], object] | None = None, device: str = "cpu"
) -> LocalResult:
    """Train a task in this process.

    Parameters
    ----------
    spec
        The task, with its spaces filled in; its ``n_collectors`` collectors run one after the other.
    callback
        Called with each round's metrics; False ends the training.
    device
        A torch device, where the learner computes.

    Returns
    -------
    LocalResult
        Metrics, final parameters, seconds.

    Raises
    ------
    EnvError
        If an environment fails.
    NonFinite
        If an update is refused.
    """
    history: list[dict[str, float]] = []
    loop = LocalLoop(spec, device=device)
    began = time.perf_counter()
    try:
        while loop.n_timesteps < spec.total_timesteps:
            history.append(loop.round())
            answer = None if callback is None else callback(history[-1])
            if answer is not None and not answer:  # False, numpy's too
                break
        return LocalResult(history, loop.parameters, time.perf_counter() - began, loop.n_timesteps)
    finally:
        loop.close()


def _answers(told: Sequence[Told]) -> Facts:
    """Return what the environments answered to a step, as Stable-Baselines3's vector environments do."""
    infos = []
    for each in told:
        info = {**each.info, "TimeLimit.truncated": bool(each.truncated and not each.terminated)}
        if each.terminated or each.truncated:
            info |= {"terminal_observation": each.obs, "episode": {"r": each.returned, "l": each.length}}
        infos.append(info)
    ended = np.array([bool(each.terminated or each.truncated) for each in told])
    return {"infos": infos, "rewards": np.array([each.reward for each in told], np.float32), "dones": ended}


def _samples(fragments: Sequence[Fragment]) -> int:
    return sum(int(fragment.header["n_samples"]) for fragment in fragments)


def _copied(state: Fragment) -> Fragment:
    return Fragment(dict(state.header), {name: np.array(array) for name, array in state.arrays.items()})
