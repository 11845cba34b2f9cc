"""Follow collectors and hosts: placement, starts, losses, the way of new parameters, experience."""

from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing.hold import Batch
from drlnb.planning.machine import Out
from drlnb.planning.round.acting import go_on, publish
from drlnb.planning.round.holding import plan_hold
from drlnb.planning.round.moves import drop, end, warm
from drlnb.planning.round.off_policy import draw
from drlnb.planning.round.state import RoundState
from drlnb.planning.round.stopping import give_up_with
from drlnb.records import round as words
from drlnb.records.base import shared
from drlnb.records.columns import batching, distribution, placement, warmup
from drlnb.records.common import DeadlinePassed


# ---------------------------------------------------------------------- placement and process life
def placement_received(state: RoundState, event: words.PlacementReceived, out: Out) -> None:
    """Start the collectors that have a (new) node, and send it the parameters."""
    for i in state.crew.placed(event.collector_nodes):
        state.paces.pop(i, None)
        if i == state.evaluator:
            state.evaluator = None
        _start_collector(state, i, 0.0, out)
    if state.n_bytes:
        publish(state, out)


def _start_collector(state: RoundState, i: int, after_s: float, out: Out) -> None:
    member = state.crew.members[i]
    out.append(
        warmup.StartCollector(
            collector=i,
            node=member.node or "",
            env_indices=member.env_indices,
            after_s=after_s,
            start_mode=state.warmup.state.settings.start_mode,
            anew=member.n_losses > 1,
        )
    )


def collector_ready(state: RoundState, event: warmup.CollectorReady, out: Out) -> None:
    """Wake a collector that is up, if its host holds the parameters."""
    if event.episodes_lost:
        n = state.progress.episodes_lost = state.progress.episodes_lost + event.episodes_lost
        text = (
            f"{n} episode{'s' * (n > 1)} lost: these environments could not be restored, they began anew, "
            "and the same spec may give other bits from here on"
        )
        out.append(words.EpisodesLost(collector=event.collector, n_episodes=event.episodes_lost, text=text))
    if state.crew.ready(event.collector, event.node, event.round):
        warm(state, event, out)
        go_on(state, out)


def collector_lost(state: RoundState, event: warmup.CollectorLost, out: Out) -> None:
    """Start a lost collector again, unless it was lost too often."""
    pause_s = state.crew.lost(event.collector, event.node, state.t, event.where)
    if pause_s is None:
        return
    if event.collector == state.evaluator:
        state.evaluator = None
    if (state.closing and "evaluation" not in state.closing) or give_up_with(state, event.collector, event.reason, out):
        return
    member = state.crew.members[event.collector]
    is_broken = max(member.n_there, member.n_losses if event.detail else 0) >= state.config["max_collector_errors"]
    if is_broken or len(member.lost_t) > state.config["max_collector_restarts"]:
        reason = f"collector {event.collector} was lost too often: {event.reason}\n{event.detail}"
        end(state, "failed", reason.strip(), out)
        return
    out.append(
        warmup.CollectorRestartPlanned(
            collector=event.collector, node=event.node, after_s=pause_s, n_restarts=member.n_restarts
        )
    )
    _start_collector(state, event.collector, pause_s, out)


def collector_unanswered(state: RoundState, event: warmup.CollectorUnanswered, out: Out) -> None:
    """Count a collector as lost, if its answer is still waited for."""
    member = state.crew.members[event.collector]
    if event.evaluates:
        waits = state.evaluator == event.collector
    else:
        waits = (member.status, member.node, state.version) == ("acting", event.node, event.version)
    if waits:
        lost = warmup.CollectorLost(**shared(event, warmup.CollectorLost))
        warm(state, lost, out)
        collector_lost(state, lost, out)


def node_lost(state: RoundState, event: placement.NodeLost, out: Out) -> None:
    """Drop a host that is gone."""
    if event.node in state.crew.hosts:
        _drop_host(state, event.node, event.reason, out)


def message_lost(state: RoundState, event: distribution.MessageLost, out: Out) -> None:
    """Send again what a host did not take; drop it if it did not take it a second time."""
    if state.crew.publication.message_lost(event, out):
        _drop_host(state, event.host, event.reason, out)


