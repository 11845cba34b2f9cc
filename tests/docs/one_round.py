"""One round of reinforcement learning, whole: collect, lease a slot, compute gradients there, publish; and again.

``python one_round.py`` trains CartPole with a small PPO for eight rounds, in seconds.  The pool of slots, the
lease, the rule when to take it and the way of the parameters are drlnb's; the algorithm is written out here.  Change
anything: ``docs/one-round.md`` goes through this file from top to bottom and shows how.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gymnasium as gym
import torch
from distributed import Client
from torch import Tensor, nn
from torch.distributions import Categorical

import drlnb
from drlnb.distribution import HostView, Publisher
from drlnb.planning.leasing.planners import HOLD, HoldView
from drlnb.records.columns.leasing import LeaseReleased
from drlnb.records.errors import LeaseLost

if TYPE_CHECKING:
    from drlnb.fleet.cluster.user_lease import Lease
    from drlnb.planning.leasing.planners import HoldPlan
    from drlnb.planning.registry import AnyPlanner, Planner

    HoldPlanner = Planner[HoldView, HoldPlan]

#: Under this name parameters are published and slots leased.
NAME = "one-round"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What processes of a training must agree on; travels to all of them."""

    env: str = "CartPole-v1"
    seed: int = 0
    n_rounds: int = 8
    n_collectors: int = 2  #: each on a Dask worker of its own
    n_envs: int = 4  #: of each collector
    n_steps: int = 256  #: of each environment in a round
    n_epochs: int = 10  #: gradients of a round, each over all of its samples
    learning_rate: float = 5e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    n_slots: int = 1  #: of the pool, and of each lease


class Policy(nn.Module):
    """What acts, and what judges: two networks over the same observation."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        with gym.make(settings.env) as env:
            n_in, n_actions = env.observation_space.shape[0], int(env.action_space.n)
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))
            for n_out in (n_actions, 1)
        )

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        """Return the distribution of actions, and values; `obs` has shape ``(n, n_in)``, values ``(n,)``."""
        return Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """What one collector brings to a round."""

    collector: int
    version: int  #: of the parameters that it acted with
    episode_returns: list[float]  #: of the episodes that ended
    rows: dict[str, Tensor]  #: samples, each tensor of shape ``(n_steps * n_envs, ...)``


class Collector:
    """Acts on one host; lives there as a Dask actor, so that its episodes go on from round to round."""

    def __init__(self, settings: Settings, index: int) -> None:
        self.settings, self.index = settings, index
        self.policy = Policy(settings)
        self.view: HostView | None = None
        self.envs = [gym.make(settings.env) for _ in range(settings.n_envs)]
        seeds = [settings.seed * 10_000 + index * settings.n_envs + i for i in range(settings.n_envs)]
        firsts = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)]
        self.obs = torch.stack([torch.as_tensor(first, dtype=torch.float32) for first in firsts])
        self.returns = [0.0] * settings.n_envs

    def collect(self) -> Fragment:
        """Act for a round with the newest parameters that were published to this host."""
        if self.view is None:
            self.view = HostView.attach(task=NAME)
            self.view.bind(self.policy)  # from now on its parameters are the host's, not a copy
        with self.view.pinned() as version, torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed * 10_000 + self.index + 1_000 * version)
            ended = list[float]()
            steps = [self.step(ended) for _ in range(self.settings.n_steps)]
            last_value = self.policy(self.obs)[1]
        columns = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}  # (n_steps, n_envs, ...)
        rows = with_advantages(self.settings, columns, last_value)
        return Fragment(collector=self.index, version=version, episode_returns=ended, rows=rows)

    def step(self, ended: list[float]) -> dict[str, Tensor]:
        """Make one step in each environment; returns of episodes that end go to `ended`."""
        obs = self.obs.clone()
        actions, values = self.policy(obs)
        action = actions.sample()
        rewards, ends = torch.zeros(len(self.envs)), torch.zeros(len(self.envs))
        for i, env in enumerate(self.envs):
            new, reward, terminated, truncated, _ = env.step(action[i].item())
            self.returns[i] += float(reward)
            rewards[i] = float(reward)
            if truncated and not terminated:  # cut off, not over: what would have come counts, too
                rewards[i] += self.settings.gamma * self.policy(torch.as_tensor(new, dtype=torch.float32)[None])[1][0]
            if terminated or truncated:
                ended.append(self.returns[i])
                self.returns[i], ends[i] = 0.0, 1.0
                new, _ = env.reset()
            self.obs[i] = torch.as_tensor(new)
        log_probs = actions.log_prob(action)
        return {"obs": obs, "action": action, "log_prob": log_probs, "value": values, "reward": rewards, "end": ends}


def with_advantages(settings: Settings, columns: dict[str, Tensor], last_value: Tensor) -> dict[str, Tensor]:
    """Return a fragment's rows, with generalised advantage estimates (Schulman et al. 2016, equation 16)."""
    values = torch.cat([columns["value"], last_value[None]])
    goes_on = 1.0 - columns["end"]
    advantages, running = torch.zeros_like(columns["value"]), torch.zeros_like(last_value)
    for t in reversed(range(len(advantages))):
        delta = columns["reward"][t] + settings.gamma * goes_on[t] * values[t + 1] - values[t]
        running = delta + settings.gamma * settings.gae_lambda * goes_on[t] * running
        advantages[t] = running
    targets = advantages + columns["value"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)  # over this fragment alone
    rows = {name: columns[name] for name in ("obs", "action", "log_prob")}
    return {name: rows.flatten(0, 1) for name, rows in (rows | {"advantage": advantages, "target": targets}).items()}


