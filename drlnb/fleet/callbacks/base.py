"""Call user code while a model learns: callbacks under Stable-Baselines3's names.

They run in the process that called ``learn``, in its thread, fed by the run's journal.  Steps happen in other
processes, so the calls of ``_on_step`` for a round's steps come together when it has ended; in this process they
come as the steps are made, with what the environments answered in ``locals``.  A request (to stop, to save) takes
effect at a later boundary between rounds, in this process at the next one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

from drlnb.fleet.callbacks.events import Evaluated, Metrics, Session, Written
from drlnb.fleet.faces import say
from drlnb.fleet.policies.policy import Model, counted_as
from drlnb.fleet.policies.vec_env import VecEnv
from drlnb.records.errors import ConfigError

__all__ = [
    "BaseCallback",
    "CallbackList",
    "ConvertCallback",
    "EventCallback",
    "as_callback",
    "end_round",
    "hear_step",
    "hear_steps",
    "report",
    "stops",
    "wants_steps",
]


class _Locals(dict[str, object]):
    """What callbacks see of the training, by Stable-Baselines3's names."""

    def __missing__(self, name: str) -> object:
        here = ", ".join(map(str, self)) or "nothing"
        if name == "metrics":
            raise ConfigError(
                "locals has no 'metrics' before a first round has ended: on_round_end(metrics) is told them"
            )
        more = "" if "infos" in self else "; with local=True also infos, rewards, dones, new_obs of each step"
        way = "self.training_env has the environments" if name == "env" else f"it holds {here}{more}"
        raise ConfigError(f"locals has no {name!r}: {way}")


