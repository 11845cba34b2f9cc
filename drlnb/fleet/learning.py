"""Train a model for one budget after the other: in this process, or on the fleet's cluster."""

import contextlib
import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from drlnb.fleet.callbacks.base import CallbackList
from drlnb.fleet.callbacks.local_session import LocalSession
from drlnb.fleet.faces import say
from drlnb.fleet.fleet import Fleet, client_of, current_fleet
from drlnb.fleet.listening import RunSession
from drlnb.fleet.plain import COUNT, Row
from drlnb.fleet.policies.files import newest
from drlnb.fleet.policies.held import Held
from drlnb.fleet.policies.policy import Model
from drlnb.fleet.policies.tensors import republished
from drlnb.fleet.policies.vec_env import VecEnv, count_as_theirs
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import default_out, run_spec
from drlnb.fleet.tasks.sources import as_it_stands
from drlnb.fleet.training import Training
from drlnb.fleet.trainings import STOP_S
from drlnb.records.episodes import Episode
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.spec import SOURCE_KEYS, RlWork
from drlnb.rl.algorithms.resolve import live_value
from drlnb.rl.checkpoints.trained import State, Trained, anew
from drlnb.rl.local.train import LocalLoop
from drlnb.rl.networks.policies import is_module
from drlnb.rl.networks.same_bits import one_thread
from drlnb.rl.pickled import is_kept

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Trainable",
    "device_of",
    "holds",
    "launch",
    "learn_here",
    "learn_on_fleet",
    "move",
    "resting",
    "set_while_it_trains",
    "take_over",
    "trains_here",
]


#: Model -> what its script has given it as environment, and may change; no part of the model, which can be copied.
_GIVEN: "WeakKeyDictionary[Trainable, object]" = WeakKeyDictionary()


#: Model -> where the copies come from that its script steps by hand, and these.
_STEPPED: "WeakKeyDictionary[Trainable, tuple[dict[str, object], VecEnv]]" = WeakKeyDictionary()


class Trainable(Model):
    """A model that can be trained on."""

    # Defaults for a model that was loaded: its constructor never ran.
    verbose: int = 0
    #: Folder of event files; None: none are written.
    tensorboard_log: str | Path | None = None
    #: Where to train; None: on the fleet that is up, or a new one.
    fleet: Fleet | None = None
    #: Where it computes in this process, and what a fleet's slots must be: ``auto``, ``cpu``, ``cuda`` or ``cuda:K``.
    device: str = "auto"
    #: Several collectors were asked for.
    several: bool = False
    #: The training in this process, and the run, that learn for it now.
    _live: LocalLoop | None = None
    _run: Training | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy gets: a fleet, a run and a training that go on stay here, and actors are made anew."""
        take_over(self)
        held = self._held if self._live is None else Held(self._state())
        stay = dict.fromkeys(("fleet", "_run", "_live", "_actor", "_loaded"))
        return {**vars(self), **stay, "_held": held}

    def _state(self) -> Trained:
        take_over(self)
        if self._live is None:
            return super()._state()
        self._held.read_back()
        return self._live.trained()

    @property
    def parameters(self) -> "npt.NDArray[np.uint8]":
        """What actors need: policy and statistics in one buffer; see :mod:`drlnb.rl.networks.layout`."""
        if self._live is None:
            return super().parameters
        self._held.read_back()
        return self._live.parameters

    @property
    def num_timesteps(self) -> int:
        """Environment steps of the present budget that the parameters have seen."""
        take_over(self)
        live = self._live if self._now is None else None
        return super().num_timesteps if live is None else live.n_timesteps

    @property
    def ep_info_buffer(self) -> deque[dict[str, float]]:
        """Return and length of the latest `stats_window_size` episodes, as ``{"r", "l"}``."""
        return deque([{"r": float(each[0]), "l": float(each[1])} for each in _latest(self)], _window(self))

    @property
    def ep_success_buffer(self) -> deque[bool]:
        """Whether each of the same episodes succeeded, of those whose environment judges that."""
        return deque([bool(each[2]) for each in _latest(self) if len(each) > 2], _window(self))

    def live_env(self) -> VecEnv | None:
        """Return the environments that learn in this process now; None where there are none."""
        return None if self._live is None else VecEnv(self.spec, self._live.envs)

    def get_env(self, render_mode: str | None = None) -> VecEnv:
        """Return the environments that learn in this process now, else copies to be stepped by hand.

        The same copies each time, until they are closed, or the model gets other environments.
        """
        return self.live_env() or _in_hand(self, render_mode, super().get_env)

    env = property(lambda self: self.get_env(), doc="What :meth:`get_env` returns.")

    def set_logger(self, logger: object) -> None:
        """Write scalars by what Stable-Baselines3's ``configure(...)`` returned, instead of tables and event files."""
        self.logger.follow(logger)

    def get_vec_normalize_env(self) -> None:
        """Return None: the model holds its statistics itself."""


