"""Copy a trained policy into a torch module of its own, for export and for other programs."""

from typing import NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.heads import bounds
from drlnb.rl.networks.layout import PI, Q, layout_of
from drlnb.rl.networks.modules import build, module_layout, tensors_of
from drlnb.rl.networks.networks import dense
from drlnb.rl.networks.policies import is_module
from drlnb.rl.normalise import CLIP, EPSILON, split_statistics
from drlnb.rl.rows import form_of

__all__ = ["Outputs", "Policy"]


#: What users of Stable-Baselines3 ask a policy for, and it is not here -> what does it instead.
_WAYS = {
    "predict": "model.predict(...) takes what an environment returns",
    "save": "model.save(path), or torch.save(policy, path)",
    "net_arch": "model.settings['policy_kwargs']",
    "set_training_mode": "train(mode) and eval(), as of any module; what is learnt stays in evaluation mode",
    "optimizer": "run checkpoints hold its state",
    "evaluate_actions": "outputs(obs) gives logits, means or action values",
    "get_distribution": "outputs(obs) gives logits, means or action values",
    "predict_values": "get_parameters() has the value's tensors, under vf and value",
    "is_vectorized_observation": "model.predict(...) takes one observation or a batch",
}


class _Copy(nn.Module):
    """A copy of what a model has learnt: what is changed in it does not change the model."""

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return next(self.parameters()).device

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        """Return a part of it; of what a policy of Stable-Baselines3's has beside it, say what does that here."""
        if name in _WAYS:
            raise AttributeError(f"a model's policy is a module alone, without {name}: {_WAYS[name]}")
        return super().__getattr__(name)

    def load_state_dict(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse: nobody would act with it."""
        raise ConfigError("a model's policy is a copy: model.set_parameters(...) changes the model")


class Outputs(_Copy):
    """What a policy's network answers to raw observations: logits, means, or a DQN's action values.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    published
        What its learner published; uint8.
    """

    def __init__(self, spec: RlWork, published: np.ndarray) -> None:
        super().__init__()
        self._module = build(spec) if is_module(spec) else None
        layout = layout_of(spec) if self._module is None else module_layout(spec, self._module)
        layout.check(published)
        if layout.norm_obs:
            if form_of(spec.observation_space) is not None:
                raise ConfigError(f"{spec.env}: the policy of normalised observations with keys cannot be exported")
            statistics = split_statistics(layout.statistics(published))[0]
            self.register_buffer("mean", torch.from_numpy(np.array(statistics.mean)))
            self.register_buffer("var", torch.from_numpy(np.array(statistics.var)))
        #: What they mean.
        self.head = layout.head
        self._normalised, self._scaled, self._activation = layout.norm_obs, layout.scaled, layout.activation
        self._tower = Q if spec.algo == "dqn" else PI
        own = {} if self._module is None else tensors_of(self._module)
        flat = torch.from_numpy(np.array(published[layout.policy_offset :])).view(torch.float32)
        for entry in layout.entries:
            if entry.stop <= layout.n_policy and entry.name != "log_std":
                tensor = flat[entry.start : entry.stop].view(entry.shape)
                if own:
                    own[entry.name].data.copy_(tensor)
                else:
                    self._hold(entry.name, tensor)
        self.requires_grad_(False).eval()

    def _hold(self, name: str, tensor: Tensor) -> None:
        """Take a tensor of an MLP under its name in the layout."""
        *path, last = name.split(".")
        place: nn.Module = self
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        place.register_parameter(last, nn.Parameter(tensor))

    def forward(self, obs: Tensor) -> Tensor:
        """Return outputs ``(B, width)`` for raw observations ``(B, *obs)``; of a space with keys for its rows."""
        if self._normalised:
            seen = (obs.flatten(1) - self.mean) / torch.sqrt(self.var + EPSILON)
            obs = seen.clamp(-CLIP, CLIP).float().view(obs.shape)
        if self._module is not None:
            outputs: Tensor = self._module.actor(obs)
            return outputs
        name, x = self._activation, obs.flatten(1).float()
        activate = getattr(functional, name, None) or getattr(torch, name)
        return dense(dict(self.named_parameters()), self._tower, x / 255.0 if self._scaled else x, activate)


class Policy(_Copy):
    """A trained policy's most likely actions, as :meth:`drlnb.PPO.predict` gives them with ``deterministic=True``.

    It knows no action masks.

    Parameters
    ----------
    spec, published
        As of :class:`Outputs`.
    """

    def __init__(self, spec: RlWork, published: np.ndarray) -> None:
        super().__init__()
        #: The network alone.
        self.outputs = Outputs(spec, published)
        space = dict(spec.action_space or {})
        self._head = self.outputs.head
        self._shape = tuple(space.get("shape", ()))
        self._dtype = getattr(torch, space.get("dtype", "int64"))
        self.register_buffer("start", torch.as_tensor(np.asarray(space.get("start", 0)).ravel()))
        if self._head.continuous:
            low, high = bounds(space)
            self.register_buffer("low", torch.from_numpy(np.array(low, np.float32)))
            self.register_buffer("high", torch.from_numpy(np.array(high, np.float32)))
        self.eval()

    def forward(self, obs: Tensor, deterministic: bool = True) -> Tensor:
        """Return actions ``(B, *action)``, as the environment takes them, for raw observations ``(B, *obs)``."""
        if not deterministic:
            raise ConfigError("a model's policy gives its most likely actions: model.predict(obs) draws samples")
        outputs, kind = self.outputs(obs), self._head.kind
        if kind == "discrete":
            return outputs.argmax(dim=1) + self.start[0]
        if self._head.squashed:
            actions = self.low + 0.5 * (outputs[:, : len(self.low)].tanh() + 1.0) * (self.high - self.low)
        elif self._head.continuous:
            actions = torch.minimum(torch.maximum(outputs[:, : len(self.low)], self.low), self.high)
        elif kind == "multibinary":
            actions = (outputs > 0).long()
        else:
            choices = [outputs[:, part].argmax(dim=1) for part in self._head.parts()]
            actions = torch.stack(choices, dim=1) + self.start
        return actions.to(self._dtype).reshape(-1, *self._shape)