def losses(settings: Settings, policy: Policy, rows: dict[str, Tensor]) -> Tensor:
    """Return PPO's loss of each sample; shape ``(n,)`` (Schulman et al. 2017, equation 9)."""
    actions, values = policy(rows["obs"])
    ratio = (actions.log_prob(rows["action"]) - rows["log_prob"]).exp()
    clipped = ratio.clamp(1.0 - settings.clip_range, 1.0 + settings.clip_range)
    surrogate = torch.minimum(ratio * rows["advantage"], clipped * rows["advantage"])
    value_loss = (values - rows["target"]).square()
    return -surrogate + settings.vf_coef * value_loss - settings.ent_coef * actions.entropy()


def stage(lease: "Lease", settings: Settings, fragments: list[Fragment]) -> None:
    """Put this slot's share of some fragments onto its device; runs on each slot of the lease."""
    if "policy" not in lease.state:
        lease.state["policy"] = Policy(settings).to(lease.device)
    batches = lease.state.setdefault("batches", {})
    for fragment in fragments:
        if fragment.collector % lease.n_slots == lease.rank:
            batches[fragment.collector] = {name: rows.to(lease.device) for name, rows in fragment.rows.items()}


def gradients(lease: "Lease", settings: Settings, parameters: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Return the gradient of each fragment that lies on this slot; runs on each slot of the lease."""
    policy = lease.state["policy"]
    policy.load_state_dict(parameters)
    found = {}
    for collector, rows in lease.state["batches"].items():
        policy.zero_grad()
        (losses(settings, policy, rows).mean() / settings.n_collectors).backward()
        found[collector] = {name: parameter.grad.cpu() for name, parameter in policy.named_parameters()}
        lease.progress()
    return found


class Learner:
    """The parameters, and the optimiser that changes them; lives here, where no device is needed."""

    def __init__(self, settings: Settings) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.policy = settings, Policy(settings)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), settings.learning_rate, eps=1e-5)

    def step(self, found: dict[int, dict[str, Tensor]]) -> None:
        """Add up the fragments' gradients, always in the same order, and follow them."""
        for name, parameter in self.policy.named_parameters():
            parameter.grad = sum(found[collector][name] for collector in sorted(found))
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.settings.max_grad_norm)
        self.optimizer.step()


