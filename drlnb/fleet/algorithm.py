"""Build, train, use, save and load models in the manner of Stable-Baselines3.

Constructor arguments have Stable-Baselines3's names, order and defaults (:class:`drlnb.Task` takes tuned ones instead).
``learn`` trains on the fleet's cluster and waits, or with ``local=True`` in this process; both give the same bits.
"""

import contextlib
import inspect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback
from drlnb.fleet.callbacks.local_session import LocalSession
from drlnb.fleet.callbacks.progress import ProgressLine, TensorBoardLog, budget_folder
from drlnb.fleet.fleet import Fleet, current_fleet
from drlnb.fleet.listening import RunSession, start_listening
from drlnb.fleet.plain import COUNT, Row
from drlnb.fleet.policies.files import load_model, newest
from drlnb.fleet.policies.policy import KINDS, Model
from drlnb.fleet.tasks.arguments import altered, bound, described, moved, signature
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import default_out, run_spec
from drlnb.fleet.training import Training
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import learners_problem
from drlnb.rl.algorithms.resolve import PREFIX, live_value
from drlnb.rl.checkpoints.trained import Trained, anew
from drlnb.rl.local.train import LocalLoop
from drlnb.rl.networks.same_bits import one_thread

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Algorithm"]

#: What a model can be given anew beside the algorithm's settings.
_COUNTS = ("seed", "n_envs", "n_collectors", "n_learners", "deterministic", "eval_episodes", "eval_max_steps")
#: What a replay ring that has been filled was made for.
_OF_RING = ("buffer_size", "n_envs")


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
    #: Where to train; None: on the fleet that is up, or a new one.
    fleet: Fleet | None = None
    #: The training in this process, and the run, that learn for it now.
    _live: LocalLoop | None = None
    _run: Training | None = None

    def __init_subclass__(cls) -> None:
        cls.__signature__ = signature(cls.ALGO, cls.ORDER)
        if "ALGO" in vars(cls):  # not a subclass of the user's own
            KINDS[cls.ALGO] = cls

    def __init__(self, *args: object, **kwargs: object) -> None:
        given = _own(self, args, kwargs)
        self.fleet = given.pop("fleet", None)
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

        On the fleet's cluster or, with `local`, in this process: the bits are the same.

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
        try:
            (_learn_here if local else _learn)(self, total_timesteps, callbacks, reset=reset_num_timesteps)
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
        run = _launch(self, total_timesteps, callbacks, out, on_existing, reset=reset_num_timesteps)
        if callbacks.children:
            (task,) = run.specs
            start_listening(run, task, self, callbacks, None if log is None else log.close)
        return run

    def set_random_seed(self, seed: int | None = None) -> None:
        """Set the seed of every random stream, as ``model.seed = seed`` does; None leaves it."""
        self.seed = self.seed if seed is None else seed

    def __setattr__(self, name: str, value: object) -> None:
        """Change a setting of the next budget, or while the model trains from the next round on.

        Raises
        ------
        AttributeError, ConfigError, LayoutMismatch
            If there is no such setting, it cannot change (now), or its value is wrong or means another network.
        """
        if "spec" in self.__dict__ and name in {*self.spec.hyperparameters, *_COUNTS}:
            _set(self, name, value)
        else:
            super().__setattr__(name, value)

    def _state(self) -> Trained:
        _take_over(self)
        return super()._state() if self._live is None else self._live.trained()

    @property
    def parameters(self) -> "npt.NDArray[np.uint8]":
        """What actors need: policy and statistics in one buffer; see :mod:`drlnb.rl.networks.layout`."""
        return super().parameters if self._live is None else self._live.parameters

    @property
    def num_timesteps(self) -> int:
        """Environment steps of the present budget that the parameters have seen."""
        _take_over(self)
        return super().num_timesteps if self._live is None else self._live.n_timesteps

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
        model.fleet = fleet
        if env is not None:
            model.spec = moved(spec, env)
        if changed:
            _alter(model, _own(model, None, changed), str(path))
        return model


# ---------------------------------------------------------------------- arguments, and settings that are assigned
def _own(model: Algorithm, args: tuple[object, ...] | None, kwargs: Row) -> Row:
    """Keep what belongs to the model of a constructor's arguments; return the others, which are its task's."""
    given = bound(type(model).__name__, model.ALGO, model.__signature__, args, kwargs)
    model.verbose = int(given.pop("verbose", 0))
    model.tensorboard_log = given.pop("tensorboard_log", None)
    return given


