"""Train a model for one budget after the other, in this process or on a fleet."""

from dataclasses import replace
from pathlib import Path

from drlnb.fleet.callbacks.base import CallbackList
from drlnb.fleet.callbacks.local_session import LocalSession
from drlnb.fleet.fleet import Fleet, current_fleet
from drlnb.fleet.listening import RunSession
from drlnb.fleet.plain import checked_count
from drlnb.fleet.policies.files import newest
from drlnb.fleet.policies.policy import Model
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import default_out, run_spec
from drlnb.fleet.training import Training
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.spec import TaskSpec
from drlnb.rl.checkpoints.trained import Trained, anew
from drlnb.rl.local.train import LocalLoop
from drlnb.rl.networks.one_thread import one_thread

__all__ = ["Budgets"]


class Budgets:
    """The trainings of one model.

    Parameters
    ----------
    model
        Its spec and state are replaced when a budget begins, and its state when one ends.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        #: Where to train; None: on the fleet that is up, or a new one.
        self.fleet: Fleet | None = None
        #: The training in this process that goes on now.
        self.live: LocalLoop | None = None
        self._run: Training | None = None

    def learn_here(self, total: int, callbacks: CallbackList, *, reset: bool) -> None:
        """Train in this process to the end of the budget."""
        spec, start = self._next(total, reset=reset)
        with one_thread():
            self._begin(spec, start)
            callbacks.init_callback(self._model)
            session = LocalSession(spec, start, callbacks, callbacks.settings(spec.n_envs))
            self.live = session.loop
            try:
                callbacks.init_callback(self._model, session)
                self._model.adopt(session.follow())
            except BaseException:  # what was learnt stays; the environments stand somewhere inside a round
                self._model.adopt(session.loop.trained(envs=False))
                raise
            finally:
                self.live = None

    def learn(self, total: int, callbacks: CallbackList, *, reset: bool) -> None:
        """Train on the fleet, call the callbacks from here, and wait."""
        run = self.launch(total, callbacks, None, "error", reset=reset)
        (task,) = run.specs
        session = RunSession(run, task, callbacks)
        try:
            callbacks.init_callback(self._model, session)
            session.follow()
            run.wait()
        finally:
            self.adopt()

    def launch(
        self, total: int, callbacks: CallbackList, out: str | Path | None, on_existing: str, *, reset: bool
    ) -> Training:
        """Start training on the fleet; the callbacks are asked what they need, and not called."""
        spec, start = self._next(total, reset=reset)
        callbacks.init_callback(self._model)
        whole = replace(run_spec([spec], chosen()), settings=callbacks.settings(spec.n_envs))
        if self.fleet is None or self.fleet.closed:
            self.fleet = current_fleet()
        begun = {} if start is None else {spec.name: start}
        self._run = self.fleet.begin(whole, out or default_out(), on_existing, begun)
        self._begin(spec, start)
        return self._run

    def adopt(self) -> None:
        """Adopt the state of a run that has ended."""
        run = self._run
        if run is None or not run.ended:
            return
        self._run = None
        (task,) = run.specs
        try:
            trained = newest(self._model.spec, run.out / "checkpoints" / task)
        except CheckpointError:
            return  # it ended before its first checkpoint: nothing was learnt
        self._model.adopt(trained)

    def _begin(self, spec: TaskSpec, start: Trained | None) -> None:
        self._model.spec = spec
        if start is not None:
            self._model.adopt(start)

    def _next(self, total: int, *, reset: bool) -> tuple[TaskSpec, Trained | None]:
        """Return the task with its budget, and where it goes on from; None: from the beginning."""
        checked_count("total_timesteps", total)
        self.adopt()
        if self._run is not None:
            raise ConfigError(f"run {self._run.id} is training this model: wait for it, or stop it")
        spec, trained = self._model.spec, self._model.trained
        if trained is None or trained.n_rounds == 0:
            return replace(spec, total_timesteps=total), None
        if reset:
            trained = anew(trained, spec.n_envs)
        spec = replace(spec, total_timesteps=total + trained.n_timesteps)
        return spec, _republished(spec, trained)


def _republished(spec: TaskSpec, trained: Trained) -> Trained:
    """Return the state with what its learner publishes under this budget: GPF's temperatures follow it."""
    from drlnb.rl.algorithms.registry import make_learner

    with one_thread():
        learner = make_learner(spec)
        learner.restore(trained.state.facts, trained.state.buffer)
        return replace(trained, state=replace(trained.state, published=learner.published()))
