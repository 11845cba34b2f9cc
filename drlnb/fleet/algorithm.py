"""Build, train, use, save and load models in the manner of Stable-Baselines3.

Constructor arguments have Stable-Baselines3's names, order and defaults (:class:`drlnb.Task` takes tuned ones instead).
``learn`` trains on the fleet's cluster and waits, or with ``local=True`` in this process; both give the same bits.
"""

import inspect
from pathlib import Path
from typing import ClassVar, Self

from drlnb.fleet.budgets import Budgets
from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback
from drlnb.fleet.callbacks.progress import ProgressLine, TensorBoardLog, budget_folder
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.listening import start_listening
from drlnb.fleet.policies.files import load_model
from drlnb.fleet.policies.policy import KINDS, Model
from drlnb.fleet.tasks.arguments import altered, bound, described, moved, signature
from drlnb.fleet.training import Training
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.rl.checkpoints.trained import Trained

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
    _budgets: Budgets

    def __init_subclass__(cls) -> None:
        cls.__signature__ = signature(cls.ALGO, cls.ORDER)
        KINDS[cls.ALGO] = cls

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Return a model that was not trained yet; the arguments are read by the constructor."""
        made = super().__new__(cls)
        made._budgets = Budgets(made)
        return made

    def __init__(self, *args: object, **kwargs: object) -> None:
        given = bound(type(self).__name__, self.ALGO, self.__signature__, args, kwargs)
        self.verbose = int(given.pop("verbose", 0))
        self.tensorboard_log = given.pop("tensorboard_log", None)
        self._budgets.fleet = given.pop("fleet", None)
        super().__init__(described(self.ALGO, given))

    # ------------------------------------------------------------------ learn
    def learn(
        self,
        total_timesteps: int,
        callback: object = None,
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
        log = _event_files(self, tb_log_name, reset_num_timesteps=reset_num_timesteps)
        callbacks = _callbacks(self, callback, log_interval, log, progress_bar=progress_bar)
        learn = self._budgets.learn_here if local else self._budgets.learn
        try:
            learn(total_timesteps, callbacks, reset=reset_num_timesteps)
        finally:
            if log is not None:
                log.close()
        return self

    def submit(
        self,
        total_timesteps: int,
        callback: object = None,
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
            run; what it raised is written in a line.
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
        log = _event_files(self, None, reset_num_timesteps=reset_num_timesteps)
        callbacks = _callbacks(self, callback, log_interval, log)
        run = self._budgets.launch(total_timesteps, callbacks, out, on_existing, reset=reset_num_timesteps)
        if callbacks.children:
            (task,) = run.specs
            start_listening(run, task, self, callbacks, None if log is None else log.close)
        return run

    def _state(self) -> Trained:
        self._budgets.adopt()
        if self._budgets.live is not None:
            self._actor = None
            return self._budgets.live.trained()
        return super()._state()

    @property
    def num_timesteps(self) -> int:
        """Environment steps of the present budget that the parameters have seen."""
        self._budgets.adopt()
        return super().num_timesteps if self._budgets.live is None else self._budgets.live.n_timesteps

    # ------------------------------------------------------------------ load
    @classmethod
    def load(
        cls, path: str | Path, env: object = None, *, fleet: Fleet | None = None, trust: bool = False, **changed: object
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
        model._budgets.fleet = fleet
        if env is not None:
            model.spec = moved(spec, env)
        if changed:
            given = bound(cls.__name__, cls.ALGO, cls.__signature__, None, changed)
            model.verbose = int(given.pop("verbose", 0))
            model.tensorboard_log = given.pop("tensorboard_log", None)
            model.spec = altered(model.spec, given, str(path))
        return model


def _event_files(model: Algorithm, name: str | None, *, reset_num_timesteps: bool) -> TensorBoardLog | None:
    """Return the callback that writes event files; None where nobody asked for them."""
    if model.tensorboard_log is None:
        if name is not None:
            raise ConfigError(
                f"tb_log_name={name!r} needs tensorboard_log, the folder that it is in: give it to the model"
            )
        return None
    anew = reset_num_timesteps or model.num_timesteps == 0
    return TensorBoardLog(budget_folder(model.tensorboard_log, name or type(model).__name__, anew=anew))


def _callbacks(
    model: Algorithm, callback: object, log_interval: int, log: TensorBoardLog | None, *, progress_bar: bool = False
) -> CallbackList:
    """Return the user's callbacks behind those that log and show progress."""
    own: list[BaseCallback] = [] if log is None else [log]
    if model.verbose or progress_bar:
        own.append(ProgressLine(log_interval, in_place=progress_bar))
    return CallbackList(own if callback is None else [*own, as_callback(callback)])