def _latest(model: Trainable) -> tuple[Episode, ...]:
    held = model._live or model.trained
    return held.episodes if held else ()


def _window(model: Trainable) -> int:
    return int(model.spec.hyperparameters["stats_window_size"])


def _in_hand(model: Trainable, render_mode: str | None, make: Callable[[str | None], VecEnv]) -> VecEnv:
    """Return the copies that a model's script steps by hand; others where these are closed or of other environments."""
    source = {key: getattr(model.spec, key) for key in (*SOURCE_KEYS, "n_envs")}
    of, env = _STEPPED.get(model, (None, None))
    if env is None or of != source or env.closed or render_mode not in {None, env.render_mode}:
        env = make(render_mode)
        _STEPPED[model] = source, env
    count_as_theirs()  # they may have been imported since these were made
    return env


def trains_here(model: Trainable, local: bool | None) -> bool:
    """Return whether a model is trained in this process, and say so in its first budget where nobody has said it.

    One task is trained sooner by one process than by a cluster with two collectors on two cores, whatever its budget
    (``python -m benchmarks rl --rows budget``), so a cluster is used where it is up or was asked for.

    Parameters
    ----------
    model
        The model.
    local
        What was asked for; None: nothing.
    """
    spec = model.spec
    if is_kept(spec.env_factory):
        return local is not False
    asked = model.fleet is not None or model.several or spec.n_learners > 1 or not isinstance(client_of(), str)
    if local is None and not asked:
        if not model.num_timesteps:
            say("training in this process (local=False: on a cluster, to watch, stop and resume)")
        return True
    return bool(local)


def device_of(value: object) -> str:
    """Return a device in PyTorch's spelling, of a text or a ``torch.device``; ConfigError if it is none we know."""
    text = str(value)
    if text != "auto" and not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", text):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:K, got {value!r}")
    return text


def _torch_device(device: str, spec: RlWork) -> str:
    """Return where to compute in this process; ConfigError if there is no such device."""
    if device == "cpu" or (device == "auto" and not is_module(spec)):  # an MLP is quicker there
        return "cpu"
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    n = torch.cuda.device_count()
    if int(device.partition(":")[2] or 0) >= n:
        raise ConfigError(f"device={device!r}: torch {torch.__version__} sees {n} CUDA devices in this process")
    return device


def _check_fleet(model: Trainable, fleet: Fleet) -> None:
    """Refuse a fleet whose slots are other devices than the model asks for."""
    kind = model.device.partition(":")[0]
    if kind == "auto" or any(slot.device.startswith(kind) for slot in fleet.slots):
        return
    there = ", ".join(sorted({slot.device.partition(":")[0] for slot in fleet.slots}))
    raise ConfigError(
        f"device={model.device!r}, but the fleet's slots are {there}: device='auto' takes them, "
        f'drlnb.Fleet(slots=["{kind}:0"]) has others, local=True computes in this process'
    )


def learn_here(model: Trainable, total: int, callbacks: CallbackList, *, reset: bool) -> None:
    """Train in this process to the end of the budget."""
    spec, start = _next(model, total, reset=reset)
    with one_thread():
        _begin(model, spec, start)
        callbacks.init_callback(model)
        session = LocalSession(
            spec, start, callbacks, callbacks.settings(spec.n_envs), _torch_device(model.device, spec)
        )
        model._live, model._held.elsewhere = session.loop, session.loop.put
        try:
            callbacks.init_callback(model, session)
            model.adopt(session.follow())
        except BaseException:  # what was learnt stays; the environments stand somewhere inside a round
            model.adopt(session.loop.trained(envs=False))
            raise
        finally:
            model._live = model._held.elsewhere = None


def learn_on_fleet(model: Trainable, total: int, callbacks: CallbackList, *, reset: bool) -> None:
    """Train on the fleet, call the callbacks from here, and wait."""
    run = launch(model, total, callbacks, None, "error", reset=reset)
    (task,) = run.specs
    session = RunSession(run, task, callbacks)
    try:
        callbacks.init_callback(model, session)
        session.follow()
        run.wait()
    finally:
        take_over(model)


