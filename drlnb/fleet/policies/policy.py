"""Use a trained policy: predict, save."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from weakref import WeakMethod

import numpy as np
import numpy.typing as npt

from drlnb.fleet.policies.files import ATTRIBUTES, File, newest, save_model
from drlnb.fleet.policies.held import Held
from drlnb.fleet.policies.logger import Logger
from drlnb.fleet.policies.tensors import tensors_of
from drlnb.fleet.policies.vec_env import VecEnv
from drlnb.records.attributes import assignable, no_attribute
from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_actor, settings_class
from drlnb.rl.checkpoints.trained import Trained

if TYPE_CHECKING:
    import gymnasium
    import torch

    from drlnb.fleet.policies.torch_policy import Policy
    from drlnb.rl.acting.actors import Actor
    from drlnb.rl.networks.exported import ActionValues

__all__ = ["KINDS", "Model", "counted_as", "load_model"]


#: What users may want to assign -> what does it instead.
_WAYS = {
    "env": "set_env(env) goes on elsewhere",
    "num_timesteps": "steps are counted, learn(reset_num_timesteps=...) says from where",
    "exploration_rate": "exploration_final_eps is that of predict, the other exploration settings of training",
    "logger": "scalars go to tensorboard_log, or to a run's track(...)",
    "settings": "assign them one by one, as model.gamma = .5",
}


#: What Stable-Baselines3 leaves out of its files, too.
_NEVER_SAVED = {"policy", "device", "env", "replay_buffer", "rollout_buffer", "_vec_normalize_env", "logger", "_logger"}

#: What users of Stable-Baselines3 read of a model and there is not here -> what has it instead.
_READ = {
    "q_net": "it is a DQN's; policy.get_distribution(obs) has another model's probabilities",
    "q_net_target": "a saved model's optimizer.safetensors holds its tensors; what is changed in q_net changes it, too",
    "dump_logs": "a round's end writes its scalars, learn(log_interval=...) prints them",
    "rollout_buffer": "samples travel as fragments: a callback sees each step's in self.locals",
    "replay_buffer": "a DQN's ring is in its checkpoints: save_replay_buffer(path) and load_replay_buffer(path)",
    "lr_schedule": "settings has learning_rate",
    "optimizer": "policy.optimizer is one over its parameters, with moments of its own; checkpoints hold learn's",
    "get_vec_env": "get_env() steps copies of the environment",
    "env": "run.load(task).get_env() gives copies, to be stepped by hand",
    "use_sde": "it is a setting of PPO",
    "sde_sample_freq": "it is a setting of PPO",
    "train": "learn(...) makes gradient steps, round by round",
    "collect_rollouts": "learn(...) collects, round by round",
    "policy_class": "settings['policy'] has its name",
    "action_noise": "exploration is the algorithm's own",
    "start_time": "time/time_elapsed is among the metrics of a round",
    "exploration_schedule": "exploration_initial_eps, exploration_final_eps and exploration_fraction say how it falls",
    "_last_obs": "a callback sees self.locals['new_obs'] of each step, with local=True",
    "_n_updates": "train/n_updates is among the metrics of a round",
    "_total_timesteps": "spec.total_timesteps has it",
    "_current_progress_remaining": "it is 1 - num_timesteps / spec.total_timesteps",
    "_vec_normalize_env": "the model holds its statistics itself, with normalize=True",
}


#: Length of what an environment returns -> what that is, and how its observation is had.
_ANSWERS = {
    2: "reset() returns: say obs, info = env.reset()",
    5: "step() returns: say obs, reward, terminated, truncated, info = env.step(action)",
}


def _refusal(model: "Model", name: str) -> str:
    """Return why an attribute cannot be assigned, and what does it instead."""
    kind, spec = type(model).__name__, model.spec
    way = _WAYS.get(name) or _READ.get(name) or settings_class(spec.algo).UNSUPPORTED.get(name, "")
    if name in spec.hyperparameters:
        way = f"run.set('rl.{name}', value) changes what can change while the task trains"
    if way or hasattr(type(model), name):
        return f"{name} of a {kind} cannot be assigned{way and ': '}{way.format(name=kind)}"
    return no_attribute(type(model), name, *spec.hyperparameters)


def _of_spec(field: str, says: str) -> property:
    return property(attrgetter(f"spec.{field}"), doc=says)


def _space(plain: Mapping[str, object] | None) -> "gymnasium.Space":
    from drlnb.rl.networks.modules import space_of

    return space_of(plain or {})


class Model:
    """A policy, and what is known of its training.

    Parameters
    ----------
    spec
        The task that it was trained on, with its spaces.
    trained
        Its state; None: not trained yet.
    """

    #: The task: environment, algorithm, settings, spaces; the budget is the latest one's.
    spec: RlWork
    #: What was learnt, and the policy that users hold of it.
    _held: Held
    _actor: "Actor | None"
    #: What the actor has loaded.
    _loaded: npt.NDArray[np.uint8] | None

    #: Where callbacks record scalars while it learns.
    _logger: Logger | None = None
    #: Environment steps at the step that a callback is told of; None: none is.
    _now: int | None = None

    n_envs = _of_spec("n_envs", "Environments over all collectors.")
    n_collectors = _of_spec("n_collectors", "Collector processes.")
    n_learners = _of_spec("n_learners", "Slots that compute a round's gradient side by side, in one lease.")
    deterministic = _of_spec("deterministic", "Whether the same bits come out wherever it computes.")
    seed = _of_spec("seed", "Of every random stream.")
    observation_space = property(lambda self: _space(self.spec.observation_space), doc="What the environment returns.")
    action_space = property(lambda self: _space(self.spec.action_space), doc="What the environment takes.")

    def __init__(self, spec: RlWork, trained: Trained | None = None) -> None:
        self.spec, self._held = spec, Held(trained)
        self._actor = self._loaded = None

    @property
    def trained(self) -> Trained | None:
        """What was learnt, with what was changed in :attr:`policy`; None: nothing yet."""
        return self._held.trained()

    @property
    def settings(self) -> Mapping[str, object]:
        """The algorithm's settings, complete, under Stable-Baselines3's names; each is an attribute, too."""
        changed = {} if self.trained is None else self.trained.state.facts.get("live", {})  # while it trained
        return MappingProxyType({**self.spec.hyperparameters, **changed})

    def __getattr__(self, name: str) -> object:
        """Return a setting."""
        if "_held" in self.__dict__ and name in self.spec.hyperparameters:
            return self.settings[name]
        way = _READ.get(name) or ("spec" in self.__dict__ and settings_class(self.spec.algo).UNSUPPORTED.get(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{(way and f': {way}') or ''}")

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse what would have no effect, by an AttributeError that names the way."""
        kind: type = type(self)
        if name not in assignable(kind):
            raise AttributeError(_refusal(self, name))
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.spec.env}: {self.num_timesteps:,} steps>"

    @property
    def num_timesteps(self) -> int:
        """Environment steps of the present budget that the parameters have seen."""
        if self._now is not None:
            return self._now
        return self.trained.n_timesteps if self.trained is not None else 0

    @property
    def version(self) -> int:
        """Version of the parameters: 1 before the first round."""
        return self.trained.n_rounds + 1 if self.trained is not None else 1

    @property
    def parameters(self) -> "npt.NDArray[np.uint8]":
        """What actors need: policy and statistics in one buffer; see :mod:`drlnb.rl.networks.layout`."""
        return self._state().state.published

    def _state(self) -> Trained:
        """Return the state; an untrained model's is made from its seed, which loads torch."""
        return self._held.made(self.spec)

    def adopt(self, trained: Trained | None) -> None:
        """Go on with another state; None: with that of its seed."""
        self._held.adopt(self.spec, trained)

    def predict(
        self,
        observation: object,
        state: object = None,
        episode_start: object = None,
        deterministic: bool = False,
        action_masks: object = None,
    ) -> tuple[Any, None]:
        """Return the action for one observation or a batch of them, as Stable-Baselines3 does.

        Parameters
        ----------
        observation
            Raw, as the environment returns it (statistics are applied here), shape ``(*obs)`` or ``(B, *obs)``; of a
            ``Dict`` space a mapping of such arrays.
        state, episode_start
            Of recurrent policies, which there are none of; ignored, as Stable-Baselines3's other policies do.
        deterministic
            The most likely action instead of a sample.
        action_masks
            Which choices are allowed, as of sb3-contrib's ``MaskablePPO``; for a model with ``use_masking``.

        Returns
        -------
        tuple
            An action as the environment takes it, or an array of such; and None, the missing recurrent state.

        Raises
        ------
        ValueError
            If an observation has another shape than the task's, or the masks are wrong or not this policy's.
        """
        del state, episode_start
        if isinstance(observation, tuple) and len(observation) in _ANSWERS and isinstance(observation[-1], dict):
            raise ValueError(f"predict takes an observation, got what {_ANSWERS[len(observation)]}")
        published = self.parameters
        if self._actor is None:
            self._actor = make_actor(self.spec)
        if self._loaded is not published:
            self._actor.load(published)
            self._loaded = published
        return self._actor.predict(observation, deterministic=deterministic, action_masks=action_masks)

    @property
    def logger(self) -> Logger:
        """Where callbacks record scalars beside a round's own."""
        self._logger = self._logger or Logger()
        return self._logger

    def live_env(self) -> VecEnv | None:
        """Return the environments that learn in this process now: none do."""
        return None

    # ------------------------------------------------------------------ what it is made of
    @property
    def policy(self) -> "Policy":
        """Its networks, a ``torch.nn.Module`` on the CPU; what is changed in it is changed in the model."""
        from drlnb.fleet.policies.torch_policy import Policy

        _ = self.parameters  # what has ended is taken over
        policy = self._held.policy
        if policy is None:
            policy = self._held.policy = Policy(self.spec, self._state().state, WeakMethod(self.predict))
        return policy

    @property
    def q_net(self) -> "ActionValues":
        """Action values of a DQN, a ``torch.nn.Module``: the network of :attr:`policy`."""
        if self.spec.algo != "dqn":
            raise AttributeError
        return cast("ActionValues", self.policy.q_net)

    def get_env(self, render_mode: str | None = None) -> VecEnv:
        """Return its environments to be stepped by hand, copies of those that it learns in; close them afterwards.

        Their first reset has the model's seed.

        Parameters
        ----------
        render_mode
            How they are drawn, such as ``human``.
        """
        env = VecEnv(self.spec, render_mode=render_mode)
        env.seed(self.spec.seed)
        return env

    def get_parameters(self) -> "dict[str, dict[str, torch.Tensor]]":
        """Return copies of all tensors that are trained, as ``{"policy": {name: tensor}}``; no optimiser's."""
        return {"policy": tensors_of(self.spec, self._state())}

    def save(
        self, path: File, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | BinaryIO:
        """Write the model as one zip file, or as a folder; nothing in it is a pickle.

        Parameters
        ----------
        path
            ``.zip`` is put behind a name without a suffix; a folder that is there, or a text that ends with ``/``, is
            written as a folder; a file that is open in binary mode gets the zip file and stays open.
        exclude, include
            Names of attributes that are left out, ``verbose`` or ``tensorboard_log``, and of those that are written all
            the same; what is never in a file (``env``, ``replay_buffer``) may be left out as well.

        Returns
        -------
        Path or BinaryIO
            What was written.

        Raises
        ------
        ConfigError
            If it cannot be written there, `exclude` names what the model needs, or `include` what no file holds.
        """
        out, into = ({each} if isinstance(each, str) else set(each or ()) for each in (exclude, include))
        written = _written(out, into, self.settings)
        return save_model(path, self.spec, self._state(), {name: getattr(self, name, None) for name in written})


def _written(out: set[str], into: set[str], settings: Collection[str]) -> list[str]:
    """Return which attributes a model's file shall hold; ConfigError as of :meth:`Model.save`."""
    for name in sorted(out - into - _NEVER_SAVED - {*ATTRIBUTES}):
        raise ConfigError(
            f"exclude takes {' and '.join(ATTRIBUTES)}, not {name}: a model is made of its settings, and "
            "load(path, NAME=value) changes one"
        )
    for name in sorted(into - set(settings) - {*ATTRIBUTES}):
        raise ConfigError(f"include: {name} is in no file; it holds {', '.join(ATTRIBUTES)} and all settings")
    return [name for name in ATTRIBUTES if name in into or name not in out]


@contextlib.contextmanager
def counted_as(model: Model, n_timesteps: int) -> Iterator[None]:
    """Say in a model's ``num_timesteps`` where the step is that a callback is told of."""
    model._now = n_timesteps
    try:
        yield
    finally:
        model._now = None


#: Algorithm -> class of its models; :mod:`drlnb.fleet.algorithms` puts its own in, which can learn on.
KINDS: dict[str, type[Model]] = {}
_ALGORITHMS = "drlnb.fleet.algorithms"


def load_model(spec: RlWork, folder: Path) -> Model:
    """Return the policy of a task's newest whole checkpoint in ``OUT/checkpoints/<task>``; raises as `newest`."""
    import_module(_ALGORITHMS)  # not before: it loads torch, for which nobody waits who only starts a fleet
    kind = KINDS.get(spec.algo, Model)
    model = kind.__new__(kind)
    Model.__init__(model, spec, newest(spec, folder))
    return model
