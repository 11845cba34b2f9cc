"""Train the networks of the placement patent (needs torch): actor, critic, a ring of samples, a reward per batch.

What the patent leaves open is ours: rectified sums between layers, logits that are masked before the softmax, a
clipped ratio for samples that older networks have made, and as reference the best of eight random placements on the
same faults.
"""

import itertools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from drlnb.learned.placement.network import Policy
from drlnb.learned.placement.playing import Interval, Progress, Sample, Trained, sampled
from drlnb.learned.placement.train import Taken, clipped_loss, one_thread, weights_of
from drlnb.rl.objectives.losses import normalised_advantages

__all__ = ["Ring", "log_policy", "new_networks", "train_patent"]

_WIDTHS = (256, 196, 196, 128)
_LEARNING_RATE, _ENTROPY = 3e-4, 0.01
#: Times that a batch of samples is drawn after an interval, and samples of a minibatch.
_EPOCHS, _MINIBATCH = 4, 256


def new_networks(n_slots: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Return the untrained policy network, a score of each slot, and the value network."""

    def layers(n_out: int) -> nn.Sequential:
        widths = (n_slots + 2, *_WIDTHS)
        hidden = [each for n, m in itertools.pairwise(widths) for each in (nn.Linear(n, m), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(widths[-1], n_out))

    return layers(n_slots), layers(1)


def log_policy(policy: nn.Module, states: Tensor) -> Tensor:
    """Return log-probabilities of the slots, shape ``(B, n_slots)``; minus infinity of those that are taken."""
    return torch.log_softmax(policy(states).masked_fill(states[:, 2:] > 0.0, -torch.inf), 1)


class Ring:
    """The latest samples: state, chosen slot, its log-probability then, and reward; the oldest fall out.

    The next state of a sample is that of the row behind it.

    Parameters
    ----------
    size
        Rows that it holds.
    n_slots
        Of the cluster.
    """

    def __init__(self, size: int, n_slots: int) -> None:
        kinds = [
            ("state", np.float32, (n_slots + 2,)),
            ("slot", np.int64),
            ("log_p", np.float32),
            ("reward", np.float32),
        ]
        self._rows, self._at, self.n = np.zeros(size, dtype=kinds), 0, 0

    def add(self, samples: list[Sample], reward: float) -> None:
        """Append samples of one reward."""
        for sample in samples:
            self._rows[self._at] = (sample.question.rows[0], sample.chosen, sample.log_p, reward)
            self._at = (self._at + 1) % len(self._rows)
            self.n = min(self.n + 1, len(self._rows))

    def batch(self, n: int, rng: np.random.Generator) -> npt.NDArray[np.void]:
        """Return `n` rows at random, all different, or as many as there are."""
        chosen = rng.permutation(self.n)[:n]
        rows: npt.NDArray[np.void] = self._rows[chosen]
        return rows


class _Agent:
    """Both networks, their optimiser, and what is drawn."""

    def __init__(self, n_slots: int, seed: int, begin: Policy | None) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy, self._value = new_networks(n_slots)
        if begin is not None:
            arrays = {name: torch.from_numpy(value.astype(np.float32)) for name, value in begin.weights.items()}
            self.policy.load_state_dict(arrays)
        both = [*self.policy.parameters(), *self._value.parameters()]
        self._optimizer = torch.optim.Adam(both, _LEARNING_RATE)
        self.rng = np.random.default_rng(seed)

    def learn(self, rows: npt.NDArray[np.void]) -> None:
        """Make a step for each minibatch of some rows."""
        for start in range(0, len(rows), _MINIBATCH):
            some = rows[start : start + _MINIBATCH]
            states, slots, before, rewards = (torch.from_numpy(some[name].copy()) for name in some.dtype.names or ())
            log_p, values = log_policy(self.policy, states), self._value(states)[:, 0]
            taken = Taken(slots, before, normalised_advantages(rewards - values.detach()))
            loss = clipped_loss(log_p, taken, _ENTROPY, nn.functional.mse_loss(values, rewards))
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()


@one_thread()
def train_patent(
    play: Interval,
    n_slots: int,
    seed: int,
    progress: Progress,
    *,
    n_kept: int = 20_000,
    begin: Policy | None = None,
) -> Trained:
    """Train the networks for a cluster of so many slots.

    Parameters
    ----------
    play
        Plays batches that show the next job alone; an interval that gives none is passed over.
    n_slots
        Slots of each of them.
    seed
        Of the networks and of all that is drawn here.
    progress
        The share that is over; asked before each interval.
    n_kept
        Samples that are kept; 0: those of the interval alone.
    begin
        The policy network to go on with; None: a new one.

    Returns
    -------
    Trained
        The weights are the policy network's.
    """
    agent, ring, curve = _Agent(n_slots, seed, begin), Ring(max(1, n_kept), n_slots), list[float]()
    while progress() < 1.0:
        played = play(sampled(Policy(weights_of(agent.policy)), agent.rng, "patent"))
        rewards = [(each.reference_s - each.makespan_s) / each.reference_s for each in played]
        n_new = sum(len(each.samples) for each in played)
        if not n_new:
            continue
        if not n_kept:
            ring = Ring(n_new, n_slots)
        for each, worth in zip(played, rewards, strict=True):
            ring.add(each.samples, worth)
        for _ in range(_EPOCHS):
            agent.learn(ring.batch(n_new, agent.rng))
        curve.append(sum(rewards) / len(rewards))
    return Trained(weights_of(agent.policy), curve)
