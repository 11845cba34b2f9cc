"""Train in this process, and call callbacks round by round."""

from dataclasses import replace
from pathlib import Path

from drlnb.fleet.callbacks.base import BaseCallback, end_round, hear_step, stops, wants_steps
from drlnb.fleet.callbacks.events import Evaluated, Written
from drlnb.fleet.plain import Plain
from drlnb.fleet.policies.policy import counted_as
from drlnb.fleet.policies.tensors import save_with_ring
from drlnb.records.spec import RlWork
from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.collecting.evaluation import evaluate_parameters
from drlnb.rl.local.train import LocalLoop

__all__ = ["LocalSession"]


class LocalSession:
    """A training in this process.

    Parameters
    ----------
    spec
        The task.
    trained
        Where to go on from; None: from the beginning.
    callback
        Its callbacks, initialised.
    settings
        What they ask for, see :meth:`drlnb.fleet.callbacks.base.BaseCallback.settings`.
    device
        A torch device, where the learner computes.
    """

    def __init__(
        self, spec: RlWork, trained: Trained | None, callback: BaseCallback, settings: Plain, device: str = "cpu"
    ) -> None:
        self.spec, self.callback, self._settings = spec, callback, settings
        self.loop = LocalLoop(spec, trained, device=device)
        self._every = int(settings.get("eval_freq", 0))
        self._asked = self._stopping = False

    def checkpoint(self) -> None:
        """Call the callbacks for a checkpoint at the end of this round: the state is at hand then."""
        self._asked = True

    def save(self, version: int, path: str | Path, ring: Path | None = None) -> bool:
        """Save the present parameters if they are of that version."""
        if version != self.loop.n_rounds + 1:
            return False
        save_with_ring(path, self.spec, self.loop.trained(), ring)
        return True

    def follow(self) -> Trained:
        """Train to the end, or until a callback returns False; return the state."""
        try:
            self.callback.on_training_start()
            while self.loop.n_timesteps < self.spec.total_timesteps and self._round():
                pass
            self.callback.on_training_end()
            self.callback.model._held.read_back()
            return self.loop.trained()
        finally:
            self.loop.close()

    def _round(self) -> bool:
        loop, before, held = self.loop, self.loop.n_timesteps, self.callback.model._held
        self._stopping = False
        held.read_back()  # what a callback has changed in the policy
        metrics = loop.round(self._step if wants_steps(self.callback) else None)
        if held.policy is not None:
            held.policy.show(self.spec, loop.state())
        if loop.episodes_lost:
            metrics["resume/episodes_lost"], loop.episodes_lost = loop.episodes_lost, 0
        go_on = end_round(self.callback, metrics) and not self._stopping
        if self._every and loop.n_timesteps // self._every > before // self._every:
            go_on = not stops(self.callback.on_evaluation(self._evaluated())) and go_on
        if self._asked:
            self._asked = False
            written = Written(n_timesteps=loop.n_timesteps, version=loop.n_rounds + 1, reason="checkpoint")
            go_on = not stops(self.callback.on_checkpoint(written)) and go_on
        return go_on

    def _step(self, n_steps: int, told: Plain) -> None:
        """Tell of a step as it is made, until one asks to stop: the round is made to its end."""
        if not self._stopping:
            n_timesteps = self.loop.n_timesteps + n_steps * self.spec.n_envs
            with counted_as(self.callback.model, n_timesteps):
                self._stopping = not hear_step(self.callback, n_timesteps, told)
            self.callback.model._held.read_back()

    def _evaluated(self) -> Evaluated:
        n, deterministic = self._settings["eval_episodes"], self._settings["eval_deterministic"]
        spec = replace(self.spec, **self._settings.get("eval_source", {}))
        played = evaluate_parameters(spec, self.loop.parameters, n_episodes=n, deterministic=deterministic)
        return Evaluated(
            n_timesteps=self.loop.n_timesteps,
            version=self.loop.n_rounds + 1,
            mean_reward=played.mean,
            std_reward=played.std,
            deterministic=deterministic,
            episodes=tuple(zip(played.returns, played.lengths, strict=True)),
            success_rate=played.success_rate,
        )
