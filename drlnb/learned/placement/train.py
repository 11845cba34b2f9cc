"""Train the network of planner `learned` (needs torch): first it imitates plain rules, then it improves on them.

The same batch is played several times at once, and each play is judged beside their mean: what the faults did to all of
them cancels out (Mao et al., "Learning scheduling algorithms for data processing clusters", SIGCOMM 2019).
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from drlnb.learned.placement.features import BY_RULE, Array
from drlnb.learned.placement.network import Network, Weights
from drlnb.learned.placement.planner import steps
from drlnb.learned.placement.playing import (
    Batch,
    Progress,
    Sample,
    Trained,
    makespan_s,
    play_together,
    questions,
    sampled,
)
from drlnb.planning.placement.ect import ect
from drlnb.planning.placement.rules import Rule
from drlnb.rl.objectives.losses import ppo_loss

__all__ = ["Scorer", "Taken", "clipped_loss", "imitation_loss", "new_network", "one_thread", "train", "weights_of"]

_HIDDEN = 64
_LEARNING_RATE, _CLIP, _ENTROPY, _MOST_NORM = 1e-3, 0.2, 0.01, 0.5
#: Share of a training that imitates, and its learning rate.
_IMITATE_FRAC, _IMITATION_RATE = 0.1, 1e-3
#: Batches of a round, plays of each, epochs over what they gave, and samples of a minibatch.
_BATCHES, _PLAYS, _EPOCHS, _MINIBATCH = 8, 8, 4, 512
_ECT = Rule("ect", ect)


class Scorer(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """What :class:`drlnb.learned.placement.network.Scorer` evaluates, for training."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.own, self.hidden = nn.Linear(n_features, _HIDDEN), nn.Linear(_HIDDEN, _HIDDEN)
        self.pooled, self.out = nn.Linear(2 * _HIDDEN, _HIDDEN, bias=False), nn.Linear(_HIDDEN, 1, bias=False)

    def forward(self, groups: Sequence[Array]) -> Tensor:
        """Return log-probabilities of the rows of each group, shape ``(n_groups, most rows)``; beyond them -inf."""
        counts = torch.tensor([len(rows) for rows in groups])
        group = torch.repeat_interleave(torch.arange(len(groups)), counts)
        own = torch.relu(self.own(torch.from_numpy(np.concatenate(groups).astype(np.float32))))
        means = torch.zeros(len(groups), _HIDDEN).index_add(0, group, own) / counts[:, None]
        largest = torch.zeros(len(groups), _HIDDEN).scatter_reduce(0, group[:, None].expand_as(own), own, "amax")
        hidden = torch.relu(self.hidden(own) + self.pooled(torch.cat([means, largest], 1))[group])
        place = torch.arange(len(group)) - (counts.cumsum(0) - counts)[group]
        padded = torch.full((len(groups), int(counts.max())), -math.inf)
        return torch.log_softmax(padded.index_put((group, place), self.out(hidden)[:, 0]), 1)


def new_network() -> nn.ModuleDict:
    """Return an untrained network."""
    return nn.ModuleDict({part: Scorer(n) for part, n in Network.parts.items()})


def weights_of(network: nn.Module) -> Weights:
    """Return a network's weights by name, as those of :mod:`drlnb.learned.placement.network` take them."""
    return {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}


