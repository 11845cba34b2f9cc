"""Build, train, use, save and load models in the manner of Stable-Baselines3.

Constructor arguments have Stable-Baselines3's names, order and defaults (:class:`drlnb.Task` takes tuned ones instead).
``learn`` trains on the fleet's cluster and waits, or with ``local=True`` in this process; both give the same bits.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from drlnb.fleet.callbacks.progress import callbacks_of, event_files
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.learning import (
    Trainable,
    device_of,
    holds,
    launch,
    learn_here,
    learn_on_fleet,
    move,
    resting,
    set_while_it_trains,
    take_over,
    trains_here,
)
from drlnb.fleet.listening import start_listening
from drlnb.fleet.plain import COUNT, Plain, Row, by_name
from drlnb.fleet.policies.files import File, attributes_of, load_model, say_versions
from drlnb.fleet.policies.policy import KINDS, Model
from drlnb.fleet.policies.tensors import republished, save_ring, with_ring, with_statistics, with_tensors
from drlnb.fleet.tasks.arguments import altered, bound, described, moved, signature
from drlnb.fleet.training import Training
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.settings import count
from drlnb.rl.algorithms.registry import learners_problem
from drlnb.rl.algorithms.resolve import PREFIX, live_value

__all__ = ["Algorithm"]

#: What a model can be given anew beside the algorithm's settings.
_COUNTS = ("seed", "n_envs", "n_collectors", "n_learners", "deterministic", "eval_episodes", "eval_max_steps")
#: What is the model's own -> how it is checked when it is set.
_READ: Mapping[str, Callable[[object], object]] = {
    "device": device_of,
    "verbose": lambda value: count(0).read("verbose", int(value) if isinstance(value, bool) else value),
}
#: What a replay ring that has been filled was made for.
_OF_RING = ("buffer_size", "n_envs")


class Algorithm(Trainable):
    """What the algorithms have in common; not to be built itself."""

    ALGO: ClassVar[str] = ""
    #: Stable-Baselines3's arguments after `policy` and `env`, in its order.
    ORDER: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        cls.__signature__ = signature(cls.ALGO, cls.ORDER)
        if "ALGO" in vars(cls):  # not a subclass of the user's own
            KINDS[cls.ALGO] = cls

    def __init__(self, *args: object, **kwargs: object) -> None:
        given = _own(self, args, kwargs)
        self.fleet = given.pop("fleet", None)
        holds(self, given["env"])
        super().__init__(described(self.ALGO, given))

    # ------------------------------------------------------------------ learn
    def learn(
        self,
        total_timesteps: int,
        callback: object = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        local: bool | None = None,
    ) -> Self:
        """Train, and wait for it.

        On the fleet's cluster or in this process: the bits are the same.

        Parameters
        ----------
        total_timesteps
            Environment steps over all environments, made in whole rounds.
        callback
            See :mod:`drlnb.fleet.callbacks.base`: one, a function of ``(locals, globals)``, or a list of them.
        log_interval
            Rounds between two tables of ``verbose=1``, of a DQN episodes by their mean length; None: no tables.
        tb_log_name
            Name of the folders below `tensorboard_log`; None: the algorithm's.
        reset_num_timesteps
            Begin a budget of its own, with schedules from their start and new episodes; parameters, optimiser,
            statistics and replay go on.  False: go on exactly, `total_timesteps` more.
        progress_bar
            Keep one line of progress up to date.
        local
            Train in this process, without a cluster.  None: unless a fleet or a Dask client is up or was given, or
            several collectors or learners were asked for; a line says so.

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
        total_timesteps = COUNT.read("total_timesteps", total_timesteps)
        log = event_files(self, tb_log_name, reset_num_timesteps=reset_num_timesteps)
        callbacks = callbacks_of(self, callback, log_interval, log, progress_bar=progress_bar)
        try:
            learns = learn_here if trains_here(self, local) else learn_on_fleet
            learns(self, total_timesteps, callbacks, reset=reset_num_timesteps)
        finally:
            if log is not None:
                log.close()
        return self

    def submit(
        self,
        total_timesteps: int,
        callback: object = None,
        log_interval: int | None = 1,
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
        log = event_files(self, None, reset_num_timesteps=reset_num_timesteps)
        callbacks = callbacks_of(self, callback, log_interval, log)
        run = launch(self, total_timesteps, callbacks, out, on_existing, reset=reset_num_timesteps)
        if callbacks.children:
            (task,) = run.specs
            start_listening(run, task, self, callbacks, None if log is None else log.close)
        return run

    def set_env(self, env: object, force_reset: bool = True) -> None:
        """Go on in another environment with the same spaces.

        Parameters
        ----------
        env
            As of the constructor.
        force_reset
            Without effect: the next budget begins with new episodes there.

        Raises
        ------
        ValueError
            If it has other spaces; both are named.
        ConfigError
            If they are several of another number than the model's `n_envs`, or this model is being trained.
        """
        del force_reset
        resting(self)
        spec, n_given = moved(self.spec, env)
        if n_given not in {None, self.n_envs}:
            raise ConfigError(
                f"set_env got {n_given} environments for a model of {self.n_envs}: model.n_envs = {n_given} comes first"
            )
        move(self, spec)
        holds(self, env)

    def set_parameters(self, load_path_or_dict: object, exact_match: bool = True, device: str = "auto") -> None:
        """Take other parameters; the optimiser's state stays as it is.

        Parameters
        ----------
        load_path_or_dict
            What :meth:`get_parameters` returned, perhaps changed, or the path of a saved model.
        exact_match
            Every tensor must be there.
        device
            Without effect: a model that rests is on the CPU.

        Raises
        ------
        ConfigError
            If a tensor is missing, unknown or of another shape, or this model is being trained.
        """
        del device
        resting(self)
        if isinstance(load_path_or_dict, str | Path):
            load_path_or_dict = type(self).load(load_path_or_dict).get_parameters()
        self.adopt(with_tensors(self.spec, self._state(), load_path_or_dict, exact=exact_match))

    def set_statistics(self, vec_normalize: object) -> None:
        """Go on from the statistics of a ``VecNormalize`` of Stable-Baselines3's, with ``normalize=True``.

        Raises
        ------
        ConfigError
            If it is none, or this model does not normalise, or observations of another shape.
        """
        resting(self)
        self.adopt(with_statistics(self.spec, self._state(), vec_normalize))

    def save_replay_buffer(self, path: str | Path) -> Path:
        """Write a DQN's replay ring as a file of its own, a saved model has none; return the file."""
        resting(self)
        return save_ring(path, self.trained)

    def load_replay_buffer(self, path: str | Path, truncate_last_traj: bool = True) -> None:
        """Take the replay ring of :meth:`save_replay_buffer`.

        Parameters
        ----------
        path
            Of the file.
        truncate_last_traj
            Without effect: where episodes end is in the ring.

        Raises
        ------
        ConfigError
            If the file is none, or this model is being trained.
        """
        del truncate_last_traj
        resting(self)
        self.adopt(with_ring(path, self._state()))

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
        elif name in _READ:
            object.__setattr__(self, name, _READ[name](value))
        else:
            super().__setattr__(name, value)

    # ------------------------------------------------------------------ load
    @classmethod
    def load(
        cls,
        path: File,
        env: object = None,
        device: str = "auto",
        custom_objects: Plain | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        *,
        fleet: Fleet | None = None,
        trust: bool = False,
        **changed: object,
    ) -> Self:
        """Read a model that :meth:`save` wrote, or a checkpoint's folder; runs no code of the file.

        Parameters
        ----------
        path
            Zip file (its ``.zip`` may be left out, or it may be open) or folder.
        env
            Environment to go on with, with the same spaces; None: the saved one.  Several say `n_envs`, too.
        device, fleet
            As of the constructor.
        custom_objects
            Settings that shall differ from the saved ones, as `changed`.
        print_system_info
            Write the versions that it was saved with, and those of this process.
        force_reset
            Without effect: a loaded model begins new episodes.
        trust
            Take a model whose network or environment is its author's own code, which then runs here; an environment
            that is given with `env` needs no trust.
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
        del force_reset
        if print_system_info:
            say_versions(path)
        spec, trained = load_model(path, trust=trust, elsewhere=env is not None)
        if spec.algo != cls.ALGO:
            right = KINDS[spec.algo].__name__
            raise CheckpointError(f"{path}: holds a {right} model, not {cls.__name__}: drlnb.{right}.load reads it")
        model = cls.__new__(cls)
        Model.__init__(model, spec, trained)
        model.fleet = fleet
        for name, value in attributes_of(path).items():
            setattr(model, name, value)
        if env is not None:
            model.spec, n_given = moved(spec, env)
            changed = {**({"n_envs": n_given} if n_given else {}), **changed}
            holds(model, env)
        changed = {**by_name("custom_objects", custom_objects), **changed}
        if changed:
            _alter(model, _own(model, None, changed), str(path))
        model.device = device
        return model


# ---------------------------------------------------------------------- arguments, and settings that are assigned
def _own(model: Algorithm, args: tuple[object, ...] | None, kwargs: Row) -> Row:
    """Keep what belongs to the model of a constructor's arguments; return the others, which are its task's."""
    given = bound(type(model).__name__, model.ALGO, model.__signature__, args, kwargs)
    model.verbose = given.pop("verbose", model.verbose)
    model.tensorboard_log = given.pop("tensorboard_log", model.tensorboard_log)
    model.device = given.pop("device", "auto")
    model.several = given.get("n_collectors", 1) not in {None, 1}
    return given


def _set(model: Algorithm, name: str, value: object) -> None:
    """Change one of its settings, wherever it trains or rests."""
    if name == "policy" and hasattr(value, "state_dict"):
        raise AttributeError(
            f"policy of a {type(model).__name__} cannot be replaced: policy.load_state_dict(...) changes its "
            "parameters, and policy_kwargs or a policy function its network"
        )
    if model._live is not None:
        model._live.set(name, live_value(model.spec, PREFIX + name, value))
        return
    take_over(model)
    if set_while_it_trains(model, PREFIX + name, value):
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
    if trained is None or trained is model._held.drawn:
        model.adopt(None)  # made from its seed when it is needed
        return
    state = replace(trained.state, facts={**facts, "live": live})
    envs = trained.envs if model.n_envs == n_envs else None
    model.adopt(republished(model.spec, replace(trained, state=state, envs=envs)))
