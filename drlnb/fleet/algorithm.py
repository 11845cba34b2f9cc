"""Build, train, use, save and load models in the manner of Stable-Baselines3.

Constructor arguments have Stable-Baselines3's names, order and defaults (:class:`drlnb.Task` takes tuned ones instead).
``learn`` trains on the fleet's cluster and waits, or with ``local=True`` in this process; both give the same bits.
"""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback
from drlnb.fleet.callbacks.progress import ProgressLine
from drlnb.fleet.callbacks.sessions import LocalSession, RunSession
from drlnb.fleet.callbacks.tensorboard_log import TensorBoardLog, budget_folder
from drlnb.fleet.fleet import Fleet, current_fleet
from drlnb.fleet.listening import start_listening
from drlnb.fleet.policies.files import load_model, newest
from drlnb.fleet.policies.policy import KINDS, Model
from drlnb.fleet.tasks.arguments import altered, bound, described, moved, signature
from drlnb.fleet.tasks.planners import planner_names
from drlnb.fleet.tasks.run_spec import default_out, run_spec
from drlnb.fleet.training import Training
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.spec import TaskSpec
from drlnb.rl.checkpoints.new_budget import anew
from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.networks.one_thread import one_thread

__all__ = ["Algorithm"]


class Algorithm(Model):
    """What the algorithms have in common; not to be built itself."""

    ALGO: ClassVar[str] = ""
    #: Stable-Baselines3's arguments after `policy` and `env`, in its order.
    ORDER: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar[inspect.Signature]

    # Defaults for a model that was loaded: its constructor never ran.
    verbose: int = 0
    #: Folder of event files; None: none are written.
    tensorboard_log: str | Path | None = None
    _fleet: Fleet | None = None
    _run: Training | None = None
    #: The training of :meth:`learn` with ``local=True`` that goes on now.
    _live: LocalSession | None = None

    def __init_subclass__(cls) -> None:
        cls.__signature__ = signature(cls.ALGO, cls.ORDER)
        KINDS[cls.ALGO] = cls

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = bound(type(self).__name__, self.ALGO, self.__signature__, args, kwargs)
        self.verbose = int(given.pop("verbose", 0))
        self.tensorboard_log = given.pop("tensorboard_log", None)
        self._fleet = given.pop("fleet", None)
        super().__init__(described(self.ALGO, given))

    # ------------------------------------------------------------------ learn
    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        local: bool = False,
    ) -> Self:
        """Train, and wait for it.

        Parameters
        ----------
        total_timesteps
            Environment steps over all environments, made in whole rounds.
        callback
            See :mod:`drlnb.fleet.callbacks.base`: one, a function of ``(locals, globals)``, or a list of them.
        log_interval
            Rounds between two lines of progress (with ``verbose=1`` or `progress_bar`).
        tb_log_name
            Name of the folders below `tensorboard_log`; None: the algorithm's.
        reset_num_timesteps
            Begin a budget of its own, with schedules from their start and new episodes; parameters, optimiser,
            statistics and replay go on.  False: go on exactly, `total_timesteps` more.
        progress_bar
            Keep one line of progress up to date.
        local
            Train in this process, without a cluster.

        Returns
        -------
        Algorithm
            This model.

        Raises
        ------
        ConfigError
            If an argument is wrong, or this model is being trained by a run that goes on.
        TrainingFailed
            If training failed; the model then holds its newest checkpoint.
        """
        log = self._tensorboard(tb_log_name, reset_num_timesteps=reset_num_timesteps)
        callbacks = self._callbacks(callback, log_interval, log, progress_bar=progress_bar)
        try:
            if local:
                spec, start = self._budget(total_timesteps, reset_num_timesteps=reset_num_timesteps)
                with one_thread():
                    self._learn_here(spec, start, callbacks)
                return self
            run = self._launched(total_timesteps, callbacks, None, "error", reset_num_timesteps=reset_num_timesteps)
            self._follow(run, callbacks)
        finally:
            if log is not None:
                log.close()
        return self

    def _tensorboard(self, name: str | None, *, reset_num_timesteps: bool) -> TensorBoardLog | None:
        """Return the callback that writes event files; None where nobody asked for them."""
        if self.tensorboard_log is None:
            if name is not None:
                raise ConfigError(
                    f"tb_log_name={name!r} needs tensorboard_log, the folder that it is in: give it to the model"
                )
            return None
        anew = reset_num_timesteps or self.num_timesteps == 0
        return TensorBoardLog(budget_folder(self.tensorboard_log, name or type(self).__name__, anew=anew))

    def _follow(self, run: Training, callbacks: CallbackList) -> None:
        (task,) = run.specs
        session = RunSession(run, task, callbacks)
        try:
            callbacks.init_callback(self, session)
            session.follow()
            run.wait()
        finally:
            self._adopt()

    def _callbacks(
        self, callback: Any, log_interval: int, log: TensorBoardLog | None, *, progress_bar: bool = False
    ) -> CallbackList:
        shown: list[BaseCallback] = [] if log is None else [log]
        if self.verbose or progress_bar:
            shown.append(ProgressLine(log_interval, in_place=progress_bar))
        return CallbackList([*shown, as_callback(callback)])

    def _learn_here(self, spec: TaskSpec, start: Trained | None, callbacks: CallbackList) -> None:
        self._spec = spec
        if start is not None:
            self._take(start)
        callbacks.init_callback(self)
        session = self._live = LocalSession(spec, start, callbacks, callbacks.settings(spec.n_envs))
        try:
            callbacks.init_callback(self, session)
            self._take(session.follow())
        except BaseException:  # what was learnt stays; the environments stand somewhere inside a round
            self._take(session.trained(envs=False))
            raise
        finally:
            self._live = None

    def submit(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int = 1,
        *,
        out: str | Path | None = None,
        on_existing: str = "error",
        reset_num_timesteps: bool = True,
    ) -> Training:
        """Begin training on the fleet and return at once.

        The model takes over the run's last checkpoint when the run has ended (at its next use); until then it keeps
        the parameters that it had.  ``run.load()`` gives the newest ones.

        Parameters
        ----------
        total_timesteps, log_interval, reset_num_timesteps
            As of :meth:`learn`.
        callback
            As of :meth:`learn`, but called in a thread of its own until the run has ended.  One that raises stops the
            run; what it raised is said in a line.
        out
            Run directory; None: ``runs/<date-time>``.
        on_existing
            What to do with a run that is there: ``error``, ``resume`` (its checkpoint wins over this model's
            parameters), ``restart`` or ``overwrite``.

        Raises
        ------
        ConfigError, EnvError, RunLocked, SpecMismatch
            As :meth:`drlnb.fleet.fleet.Fleet.train`.
        """
        log = self._tensorboard(None, reset_num_timesteps=reset_num_timesteps)
        callbacks = self._callbacks(callback, log_interval, log)
        run = self._launched(total_timesteps, callbacks, out, on_existing, reset_num_timesteps=reset_num_timesteps)
        if log is not None or callback is not None or self.verbose:
            (task,) = run.specs
            start_listening(run, task, self, callbacks, None if log is None else log.close)
        return run

    def _launched(
        self, total: int, callbacks: CallbackList, out: Any, on_existing: str, *, reset_num_timesteps: bool
    ) -> Training:
        spec, start = self._budget(total, reset_num_timesteps=reset_num_timesteps)
        callbacks.init_callback(self)
        settings = callbacks.settings(spec.n_envs)
        self._fleet = self._fleet if self._fleet is not None and not self._fleet.closed else current_fleet()
        whole = replace(run_spec([spec], planner_names(None)), settings=settings)
        begun = {} if start is None else {spec.name: start}
        self._run = self._fleet.begin(whole, out or default_out(), on_existing, begun)
        self._spec = spec
        if start is not None:
            self._take(start)
        return self._run

    def _budget(self, total: int, *, reset_num_timesteps: bool) -> tuple[TaskSpec, Trained | None]:
        """Return the task with its budget, and where it goes on from; None: from the beginning."""
        if not isinstance(total, int) or isinstance(total, bool) or total < 1:
            raise ConfigError(f"total_timesteps must be a whole number >= 1, got {total!r}")
        self._adopt()
        if self._run is not None:
            raise ConfigError(f"run {self._run.id} is training this model: wait for it, or stop it")
        trained = self._trained
        if trained is None or trained.n_rounds == 0:
            return replace(self._spec, total_timesteps=total), None
        if reset_num_timesteps:
            trained = anew(trained, self._spec.n_envs)
        spec = replace(self._spec, total_timesteps=total + trained.n_timesteps)
        return spec, _republished(spec, trained)

    def _adopt(self) -> None:
        """Take over what a run that has ended left."""
        run = self._run
        if run is None or not run.ended:
            return
        self._run = None
        (task,) = run.specs
        try:
            trained = newest(self._spec, run.out / "checkpoints" / task)
        except CheckpointError:
            return  # it ended before its first checkpoint: nothing was learnt
        self._take(trained)

    def _state(self) -> Trained:
        self._adopt()
        if self._live is not None:
            self._actor = None
            return self._live.trained()
        return super()._state()

    @property
    def spec(self) -> TaskSpec:
        """The task: environment, algorithm, settings, spaces; the budget is the latest one's."""
        return self._spec

    @property
    def num_timesteps(self) -> int:
        """Environment steps of the present budget that the parameters have seen."""
        self._adopt()
        return super().num_timesteps if self._live is None else self._live.n_timesteps

    # ------------------------------------------------------------------ load
    @classmethod
    def load(
        cls, path: str | Path, env: Any = None, *, fleet: Fleet | None = None, trust: bool = False, **changed: Any
    ) -> Self:
        """Read a model that :meth:`save` wrote, or a checkpoint's folder; runs no code of the file.

        Parameters
        ----------
        path
            Zip file (its ``.zip`` may be left out) or folder.
        env
            Environment to go on with, with the same spaces; None: the saved one.
        fleet
            Where to train on; None: as for a new model.
        trust
            Take a model whose network or environment is its author's own code, which then runs here.
        **changed
            Settings that shall differ from the saved ones; the network must stay the same.

        Raises
        ------
        CheckpointError
            If it is damaged, or of another algorithm.
        LayoutMismatch
            If the changed settings mean another network; the first tensor that differs is named.
        ValueError
            If `env` has other spaces; both are named.
        ConfigError
            If a changed setting is unknown or wrong.
        """
        spec, trained = load_model(path, trust=trust)
        if spec.algo != cls.ALGO:
            right = KINDS[spec.algo].__name__
            raise CheckpointError(f"{path}: holds a {right} model, not {cls.__name__}: drlnb.{right}.load reads it")
        model = cls.__new__(cls)
        Model.__init__(model, spec, trained)
        model._fleet = fleet
        if env is not None:
            model._spec = moved(spec, env)
        if changed:
            given = bound(cls.__name__, cls.ALGO, cls.__signature__, None, changed)
            model.verbose = int(given.pop("verbose", 0))
            model.tensorboard_log = given.pop("tensorboard_log", None)
            model._spec = altered(model._spec, given, str(path))
        return model


def _republished(spec: TaskSpec, trained: Trained) -> Trained:
    """Return the state with what its learner publishes under this budget: GPF's temperatures follow it."""
    from drlnb.rl.algorithms.protocol import make_learner

    with one_thread():
        learner = make_learner(spec)
        learner.restore(trained.state.facts, trained.state.buffer)
        return replace(trained, state=replace(trained.state, published=learner.published()))
