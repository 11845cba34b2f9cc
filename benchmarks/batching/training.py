"""Train the network of the learned batching planners: a deep double Q-network that all members share (needs torch).

Speeds are exogenous: no plan changes what a member does next.  So the best action is that of a contextual bandit, and
the default discount is 0; the double estimator is there since the batching patent names it.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from drlnb.learned.batching.network import ACTIONS, Array
from drlnb.rl.objectives.losses import dqn_loss, td_target

__all__ = ["Batch", "Episode", "Weights", "loss_of", "new_network", "train", "weights_of"]

#: Name of a weight -> array.
Weights = dict[str, npt.NDArray[np.float32]]

_LEARNING_RATE = 1e-3
_BATCH = 256
#: Splits before the first update, splits per update, and updates per copy to the target network.
_WARM_UP, _EVERY, _COPY_EVERY = 200, 2, 400
#: The chance of a random action falls from 1 to the least over this share of the splits.
_EXPLORE_FRAC, _LEAST_EPSILON = 0.6, 0.03


class Batch(NamedTuple):
    """Transitions, one a row."""

    #: What was seen and what was seen next, shape ``(B, n_features)``; in the other columns a number a row.
    seen: Tensor
    then: Tensor
    #: Number of the action.
    action: Tensor
    reward: Tensor
    #: 1 after the last split of an episode, else 0.
    end: Tensor


def new_network(n_features: int, n_hidden: int = 96) -> nn.Sequential:
    """Return an untrained network: a value per action."""
    hidden = nn.Linear(n_hidden, n_hidden)
    first, last = nn.Linear(n_features, n_hidden), nn.Linear(n_hidden, len(ACTIONS))
    return nn.Sequential(first, nn.ReLU(), hidden, nn.ReLU(), last)


def weights_of(network: nn.Module) -> Weights:
    """Return a network's weights by name, as :class:`~drlnb.learned.batching.network.Network` takes them."""
    return {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}


def loss_of(online: nn.Module, target: nn.Module, batch: Batch, gamma: float) -> Tensor:
    """Return the loss of double Q-learning: the next action is the online network's, its value the target network's."""
    with torch.no_grad():
        wanted = td_target(batch.reward, batch.end, target(batch.then), gamma, next_q_online=online(batch.then))
    return dqn_loss(online(batch.seen), batch.action.long(), wanted)


class Episode(Protocol):
    """Splits of the same members."""

    #: Splits that it has.
    n_splits: int

    def seen(self) -> Array:
        """Return what the network sees before the next split, shape ``(n_members, n_features)``."""
        ...

    def split(self, performance: Array) -> Array:
        """Make a split planned for these factors of the long-run speeds.

        Returns
        -------
        Array
            Reward of each member, shape ``(n_members,)``; NaN: its factor was not asked for.
        """
        ...


class _Memory:
    """All transitions so far, in arrays that double when they are full."""

    def __init__(self) -> None:
        self._rows: list[npt.NDArray[np.float32]] = []
        self._n = 0

    def add(self, *columns: npt.NDArray[np.generic]) -> None:
        """Append the rows of a split, in the order of :class:`Batch`."""
        n = len(columns[0])
        if not self._rows:
            self._rows = [np.zeros((1024, *column.shape[1:]), np.float32) for column in columns]
        if self._n + n > len(self._rows[0]):
            self._rows = [np.concatenate([rows, np.zeros_like(rows)]) for rows in self._rows]
        for rows, column in zip(self._rows, columns, strict=True):
            rows[self._n : self._n + n] = column
        self._n += n

    def batch(self, rng: np.random.Generator) -> Batch:
        """Return some rows, uniform over all."""
        chosen = rng.integers(0, self._n, _BATCH)
        return Batch(*(torch.from_numpy(rows[chosen]) for rows in self._rows))


class _Learner:
    """Two networks, the memory, and what is drawn."""

    def __init__(self, n_features: int, n_splits: int, seed: int, gamma: float) -> None:
        torch.manual_seed(seed)
        self.online = new_network(n_features)
        self._target = copy.deepcopy(self.online)
        self._optimizer = torch.optim.Adam(self.online.parameters(), _LEARNING_RATE)
        self._memory, self._rng = _Memory(), np.random.default_rng(seed)
        self._n_splits, self._gamma = n_splits, gamma
        self.n_done = 0

    def play(self, episode: Episode) -> None:
        """Make the splits of an episode, and learn from them."""
        seen = episode.seen()
        for left in reversed(range(episode.n_splits)):
            action = self._act(seen)
            reward = episode.split(np.array(ACTIONS)[action])
            then = episode.seen()
            rows, asked = (seen, then, action, reward, np.full(len(seen), float(left == 0))), ~np.isnan(reward)
            self._memory.add(*[row[asked] for row in rows])
            seen = then
            self.n_done += 1
            if self.n_done > _WARM_UP and self.n_done % _EVERY == 0:
                self._update()

    def _act(self, seen: Array) -> npt.NDArray[np.int64]:
        """Return the best action of each member, or now and then a random one."""
        epsilon = max(_LEAST_EPSILON, 1.0 - (1.0 - _LEAST_EPSILON) * self.n_done / (_EXPLORE_FRAC * self._n_splits))
        with torch.no_grad():
            best = self.online(torch.from_numpy(seen.astype(np.float32))).argmax(1).numpy()
        drawn = self._rng.integers(0, len(ACTIONS), len(seen))
        return np.where(self._rng.random(len(seen)) < epsilon, drawn, best)

    def _update(self) -> None:
        self._optimizer.zero_grad()
        loss_of(self.online, self._target, self._memory.batch(self._rng), self._gamma).backward()
        self._optimizer.step()
        if self.n_done % (_EVERY * _COPY_EVERY) == 0:
            self._target.load_state_dict(self.online.state_dict())


def train(episodes: Iterator[Episode], n_splits: int, seed: int, *, gamma: float = 0.0) -> Weights:
    """Train a network until it has seen so many splits.

    Parameters
    ----------
    episodes
        As many as are asked for, at least one.
    n_splits
        Least number of splits in all; the last episode is played to its end.
    seed
        Of the network, of exploration and of batches.
    gamma
        Discount per split, in ``[0, 1)``.

    Returns
    -------
    Weights
        Name -> array.
    """
    episode = next(episodes)
    learner = _Learner(episode.seen().shape[1], n_splits, seed, gamma)
    learner.play(episode)
    while learner.n_done < n_splits:
        learner.play(next(episodes))
    return weights_of(learner.online)
