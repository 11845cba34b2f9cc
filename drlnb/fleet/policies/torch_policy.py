"""Hold a model's networks as one torch module, under Stable-Baselines3's names: what is changed in it counts."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self, TypeAlias, cast
from weakref import WeakMethod

import numpy as np
import torch
from torch import Tensor, nn

from drlnb.fleet.policies.files import File, load_model, save_model
from drlnb.fleet.policies.tensors import with_values
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.gpf_actor import unpack_family
from drlnb.rl.algorithms.registry import make_actor, settings_of
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.rl.envs.masks import FORBIDDEN
from drlnb.rl.networks.distributions import Distribution
from drlnb.rl.networks.exported import ActionValues, MostLikely, Network, Observations, Parts, parts_of
from drlnb.rl.networks.layout import Layout
from drlnb.rl.networks.modules import space_of
from drlnb.rl.networks.own_optimizer import own_optimizer
from drlnb.rl.networks.trained_state import ADAM_EPS
from drlnb.rl.objectives.gpf_losses import log_strategy
from drlnb.rl.rows import as_rows
from drlnb.rl.schedules import parse_schedule, progress_remaining
from drlnb.rl.settings.gpf import GpfSettings

if TYPE_CHECKING:
    from drlnb.rl.acting.actors import Actor

__all__ = ["Policy"]

_Predict: TypeAlias = Callable[..., tuple[np.ndarray, None]]

#: What users of Stable-Baselines3 ask a policy for, and it is not here -> what does it instead.
_WAYS = {
    "q_net": "it is a DQN's, get_distribution(obs) has the probabilities",
    "net_arch": "model.settings['policy_kwargs']",
    "lr_schedule": "model.settings['learning_rate']",
    "is_vectorized_observation": "obs_to_tensor(obs) says whether it was a batch",
    "reset_noise": "each sample draws a matrix of its own",
    "_predict": "policy(obs) gives actions",
    "features_dim": "extract_features(obs).shape[1]",
    "share_features_extractor": "model.settings['policy_kwargs']",
    "use_sde": "model.settings['use_sde']",
    "parameters_to_vector": "torch.nn.utils.parameters_to_vector(policy.parameters())",
    "load_from_vector": "torch.nn.utils.vector_to_parameters(vector, policy.parameters())",
    "action_dist": "get_distribution(obs) has the distribution",
    "q_net_target": "a saved model's optimizer.safetensors holds its tensors; what is changed in q_net changes it, too",
    "scale_action": "predict(...) returns actions within their bounds",
    "unscale_action": "predict(...) returns actions within their bounds",
}


class Policy(Network):
    """A model's networks: what they answer, and their parameters.

    What is changed in its parameters (in place, by :meth:`load_state_dict` or by an optimizer) counts in the model's
    next ``predict``, ``save`` and ``learn``, and what the model learns is seen here after each round.  Without its
    model, loaded alone, it predicts by itself.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    state
        What was learnt.
    predict
        The model's ``predict``; None: there is no model.
    """

    def __init__(self, spec: RlWork, state: State, predict: "WeakMethod[_Predict] | None" = None) -> None:
        super().__init__(spec)
        #: What its parameters were when they were last read, or put in.
        self.state = state
        self.observation_space, self.action_space = (
            space_of(plain or {}) for plain in (spec.observation_space, spec.action_space)
        )
        self._model_predicts = predict
        self._actor: Actor | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        #: Parameters that learning changes.
        self.trainable = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        self.fill(_flat(state, self.layout), state.published)

    # ------------------------------------------------------------------ between the model and its parameters
    def show(self, spec: RlWork, state: State) -> None:
        """Put other parameters in."""
        self.spec, self.state, self._actor = spec, state, None
        self.fill(_flat(state, self.layout), state.published)
        if self._optimizer is not None:
            self._optimizer.param_groups[0]["lr"] = _rate(spec, state)

    def taken(self) -> State:
        """Return the state with what was changed in the parameters since they were put in; the same one if nothing was.

        Raises
        ------
        ConfigError
            If a parameter has another shape now.
        """
        changed = self.differs(_flat(self.state, self.layout))
        if changed:
            self.state, self._actor = with_values(self.layout, self.spec.algo, self.state, changed), None
        return self.state

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy gets, or a file of ``torch.save``: it stands alone."""
        return {**super().__getstate__(), "_model_predicts": None, "_actor": None, "_optimizer": None}

    # ------------------------------------------------------------------ what it answers
    def forward(
        self, obs: Observations, deterministic: bool | None = None, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor] | Tensor:
        """Return actions, values ``(B, 1)`` and log-probabilities ``(B,)``; of a DQN its best actions alone.

        Parameters
        ----------
        obs
            Raw observations ``(B, *obs)``.
        deterministic
            The most likely actions instead of samples; None: False, of a DQN True.
        action_masks
            Which choices are allowed, bool, shape ``(B, width)``.

        Returns
        -------
        tuple or Tensor
            Actions as of :meth:`get_distribution`; :meth:`predict` cuts them to their bounds.
        """
        if self.spec.algo == "dqn":
            return self.outputs(obs).argmax(1) + self.start
        known = self.get_distribution(obs, action_masks)
        actions = known.get_actions(deterministic=bool(deterministic))
        return actions.reshape(-1, *self._shape), self.predict_values(obs), known.log_prob(actions)

    def get_distribution(self, obs: Observations, action_masks: Tensor | None = None) -> Distribution:
        """Return what the policy may do after observations ``(B, *obs)``; masks are as of :meth:`forward`."""
        if self.spec.algo == "dqn":
            raise AttributeError("a DQN has no get_distribution: its action values are q_net(obs)")
        outputs = self.outputs(obs)
        if self.spec.algo == "gpf":  # the first member of the family plays
            family = unpack_family(self.state.published, cast(GpfSettings, settings_of(self.spec)))
            outputs = log_strategy(outputs, torch.from_numpy(family[:1]).to(outputs.device))
        if action_masks is not None:
            allowed = torch.as_tensor(action_masks, dtype=torch.bool, device=outputs.device).reshape(outputs.shape)
            outputs = outputs.masked_fill(~allowed, FORBIDDEN)
        return self.distribution_of(outputs)

    def evaluate_actions(
        self, obs: Observations, actions: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return values ``(B, 1)``, log-probabilities and entropies ``(B,)`` of actions, as of :meth:`forward`."""
        known = self.get_distribution(obs, action_masks)
        return self.predict_values(obs), known.log_prob(torch.as_tensor(actions)), known.entropy()

    def obs_to_tensor(self, observation: object) -> tuple[Observations, bool]:
        """Return an observation, or a batch, as a batch of tensors (by key), and whether it was a batch."""
        single = as_rows(self._space, observation)[1]

        def tensor(value: object) -> Tensor:
            array = np.asarray(value)
            return torch.as_tensor(array[None] if single else array, device=self.device)

        if isinstance(observation, Mapping):
            return {key: tensor(value) for key, value in observation.items()}, not single
        return tensor(observation), not single

    def predict(
        self,
        observation: object,
        state: object = None,
        episode_start: object = None,
        deterministic: bool = False,
        action_masks: object = None,
    ) -> tuple[np.ndarray, None]:
        """Return actions as the environment takes them; as :meth:`drlnb.PPO.predict`, which does it."""
        of_model = None if self._model_predicts is None else self._model_predicts()
        if of_model is not None:
            return of_model(observation, state, episode_start, deterministic, action_masks)
        del state, episode_start
        published = self.taken().published
        if self._actor is None:
            self._actor = make_actor(self.spec)
            self._actor.load(published)
        return self._actor.predict(observation, deterministic=deterministic, action_masks=action_masks)

    # ------------------------------------------------------------------ its parts
    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return next(self.parameters()).device

    @property
    def greedy(self) -> MostLikely:
        """The most likely actions as the environment takes them, as a module for ``torch.onnx.export``."""
        return MostLikely(self)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """An optimizer over its parameters, of the kind and at the learning rate that the settings say.

        Its moments are its own: ``learn`` has others, and sets the learning rate by its schedule.
        """
        if self._optimizer is None:
            kwargs = self.spec.hyperparameters.get("policy_kwargs") or {}
            kind, given = kwargs.get("optimizer_class", "Adam"), kwargs.get("optimizer_kwargs")
            more = {"eps": ADAM_EPS} if given is None and kind == "Adam" and self.spec.algo != "dqn" else given or {}
            make = own_optimizer(self.spec) or partial(getattr(torch.optim, str(kind)), **more)
            self._optimizer = make(list(self.parameters()))
            self._optimizer.param_groups[0]["lr"] = _rate(self.spec, self.state)
        return cast(torch.optim.Optimizer, self._optimizer)

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        """Return a part of it; of what a policy of Stable-Baselines3's has beside it, say what does that here."""
        if name in Parts._fields and (parts := parts_of(self)) is not None:
            return cast(nn.Module, getattr(parts, name))
        if name == "q_net" and self.spec.algo == "dqn":
            return ActionValues(self)
        if name in Parts._fields:
            raise AttributeError(f"this policy has no {name}: " + _of_whose(self.spec))
        if name in _WAYS:
            raise AttributeError(f"a policy has no {name} here: {_WAYS[name]}")
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse another network or optimizer, which nobody would train with."""
        if name in {*Parts._fields, "q_net", "optimizer"}:
            way = "policy_kwargs has optimizer_class" if name == "optimizer" else "policy_kwargs, or a policy function"
            raise AttributeError(f"{name} of a policy cannot be replaced: {way} when the model is made")
        super().__setattr__(name, value)

    # ------------------------------------------------------------------ alone
    #: Switch between training and evaluation.
    set_training_mode = nn.Module.train

    def save(self, path: File) -> None:
        """Write a model's file with these parameters; see :meth:`drlnb.PPO.save`."""
        state = self.taken()
        n_rounds, n_timesteps = (int(state.facts[name]) for name in ("round", "n_timesteps"))
        save_model(path, self.spec, Trained(state=state, n_rounds=n_rounds, n_timesteps=n_timesteps))

    @classmethod
    def load(cls, path: File, device: str = "auto", *, trust: bool = False) -> Self:
        """Read the policy of a model's file."""
        spec, trained = load_model(path, trust=trust)
        policy = cls(spec, trained.state)
        policy.to("cpu" if device == "auto" else device)
        return policy


def _flat(state: State, layout: Layout) -> np.ndarray:
    """Return the trained tensors of a state, one behind the other."""
    return state.buffer[: 4 * layout.n_total].view(np.float32)


def _rate(spec: RlWork, state: State) -> float:
    """Return the learning rate that a state has come to."""
    rate = {**spec.hyperparameters, **state.facts["live"]}["learning_rate"]
    return parse_schedule(rate)(progress_remaining(int(state.facts["n_timesteps"]), spec.total_timesteps))


def _of_whose(spec: RlWork) -> str:
    if spec.algo == "dqn":
        return "a DQN has action values, q_net"
    return "its network is a module of its author's, under net"
