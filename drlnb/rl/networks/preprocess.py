"""Turn raw observations into what modules get: the same as Stable-Baselines3's policies.

Images (uint8, three axes, 0 to 255) are divided by 255 and turned to channels first, choices are one-hot, the rest
becomes float32.  Rows of a dictionary are taken apart into tensors by key.
"""

import gymnasium
import numpy as np
import torch
from torch import Tensor

from drlnb.records.spec import TaskSpec
from drlnb.rl.heads import bounds
from drlnb.rl.networks.policies import images_scaled
from drlnb.rl.plain import Space
from drlnb.rl.rows import FLAT, Part, RowForm, form_of, part_spaces

__all__ = ["Seen", "action_space", "network_space"]


class Seen:
    """Turn raw observations into what a module takes.

    Parameters
    ----------
    form
        Of rows; None: observations are arrays.
    scaled
        Images are divided by 255.
    last
        Names of the boxes whose channels come last and are moved to the front; the empty text: of an array.
    """

    def __init__(self, form: RowForm | None, *, scaled: bool, last: frozenset[str]) -> None:
        self._form, self._scaled, self._last = form, scaled, last

    @classmethod
    def of(cls, spec: TaskSpec) -> "Seen":
        """Return what the networks of a task see."""
        space, form = dict(spec.observation_space or {}), form_of(spec.observation_space)
        if form is None:
            return cls(None, scaled=images_scaled(spec), last=frozenset([""] if _channels_last(space) else []))
        last = frozenset(name for name, part in part_spaces(space["of"]).items() if _channels_last(part))
        kwargs = spec.hyperparameters.get("policy_kwargs") or {}
        return cls(form, scaled=kwargs.get("normalize_images", True) is True, last=last)

    def __call__(self, obs: Tensor) -> Tensor | dict[str, Tensor]:
        """Return a tensor, or tensors by key, float32, for raw observations ``(B, *obs)``."""
        if self._form is None:
            return self._floats(obs, "", scaled=self._scaled)
        vector = obs
        if self._form.images:
            vector = obs[:, : 4 * self._form.n_vector].contiguous().view(torch.float32)
        parts = {part.name: self._part(part, obs, vector) for part in self._form.parts}
        return parts.get("", parts)  # one part without a name: the observation is a choice

    def _part(self, part: Part, rows: Tensor, vector: Tensor) -> Tensor:
        values = (rows if part.kind == "image" else vector)[:, part.start : part.stop]
        if part.sizes:
            return values
        return self._floats(values.reshape(-1, *part.shape), part.name, scaled=self._scaled and part.kind == "image")

    def _floats(self, values: Tensor, name: str, *, scaled: bool) -> Tensor:
        values = values.permute(0, 3, 1, 2) if name in self._last else values
        return values.float() / 255.0 if scaled else values.float()


def _channels_last(space: Space) -> bool:
    return space["kind"] == "box" and len(space["shape"]) == 3 and int(np.argmin(space["shape"])) == 2


def network_space(plain: Space) -> gymnasium.Space:
    """Return the observation space that networks see: channels first."""
    if plain["kind"] != FLAT:
        return action_space(plain, last=_channels_last(plain))
    parts = part_spaces(plain["of"]).items()
    spaces = {name: action_space(part, last=_channels_last(part)) for name, part in parts}
    return spaces[""] if "" in spaces else gymnasium.spaces.Dict(list(spaces.items()))


def action_space(plain: Space, *, last: bool = False) -> gymnasium.Space:
    """Return a basic space from its plain description; with `last` the channels, which come last, are moved first."""
    kind = plain["kind"]
    if kind == "discrete":
        return gymnasium.spaces.Discrete(int(plain["n"]), start=int(plain.get("start", 0)))
    shape = tuple(plain["shape"])
    if kind == "multidiscrete":
        return gymnasium.spaces.MultiDiscrete(np.array(plain["nvec"]).reshape(shape))
    if kind == "multibinary":
        return gymnasium.spaces.MultiBinary(shape)
    low, high = (side.reshape(shape).astype(plain["dtype"]) for side in bounds(plain))
    if last:
        low, high = low.transpose(2, 0, 1), high.transpose(2, 0, 1)
    return gymnasium.spaces.Box(low, high, low.shape, np.dtype(plain["dtype"]).type)