def imitation_loss(log_p: Tensor, samples: Sequence[Sample]) -> Tensor:
    """Return the cross entropy to what plain rules would choose: any slot of theirs; jobs the rather, the larger."""
    wanted = torch.zeros(log_p.shape)
    for row, sample in zip(wanted, samples, strict=True):
        row[: len(sample.question.rows)] = torch.from_numpy(sample.question.rows[:, BY_RULE])
    return -(wanted / wanted.sum(1, keepdim=True) * log_p.masked_fill(wanted == 0.0, 0.0)).sum(1).mean()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute on one thread: for so small networks several wait for each other."""
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n)


class Taken(NamedTuple):
    """Answers that were given; shape ``(B,)`` each."""

    chosen: Tensor
    #: Log-probability when it was chosen.
    before: Tensor
    advantages: Tensor


def clipped_loss(log_p: Tensor, taken: Taken, entropy_coef: float, value_loss: Tensor | None = None) -> Tensor:
    """Return the clipped loss of answers whose log-probabilities are these now, shape ``(B, n_rows)``."""
    entropy = -(log_p.exp() * log_p.masked_fill(log_p.isinf(), 0.0)).sum(1).mean()
    now = log_p.gather(1, taken.chosen[:, None])[:, 0]
    value_loss = torch.zeros(()) if value_loss is None else value_loss
    how = {"clip_range": _CLIP, "ent_coef": entropy_coef, "vf_coef": 0.5}
    return ppo_loss(now, taken.before, taken.advantages, entropy, value_loss, **how)[0]


class _Learner:
    """The network that is trained, its optimiser, and what is drawn."""

    def __init__(self, batches: Iterator[Batch], seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = new_network()
        self._batches, self._rng = batches, np.random.default_rng(seed)
        self._optimizer = torch.optim.Adam(self.network.parameters(), _IMITATION_RATE)

    def imitate(self) -> None:
        """Play some batches as plain rules would, and learn their choices."""
        batches = [next(self._batches) for _ in range(_PLAYS)]
        played = play_together([questions(batch, steps) for batch in batches], _by_rule)
        self._update([sample for _, some in played for sample in some], imitation_loss)

    def improve(self, left: float) -> float:
        """Play each of some batches several times, and learn what was better than their mean; return the mean reward.

        Where jobs are chosen, their choice alone is drawn: else noise of the slots would hide which job was better.

        Parameters
        ----------
        left
            Share of the training that is still to come: the learning rate and what entropy is worth fall with it.
        """
        self._optimizer.param_groups[0]["lr"] = _LEARNING_RATE * left
        batches = [next(self._batches) for _ in range(_BATCHES)]
        network, rewards, samples = Network(weights_of(self.network)), list[float](), list[Sample]()
        for part in network.parts:
            mine = [batch for batch in batches if batch.window == (part == "jobs")]
            answers = sampled(network, self._rng, part)
            played = play_together([questions(batch, steps) for batch in mine for _ in range(_PLAYS)], answers)
            for batch, plays in zip(mine, (played[i : i + _PLAYS] for i in range(0, len(played), _PLAYS)), strict=True):
                reference_s = makespan_s(batch, _ECT)
                each = np.array([math.log(reference_s / outcome.makespan_s) for outcome, _ in plays])
                better = (each - each.mean()) / (each.std() + 1e-8)
                for advantage, (_, some) in zip(better.tolist(), plays, strict=True):
                    asked = [sample for sample in some if sample.question.part == part]
                    samples += [sample._replace(advantage=advantage) for sample in asked]
                rewards.append(float(each.mean()))
        for _ in range(_EPOCHS):
            self._update(samples, partial(_loss, entropy_coef=_ENTROPY * left))
        return sum(rewards) / len(rewards)

    def _update(self, samples: Sequence[Sample], loss: Callable[[Tensor, Sequence[Sample]], Tensor]) -> None:
        """Make a step for each minibatch of each part."""
        for part in Network.parts:
            mine = [sample for sample in samples if sample.question.part == part]
            order = self._rng.permutation(len(mine))
            for start in range(0, len(mine), _MINIBATCH):
                chosen = [mine[i] for i in order[start : start + _MINIBATCH]]
                log_p = self.network[part]([sample.question.rows for sample in chosen])
                self._optimizer.zero_grad()
                loss(log_p, chosen).backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), _MOST_NORM)
                self._optimizer.step()


def _by_rule(part: str, groups: Sequence[Array]) -> tuple[Sequence[int], Sequence[float]]:
    """Return the answers of plain rules."""
    return [int(rows[:, BY_RULE].argmax()) for rows in groups], [0.0] * len(groups)


def _loss(log_p: Tensor, samples: Sequence[Sample], *, entropy_coef: float) -> Tensor:
    _, *columns = zip(*samples, strict=True)
    return clipped_loss(log_p, Taken(*map(torch.tensor, columns)), entropy_coef)


@one_thread()
def train(batches: Iterator[Batch], seed: int, progress: Progress) -> Trained:
    """Train a network.

    Parameters
    ----------
    batches
        As many as are asked for.
    seed
        Of the network and of all that is drawn here.
    progress
        The share that is over: a tenth of a training imitates.

    Returns
    -------
    Trained
        The rewards are means of log(makespan of `ect` / makespan) of what was drawn in each round that improved.
    """
    learner, rewards = _Learner(batches, seed), list[float]()
    while progress() < _IMITATE_FRAC:
        learner.imitate()
    while (over := progress()) < 1.0:
        rewards.append(learner.improve(1.0 - over))
    return Trained(weights_of(learner.network), rewards)