def _set(model: Algorithm, name: str, value: object) -> None:
    """Change one of its settings, wherever it trains or rests."""
    if model._live is not None:
        model._live.set(name, live_value(model.spec, PREFIX + name, value))
        return
    _take_over(model)
    if model._run is not None:
        model._run.set(PREFIX + name, value)
        return
    trained = model.trained
    if name in _OF_RING and trained is not None and trained.replay is not None:
        way = f"save the model, then {type(model).__name__}.load(path, {name}=...), whose ring is empty"
        raise ConfigError(f"{name} cannot change any more, the replay ring is filled: {way}")
    _alter(model, {name: value}, type(model).__name__)


def _alter(model: Algorithm, given: Row, where: str) -> None:
    """Change settings of a model that rests; they win over those that were changed while it trained."""
    n_envs, trained = model.n_envs, model.trained
    facts = {} if trained is None else trained.state.facts
    live = {name: value for name, value in facts.get("live", {}).items() if name not in given}
    spec = altered(model.spec, given, where)
    if problem := learners_problem(spec, **live):
        raise ConfigError(problem)
    model.spec = spec
    model._actor = model._loaded = None
    if trained is None or trained.n_rounds == 0:
        model.trained = None  # made from its seed when it is needed
        return
    state = replace(trained.state, facts={**facts, "live": live})
    envs = trained.envs if model.n_envs == n_envs else None
    model.adopt(_republished(model.spec, replace(trained, state=state, envs=envs)))


# ---------------------------------------------------------------------- one budget after the other
def _learn_here(model: Algorithm, total: int, callbacks: CallbackList, *, reset: bool) -> None:
    """Train in this process to the end of the budget."""
    spec, start = _next(model, total, reset=reset)
    with one_thread():
        _begin(model, spec, start)
        callbacks.init_callback(model)
        session = LocalSession(spec, start, callbacks, callbacks.settings(spec.n_envs))
        model._live = session.loop
        try:
            callbacks.init_callback(model, session)
            model.adopt(session.follow())
        except BaseException:  # what was learnt stays; the environments stand somewhere inside a round
            model.adopt(session.loop.trained(envs=False))
            raise
        finally:
            model._live = None


def _learn(model: Algorithm, total: int, callbacks: CallbackList, *, reset: bool) -> None:
    """Train on the fleet, call the callbacks from here, and wait."""
    run = _launch(model, total, callbacks, None, "error", reset=reset)
    (task,) = run.specs
    session = RunSession(run, task, callbacks)
    try:
        callbacks.init_callback(model, session)
        session.follow()
        run.wait()
    finally:
        _take_over(model)


def _launch(
    model: Algorithm, total: int, callbacks: CallbackList, out: str | Path | None, on_existing: str, *, reset: bool
) -> Training:
    """Start training on the fleet; the callbacks are asked what they need, and not called."""
    spec, start = _next(model, total, reset=reset)
    callbacks.init_callback(model)
    settings: Row = callbacks.settings(spec.n_envs)
    judged = replace(spec, eval_source=settings.pop("eval_source", None))
    whole = replace(run_spec([judged], chosen()), settings=settings)
    if model.fleet is None or model.fleet.closed:
        model.fleet = current_fleet()
    begun = {} if start is None else {spec.name: start}
    model._run = model.fleet.begin(whole, out or default_out(), on_existing, begun)
    _begin(model, spec, start)
    return model._run


def _take_over(model: Algorithm) -> None:
    """Adopt the state of a run that has ended."""
    run = model._run
    if run is None or not run.ended:
        return
    model._run = None
    (task,) = run.specs
    with contextlib.suppress(CheckpointError):  # it ended before its first checkpoint: nothing was learnt
        model.adopt(newest(model.spec, run.out / "checkpoints" / task))


def _begin(model: Algorithm, spec: RlWork, start: Trained | None) -> None:
    model.spec = spec
    if start is not None:
        model.adopt(start)


def _next(model: Algorithm, total: int, *, reset: bool) -> tuple[RlWork, Trained | None]:
    """Return the task with its budget, and where it goes on from; None: from the beginning."""
    COUNT.read("total_timesteps", total)
    _take_over(model)
    if model._run is not None:
        raise ConfigError(f"run {model._run.id} is training this model: wait for it, or stop it")
    trained = model.trained
    if trained is None or trained.n_rounds == 0:
        return replace(model.spec, total_timesteps=total), None
    if reset:
        trained = anew(trained, model.n_envs)
    spec = replace(model.spec, total_timesteps=total + trained.n_timesteps)
    return spec, _republished(spec, trained)


def _republished(spec: RlWork, trained: Trained) -> Trained:
    """Return the state with what its learner publishes under this budget: GPF's temperatures follow it."""
    from drlnb.rl.algorithms.registry import make_learner

    with one_thread():
        learner = make_learner(spec)
        learner.restore(trained.state.facts, trained.state.buffer)
        return replace(trained, state=replace(trained.state, published=learner.published()))


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