def learn(fleet: drlnb.Fleet, learner: Learner, hold: "HoldPlanner", arriving: Iterator[Fragment]) -> list[Fragment]:
    """Compute a round's gradients under a lease, or several; return the fragments as they have come."""
    settings, fragments = learner.settings, list[Fragment]()
    lease, n_staged, n_gradients = None, 0, 0
    while n_gradients < settings.n_epochs:
        view = HoldView(
            n_arrived=len(fragments),
            n_expected=settings.n_collectors,
            held=lease is not None,
            requested=False,  # who asks here waits for the answer
            n_queued=len(fragments) - n_staged,
            divisible=False,  # a gradient is over all samples
            demand=lease is not None and lease.asked_to_yield,
        )
        action = HOLD.ask(hold, view).action
        if lease is None and action == "request":
            lease = fleet.lease(settings.n_slots, name=NAME).open()
        elif lease is None and len(fragments) == settings.n_collectors:
            raise RuntimeError(f"hold planner {hold.name} would wait for ever: all batches of the round are here")
        elif lease is None:
            fragments.append(next(arriving))
        elif action == "return":
            lease.close()
            lease, n_staged = None, 0  # what lay on its slots is gone
        else:
            try:
                if n_staged < len(fragments):
                    lease.run(stage, lease, settings, fragments[n_staged:])
                    n_staged = len(fragments)
                elif len(fragments) == settings.n_collectors:
                    answers = lease.run(gradients, lease, settings, learner.policy.state_dict())
                    of_slots = answers if settings.n_slots > 1 else [answers]
                    learner.step({collector: found for of_slot in of_slots for collector, found in of_slot.items()})
                    n_gradients += 1
                else:
                    fragments.append(next(arriving))
            except LeaseLost as lost:  # the slot's process has died, say: what was collected is still here
                print(f"a lease was lost: {lost}")
                lease.close()
                lease, n_staged = None, 0
    if lease is not None:
        lease.close()
    return fragments


def train(
    settings: Settings = Settings(), hold: "str | HoldPlanner" = "last", plan: "str | AnyPlanner" = "auto"
) -> tuple[Policy, list[float]]:
    """Train; return the policy, and the mean return of each round.

    Parameters
    ----------
    settings
        Of the training.
    hold
        When a slot is asked for and given back: the name of a hold planner, or one of your own.
    plan
        Which way parameters take to the hosts: the name of a distribution planner, or one of your own.
    """
    learner, mean_returns = Learner(settings), list[float]()
    holds = HOLD.build(hold) if isinstance(hold, str) else hold
    with (
        drlnb.Fleet(n_workers=settings.n_collectors, slots=settings.n_slots) as fleet,
        Client(fleet.address) as client,
        Publisher(client, task=NAME, plan=plan) as publisher,
        ThreadPoolExecutor(settings.n_collectors) as threads,
    ):
        hosts = sorted(client.nthreads())
        made = [
            client.submit(Collector, settings, i, actor=True, workers=[hosts[i % len(hosts)]])
            for i in range(settings.n_collectors)
        ]
        collectors = [future.result() for future in made]
        report = publisher.publish(learner.policy).result(timeout_s=30)
        for number in range(settings.n_rounds):
            waits = [threads.submit(collector.collect().result) for collector in collectors]
            arriving = (wait.result() for wait in as_completed(waits))
            fragments = learn(fleet, learner, holds, arriving)
            assert {fragment.version for fragment in fragments} == {report.version}, "old parameters have acted"
            report = publisher.publish(learner.policy).result(timeout_s=30)
            ended = [value for fragment in fragments for value in fragment.episode_returns]
            mean_returns.append(sum(ended) / len(ended) if ended else float("nan"))
            print(f"round {number}: mean return {mean_returns[-1]:.1f} of {len(ended)} episodes; {report}")
        leases = fleet.journal().of(LeaseReleased)
        print(
            f"{len(leases)} leases: {sum(lease.held_s for lease in leases):.2f} s held,"
            f" {sum(sum(lease.computed_s) for lease in leases):.2f} s of them computing"
        )
    return learner.policy, mean_returns


if __name__ == "__main__":
    train()
