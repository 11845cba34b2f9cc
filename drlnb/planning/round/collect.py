"""Who acts now?  Placement, collectors and the way of new parameters to their hosts."""

from drlnb.planning.batching import BatchView
from drlnb.planning.distribution import DistributionView, commands
from drlnb.planning.leasing.hold import Batch
from drlnb.planning.round.state import RoundState
from drlnb.planning.warmup.measuring import PARK
from drlnb.records import round as words
from drlnb.records.columns import batching, distribution, placement, warmup

__all__ = ["Collecting"]


class Collecting(RoundState):
    """The part of the round machine that wakes, restarts and hears collectors."""

    # ------------------------------------------------------------------ placement and process life
    def _placement_received(self, event: words.PlacementReceived) -> None:
        for i in self.crew.placed(event.collector_nodes):
            if i == self.evaluator:
                self.evaluator = None
            self._start_collector(i, 0.0)
        if self.n_bytes:
            self._publish()

    def _start_collector(self, i: int, after_s: float) -> None:
        member = self.crew.members[i]
        self._out.append(
            warmup.StartCollector(collector=i, node=member.node or "", env_indices=member.env_indices, after_s=after_s)
        )

    def _collector_ready(self, event: warmup.CollectorReady) -> None:
        if event.episodes_lost:
            n = self.progress.episodes_lost = self.progress.episodes_lost + event.episodes_lost
            text = f"resumed, {n} episode{'s' * (n > 1)} lost: these environments cannot be restored, they began anew"
            self._out.append(words.EpisodesLost(collector=event.collector, n_episodes=event.episodes_lost, text=text))
        if self.crew.ready(event.collector, event.node, event.round):
            self._warm(event)
            self._go_on()
        elif event.start_mode == PARK:  # it was up all the time: its wake waits for the parameters alone
            self._warm(event)

    def _collector_lost(self, event: warmup.CollectorLost) -> None:
        pause_s = self.crew.lost(event.collector, event.node)
        if pause_s is None:
            return
        if event.collector == self.evaluator:
            self.evaluator = None
        member = self.crew.members[event.collector]
        raised_again = bool(event.detail) and member.n_losses >= self.config["max_collector_errors"]
        if raised_again or self.crew.n_restarts > self.config["max_collector_restarts"]:
            reason = f"collector {event.collector} was lost too often: {event.reason}\n{event.detail}"
            self._end("failed", reason.strip())
            return
        n_restarts = member.n_restarts
        self._out.append(
            warmup.CollectorRestartPlanned(
                collector=event.collector, node=event.node, after_s=pause_s, n_restarts=n_restarts
            )
        )
        self._start_collector(event.collector, pause_s)

    def _node_lost(self, event: placement.NodeLost) -> None:
        if event.node in self.crew.hosts:
            self._drop_host(event.node, event.reason)

    def _host_unreachable(self, event: distribution.HostUnreachable) -> None:
        if event.version == self.progress.version and event.host in self.crew.behind(event.version):
            self._drop_host(event.host, event.reason)

    def _drop_host(self, host: str, reason: str) -> None:
        gone = self.crew.dropped(host)
        self.warmup.drop(host)
        self._out.append(distribution.HostDropped(host=host, reason=reason))
        if self.evaluator in gone:
            self.evaluator = None
        if self.crew.n_restarts > self.config["max_collector_restarts"]:
            self._end("failed", f"node {host} was lost: {reason}")
            return
        self._out.append(words.AskPlacement(n_collectors=len(self.crew.members)))

    # ------------------------------------------------------------------ parameters out
    def _publish(self) -> None:
        version = self.progress.version
        hosts = self.crew.behind(version)
        if not hosts:
            return
        plan = self.distribution.plan(DistributionView(version=version, hosts=hosts, model_bytes=self.n_bytes))
        if not self.arrived and self.phase != "paused":
            self._enter("publishing")
        self._out.append(
            distribution.DistributionPlanned(
                version=version,
                planner=self.distribution.name,
                hosts=hosts,
                n_bytes=self.n_bytes,
                n_messages=plan.n_messages(),
                digest=plan.digest(),
            )
        )
        self._out.extend(commands(plan, hosts, version))

    def _host_completed(self, event: distribution.HostCompleted) -> None:
        if event.version != self.progress.version or not self.crew.completed(event.host, event.version):
            return
        self.progress.push_s = max(self.progress.push_s, event.publish_s)
        if not self.crew.behind(event.version):
            self._out.append(
                distribution.VersionPublished(
                    version=event.version, publish_s=self.progress.push_s, n_hosts=len(self.crew.hosts)
                )
            )
        self._go_on()

    # ------------------------------------------------------------------ act
    def _go_on(self) -> None:
        if "evaluation" in self.closing or self.judging:
            self._evaluate()
        else:
            self._wake()

    def _wake(self) -> None:
        if self.gathering or self.closing or self.resting or self.judging or not self.n_bytes:
            return
        version = self.progress.version
        woken = self.crew.wake(version, self.arrived)
        if not woken:
            return
        self._begin_round()
        members = [self.crew.members[i] for i in woken]
        n_steps = self.batching.plan(
            BatchView(
                round=version,
                n_steps=self.config["n_steps"],
                collectors=woken,
                n_envs=tuple(len(member.env_indices) for member in members),
                nodes=tuple(member.node or "" for member in members),
                sample_s=(None,) * len(woken),
            )
        ).n_steps
        self._out.append(
            batching.BatchPlanned(round=version, planner=self.batching.name, collectors=woken, n_steps=n_steps)
        )
        for i, steps in zip(woken, n_steps, strict=True):
            node = self.crew.members[i].node or ""
            self._out.append(
                warmup.WakeCollector(collector=i, node=node, round=version, version=version, n_steps=steps)
            )
        if not self.arrived:
            self._enter("collecting")

    def _experience_arrived(self, event: words.ExperienceArrived) -> None:
        queued = self.arrived.get(event.collector)
        if queued is not None and queued.key == event.key:
            return  # the message came twice: dropping its key would free the batch that is queued
        refusal = self._refusal(event)
        if refusal:
            self._drop(event.key, event.collector, event.round, refusal)
            return
        self.arrived[event.collector] = Batch(collector=event.collector, key=event.key, n_samples=event.n_samples)
        self.crew.sent(event.collector)
        self.progress.collected(event.collector, event.queued_s + event.collect_s, event.episodes)
        if self._is_last():
            self.warmup.last(event.round)
        self._warm(event)
        if len(self.arrived) == len(self.crew.members):
            n_samples = sum(batch.n_samples for batch in self.arrived.values())
            self._out.append(batching.RoundClosed(round=event.round, n_samples=n_samples, missing=()))
        if self.config["replay"]:
            self._draw()
        else:
            self._plan_hold()

    def _is_last(self) -> bool:
        """Whether the budget is met with the present round."""
        n_samples = self.config["n_steps"] * self.config["n_envs"]
        return bool(self.progress.n_timesteps + n_samples >= self.config["total_timesteps"])

    def _refusal(self, event: words.ExperienceArrived) -> str:
        version = self.progress.version
        if event.attempt != self.attempt:
            return f"attempt {event.attempt}, now {self.attempt}"
        if event.round != version or event.version != version:
            return f"round {event.round} under version {event.version}, now {version}"
        if event.collector in self.arrived:
            return "second copy"
        return ""