def base_missing(state: RoundState, event: distribution.BaseMissing, out: Out) -> None:
    """Send a host what it was to keep of the former version, and does not hold."""
    state.crew.publication.base_missing(event, out)


def host_unreachable(state: RoundState, event: distribution.HostUnreachable, out: Out) -> None:
    """Drop a host that does not answer; have others send where it cannot."""
    if state.crew.publication.unreachable(event, out):
        _drop_host(state, event.host, event.reason, out)


def version_late(state: RoundState, event: DeadlinePassed, out: Out) -> None:
    """Ask the hosts that do not hold the version in time what they miss; drop those that are late too often."""
    for host in state.crew.publication.deadline_passed(event, out):
        _drop_host(state, host, "late too often", out)


def ranges_missing(state: RoundState, event: distribution.RangesMissing, out: Out) -> None:
    """Send hosts what they miss once all that were asked have answered."""
    state.crew.publication.misses(event, out)


def _drop_host(state: RoundState, host: str, reason: str, out: Out) -> None:
    out.append(distribution.HostDropped(host=host, reason=reason))
    state.crew.publication.gone(host, out)
    gone = state.crew.dropped(host, state.t)
    state.warmup.drop(host)
    if state.evaluator in gone:
        state.evaluator = None
    for i in gone:
        if give_up_with(state, i, f"node {host} is gone: {reason}", out):
            return
        if len(state.crew.members[i].lost_t) > state.config["max_collector_restarts"]:
            end(state, "failed", f"collector {i} was lost too often, now with node {host}: {reason}", out)
            return
    planner = {**state.names, **state.next_names}["placement"]
    out.append(words.AskPlacement(n_collectors=len(state.crew.members), planner=planner))


# ---------------------------------------------------------------------- parameters out
def host_completed(state: RoundState, event: distribution.HostCompleted, out: Out) -> None:
    """Wake the collectors of a host that holds the version now."""
    publication = state.crew.publication
    if not publication.completed(event, out):
        return
    state.progress.push_s = max(state.progress.push_s or 0.0, event.publish_s)
    if not publication.behind(event.version):
        n_hosts = len(publication.hosts)
        out.append(
            distribution.VersionPublished(version=event.version, publish_s=publication.publish_s, n_hosts=n_hosts)
        )
        publication.measure(state.planner(DISTRIBUTION), out)
    go_on(state, out)


def link_measured(state: RoundState, event: distribution.LinkMeasured, out: Out) -> None:
    """Plan the next version with what was measured."""
    state.crew.publication.measured(event)


# ---------------------------------------------------------------------- experience
def experience_arrived(state: RoundState, event: words.ExperienceArrived, out: Out) -> None:
    """Queue a collector's share of the round, or free one that comes too late."""
    queued = state.arrived.get(event.collector)
    if queued is not None and queued.key == event.key:
        return  # the message came twice: dropping its key would free the batch that is queued
    refusal = _refusal(state, event)
    if refusal:
        drop(event, event.round, refusal, out)
        return
    state.arrived[event.collector] = Batch(collector=event.collector, key=event.key, n_samples=event.n_samples)
    state.crew.sent(event.collector)
    state.progress.collected(event.collector, event.queued_s + event.collect_s, event.episodes)
    state.collect_s[event.collector] = event.collect_s
    state.timed(event.collector, event.collect_s, event.n_samples)
    if state.after_timesteps >= state.config["total_timesteps"]:
        state.warmup.last(event.round)
    warm(state, event, out)
    if len(state.arrived) == len(state.crew.members):
        n_samples = sum(batch.n_samples for batch in state.arrived.values())
        out.append(batching.RoundClosed(round=event.round, n_samples=n_samples))
    if state.config["replay"]:
        draw(state, out)
    else:
        plan_hold(state, out)


def _refusal(state: RoundState, event: words.ExperienceArrived) -> str:
    """Return why a fragment is of no use, empty if it is."""
    version = state.version
    if event.attempt != state.attempt:
        return f"attempt {event.attempt}, now {state.attempt}"
    if event.round != version or event.version != version:
        return f"round {event.round} under version {event.version}, now {version}"
    if event.collector in state.arrived:
        return "second copy"
    if state.closing:
        return "the round was left unfinished"
    return ""