def launch(
    model: Trainable, total: int, callbacks: CallbackList, out: str | Path | None, on_existing: str, *, reset: bool
) -> Training:
    """Start training on the fleet; the callbacks are asked what they need, and not called."""
    if is_kept(model.spec.env_factory):
        raise ConfigError(f"{model.spec.env} cannot be copied, so it trains in this process alone: learn() does")
    spec, start = _next(model, total, reset=reset)
    callbacks.init_callback(model)
    settings: Row = callbacks.settings(spec.n_envs)
    judged = replace(spec, eval_source=settings.pop("eval_source", None))
    whole = replace(run_spec([judged], chosen()), settings=settings)
    if model.fleet is None or model.fleet.closed:
        model.fleet = current_fleet()
    _check_fleet(model, model.fleet)
    begun = {} if start is None else {spec.name: start}
    model._run = model.fleet.begin(whole, out or default_out(), on_existing, begun)
    _begin(model, spec, start)
    model._held.elsewhere = partial(_refuse_change, model._run.id)
    return model._run


def _refuse_change(run: str, state: State) -> None:
    """Refuse what was changed in the policy of a model that a run trains."""
    del state
    raise ConfigError(
        f"what was changed in model.policy while run {run} trains it is undone: wait for the run, or stop it"
    )


def set_while_it_trains(model: Trainable, key: str, value: object) -> bool:
    """Change a setting of the run that trains a model; False: it has ended in the meantime, and is taken over.

    Raises
    ------
    ConfigError
        If the run cannot change it.
    """
    run = model._run
    if run is None:
        return False
    wanted = live_value(model.spec, key, value)  # what is wrong with it
    try:
        run.set(key, wanted)
    except ConfigError:
        run.watch.settle(STOP_S)  # a run that is about to end takes nothing more
        if not run.ended:
            raise
        take_over(model)
        return False
    return True


def take_over(model: Trainable) -> None:
    """Adopt the state of a run that has ended."""
    run = model._run
    if run is None or not run.ended:
        return
    try:
        model._held.read_back()
    except ConfigError as error:  # nothing is lost but that: the run's outcome comes
        say(str(error))
    model._run = model._held.elsewhere = None
    (task,) = run.specs
    with contextlib.suppress(CheckpointError):  # it ended before its first checkpoint: nothing was learnt
        model.adopt(newest(model.spec, run.out / "checkpoints" / task))


def resting(model: Trainable) -> None:
    """Take over what has ended; raise ConfigError if the model is being trained."""
    take_over(model)
    if model._run is not None:
        raise ConfigError(f"run {model._run.id} is training this model: wait for it, or stop it")
    if model._live is not None:
        raise ConfigError("this model is being trained: a callback cannot change that")


def holds(model: Trainable, env: object) -> None:
    """Note what a script has given a model as environment: what is set on it counts in the next budget."""
    _GIVEN[model] = env


def _look_again(model: Trainable) -> None:
    """Take what the script has set on its environment since; episodes begin anew where that is something."""
    spec = as_it_stands(model.spec, _GIVEN[model]) if model in _GIVEN else model.spec
    if spec != model.spec:
        move(model, spec)


def move(model: Trainable, spec: RlWork) -> None:
    """Have a model go on with new episodes in another environment."""
    model.spec = spec
    if model.trained is not None:
        model.adopt(replace(model.trained, envs=None))


def _begin(model: Trainable, spec: RlWork, start: Trained | None) -> None:
    model.spec = spec
    if start is not None:
        model.adopt(start)


def _next(model: Trainable, total: int, *, reset: bool) -> tuple[RlWork, Trained | None]:
    """Return the task with its budget, and where it goes on from; None: from the beginning."""
    total = COUNT.read("total_timesteps", total)
    resting(model)
    _look_again(model)
    trained = model.trained
    if name := model._held.frozen():
        raise ConfigError(
            f"{name} of model.policy is frozen, and would be trained all the same: freeze it in a network of your own "
            "(policy= or features_extractor_class), or set requires_grad again"
        )
    if trained is None or trained is model._held.drawn:
        return replace(model.spec, total_timesteps=total), None
    if reset and trained.n_rounds:
        trained = anew(trained, model.n_envs)
    spec = replace(model.spec, total_timesteps=total + trained.n_timesteps)
    return spec, republished(spec, trained)