class BaseCallback:
    """Base of all callbacks.

    Override the methods ``on_...`` (this package's events), or Stable-Baselines3's ``_on_training_start``,
    ``_on_rollout_start``, ``_on_step``, ``_on_rollout_end`` and ``_on_training_end``; all but the first and last may
    return False to stop the training.

    Parameters
    ----------
    verbose
        0: silent; 1 and more: callbacks of this package say in a line what they do.
    """

    #: The model that learns; known when training begins.
    model: Model
    #: The training, as far as callbacks may ask it for something.
    session: Session
    #: Whether callbacks of this one have its parent, instead of itself, as theirs.
    TRANSPARENT: ClassVar[bool] = False
    #: Whether it hears of a round's steps together when the round has ended, in this process, too.
    TOGETHER: ClassVar[bool] = False

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = verbose
        #: Callback that this one belongs to, and those that belong to it.
        self.parent: BaseCallback | None = None
        self.children: tuple[BaseCallback, ...] = ()
        #: Steps of each environment so far, as Stable-Baselines3's calls of `_on_step`; in another callback its calls.
        self.n_calls = 0
        #: Environment steps so far.
        self.num_timesteps = 0
        #: The steps of this round were heard of as they were made.
        self._heard = False
        #: Both of these at each step of the latest round.
        self._counted: list[tuple[int, int]] = []
        #: The latest round's metrics, by their names.
        self.metrics: Metrics = {}
        #: For callbacks of Stable-Baselines3: ``self`` (the model) and ``metrics``; in this process ``infos``,
        #: ``rewards``, ``dones`` and ``new_obs`` of each step, too.
        self.locals: dict[str, object] = _Locals()
        self.globals: dict[str, object] = {}

    # ------------------------------------------------------------------ what the training calls
    def init_callback(self, model: Model, session: Session | None = None) -> None:
        """Learn which model is trained, before anything else; and by which session, before training begins."""
        self.model = model
        if session is not None:
            self.session = session
        self.n_calls, self.num_timesteps = 0, model.num_timesteps
        self.locals = _Locals(self=model)
        for child in self.children:
            child.parent = self.parent if self.TRANSPARENT else self
            child.init_callback(model, session)
        self._init_callback()

    def settings(self, n_envs: int) -> dict[str, object]:
        """Return what the training must do for this callback: keys of the round machine's configuration."""
        del n_envs
        return {}

    # ------------------------------------------------------------------ what happens
    def on_training_start(self) -> None:
        """Do what is due when training begins."""
        self._on_training_start()
        self._on_rollout_start()

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Do what is due after a round.

        Parameters
        ----------
        metrics
            Its scalars.

        Returns
        -------
        bool or None
            False stops the training.
        """
        del metrics
        go_on = self._heard or not wants_steps(self) or hear_steps(self)
        self._heard = False
        self._on_rollout_end()
        self._on_rollout_start()
        return go_on

    def on_evaluation(self, evaluation: Evaluated) -> bool | None:
        """Do what is due after an evaluation; False stops the training."""
        del evaluation
        return None

    def on_checkpoint(self, checkpoint: Written) -> bool | None:
        """Do what is due when a checkpoint is on disk; False stops the training."""
        return _all(callback.on_checkpoint(checkpoint) for callback in self.children)

    def on_training_end(self) -> None:
        """Do what is due when training is over, however it ended; not called if a callback raised."""
        self._on_training_end()

    # ------------------------------------------------------------------ Stable-Baselines3's
    logger = property(attrgetter("model.logger"), doc="Where scalars can be recorded beside the round's own.")

    @property
    def training_env(self) -> VecEnv:
        """The environments that learn now, in this process; ConfigError where they are in others."""
        env = self.model.live_env()
        if env is None:
            raise ConfigError("training_env is at hand in this process alone: learn(..., local=True)")
        return env

    def on_step(self) -> bool:
        """Count a call of the callback that this one belongs to, and call :meth:`_on_step`; return whether to go on."""
        self.n_calls += 1
        return not stops(self._on_step())

    def _init_callback(self) -> None:
        """Prepare; the model is known."""

    def _on_training_start(self) -> None:
        """Do what is due when training begins; callbacks that belong to this one are told."""
        for child in self.children:
            child._on_training_start()

    def _on_rollout_start(self) -> None:
        """Do what is due when a round begins."""

    def _on_step(self) -> bool:
        """Do what is due after a step of each environment; False stops the training after its round."""
        return True

    def _on_rollout_end(self) -> None:
        """Do what is due when a round has ended."""

    def _on_training_end(self) -> None:
        """Do what is due when training is over."""


def end_round(callback: BaseCallback, metrics: Metrics) -> bool:
    """Tell a callback, and all that belong to it, of a round that has ended; return whether to go on."""
    _update(callback, metrics)
    go_on = not stops(callback.on_round_end(metrics))
    callback.logger.drained()  # whoever writes scalars stands last, and has read it
    return go_on


def wants_steps(callback: BaseCallback) -> bool:
    """Return whether a callback wants to hear of steps as they are made, where that can be."""
    if callback.TRANSPARENT:
        return any(map(wants_steps, callback.children))
    return type(callback)._on_step is not BaseCallback._on_step


def hear_step(callback: BaseCallback, n_timesteps: int, told: Mapping[str, object]) -> bool:
    """Tell a callback of a step of all environments as it is made; return whether to go on.

    Parameters
    ----------
    callback
        It.
    n_timesteps
        Environment steps so far.
    told
        What the environments answered, by Stable-Baselines3's names.
    """
    _tell(callback, told)
    if callback.TOGETHER:
        return True
    callback._heard = True
    if callback.TRANSPARENT:
        return _all(hear_step(child, n_timesteps, told) for child in callback.children)
    _count(callback, callback.n_calls + 1, n_timesteps)
    return not (wants_steps(callback) and stops(callback._on_step()))


def _tell(callback: BaseCallback, told: Mapping[str, object]) -> None:
    """Put what a step says into the locals of a callback and of all that belong to it."""
    callback.locals.update(told)
    for child in callback.children:
        _tell(child, told)


def _update(callback: BaseCallback, metrics: Metrics) -> None:
    """Set a round's counters and metrics, of a callback and of all that belong to it."""
    for child in callback.children:
        _update(child, metrics)
    callback.metrics = callback.locals["metrics"] = metrics
    if callback._heard:
        return
    before, now = callback.num_timesteps, int(metrics["time/total_timesteps"])
    n = max(1, (now - before) // callback.model.n_envs)
    callback._counted = [(callback.n_calls + i, before + (now - before) * i // n) for i in range(1, n + 1)]
    _count(callback, *callback._counted[-1])


def _count(callback: BaseCallback, n_calls: int, num_timesteps: int) -> None:
    """Set the counters of a callback and of all that belong to it; those of another one count its calls themselves."""
    callback.num_timesteps = num_timesteps
    if callback.parent is None:
        callback.n_calls = n_calls
    for child in callback.children:
        _count(child, n_calls, num_timesteps)


def hear_steps(callback: BaseCallback) -> bool:
    """Call ``_on_step`` for each step of the round that has ended, until one stops; return whether to go on."""
    go_on = True
    for counters in callback._counted:
        _count(callback, *counters)
        with counted_as(callback.model, callback.num_timesteps):
            go_on = not stops(callback._on_step())
        if not go_on:
            break
    _count(callback, *callback._counted[-1])
    return go_on


def report(callback: BaseCallback, text: str) -> None:
    """Write a line about what a callback does, if it is verbose."""
    if callback.verbose >= 1:
        say(text)


class CallbackList(BaseCallback):
    """Several callbacks as one, in their order; each is called for everything, and one False is enough to stop.

    Parameters
    ----------
    callbacks
        Callbacks, functions of ``(locals, globals)``, or lists of them.
    """

    TRANSPARENT = True

    def __init__(self, callbacks: Sequence[object]) -> None:
        super().__init__()
        self.callbacks = [as_callback(callback) for callback in callbacks]
        self.children = tuple(self.callbacks)

    def settings(self, n_envs: int) -> dict[str, object]:
        """Return what the training must do for all of them.

        Raises
        ------
        ConfigError
            If two of them ask for different evaluations.
        """
        joined: dict[str, object] = {}
        for callback in self.children:
            asked = callback.settings(n_envs)
            different = sorted(key for key in asked.keys() & joined.keys() if asked[key] != joined[key])
            if different:
                raise ConfigError(f"one training has one kind of evaluation, two callbacks differ in {different[0]}")
            joined |= asked
        return joined

    def on_training_start(self) -> None:
        """Call each one."""
        for callback in self.children:
            callback.on_training_start()

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Call each one."""
        self._heard = False
        return _all(callback.on_round_end(metrics) for callback in self.children)

    def on_step(self) -> bool:
        """Call each one's ``_on_step``."""
        return _all(callback.on_step() for callback in self.children)

    def on_evaluation(self, evaluation: Evaluated) -> bool | None:
        """Call each one."""
        return _all(callback.on_evaluation(evaluation) for callback in self.children)

    def on_training_end(self) -> None:
        """Call each one."""
        for callback in self.children:
            callback.on_training_end()


def stops(answer: object) -> bool:
    """Return whether a callback's answer stops the training: False of any kind, numpy's too; None goes on."""
    return answer is not None and not answer


def _all(answers: Iterable[object]) -> bool:
    """Return whether none of the answers stops; every one is asked for."""
    return not [answer for answer in answers if stops(answer)]


class ConvertCallback(BaseCallback):
    """A function of ``(locals, globals)`` as a callback, called as ``_on_step`` is; False stops the training."""

    def __init__(self, callback: Callable[..., object], verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = callback

    def _on_step(self) -> bool:
        return not stops(self.callback(self.locals, self.globals))


def as_callback(callback: object) -> BaseCallback:
    """Return what ``learn(callback=...)`` was given as one callback: None, one, a function, or a list of them.

    Raises
    ------
    ConfigError
        If it is none of these.
    """
    if callback is None:
        return CallbackList(())
    if isinstance(callback, BaseCallback):
        return callback
    if isinstance(callback, list | tuple):
        return CallbackList(callback)
    if any(base.__module__.startswith("stable_baselines3.") for base in type(callback).__mro__):
        from drlnb.fleet.callbacks.foreign import ours_of

        return ours_of(callback)
    if callable(callback) and not isinstance(callback, type):
        return ConvertCallback(callback)
    made = (
        f"an instance, {callback.__name__}(...), not the class" if isinstance(callback, type) else f"got {callback!r}"
    )
    raise ConfigError(f"callback must be a drlnb callback, a function(locals, globals) or a list of them: {made}")


class EventCallback(BaseCallback):
    """A callback that calls another one now and then."""

    def __init__(self, callback: object = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = None if callback is None else as_callback(callback)
        self.children = () if self.callback is None else (self.callback,)

    def _on_event(self) -> bool:
        return self.callback is None or self.callback.on_step()
