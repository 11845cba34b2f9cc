"""List every benchmark: its name, its groups of rows, each with the function that measures it, and its options."""

from functools import partial

from benchmarks.batching import epochs, fitted, shared
from benchmarks.batching import live as batching_live
from benchmarks.batching import simulated as batching
from benchmarks.distribution import handover, hops, network, staleness
from benchmarks.efforts import (
    CASES,
    BatchingLive,
    Distribution,
    Gpu,
    LeasingLive,
    Patents,
    Peers,
    Placement,
    PlacementLive,
    Returns,
    Runtime,
    Seats,
    SimulatedBatching,
    SimulatedLeasing,
    SimulatedWarmup,
    Swapping,
    WarmupLive,
)
from benchmarks.frame.bench import Bench
from benchmarks.gpu import device, failures
from benchmarks.leasing import events as lease_events
from benchmarks.leasing import live as leasing_live
from benchmarks.leasing import simulated as leasing
from benchmarks.placement import exact as placement_exact
from benchmarks.placement import learner as placement_learner
from benchmarks.placement import live as placement_live
from benchmarks.placement import makespan
from benchmarks.placement import suite as placement
from benchmarks.rl import first, peers, returns
from benchmarks.runtime import messages, patents, recovery, starts, training
from benchmarks.seats import sharing
from benchmarks.swapping import contest, cpu, cuda, subset
from benchmarks.swapping import training as swapped_training
from benchmarks.warmup import live as warmup_live
from benchmarks.warmup import simulated as warmup

__all__ = ["BENCHES"]

_LEASING_LIVE = Bench(
    "leasing-live",
    "Lease one slot to four tasks, in real processes and modelled time.",
    {"throughput": leasing_live.throughput, "grants": leasing_live.grants},
    LeasingLive,
)
_WARMUP_LIVE = Bench(
    "warmup-live",
    "Train with collectors that come back in each way, in real processes.",
    {"starts": warmup_live.starts, "ahead": warmup_live.ahead},
    WarmupLive,
)
_BATCHING_LIVE = Bench(
    "batching-live",
    "Train with one learner and with two, in real processes.",
    {
        "gang": batching_live.gang,
        "epochs": epochs.epochs,
        "fit-plain": fitted.fit_plain,
        "fit-unequal": shared.fit_unequal,
        "fit-simulated": shared.fit_simulated,
        "fit-killed": shared.fit_killed,
    },
    BatchingLive,
)
_PLACEMENT_LIVE = Bench(
    "placement-live",
    "Kill workers under gangs of jobs, and executors under a task's gang, in real processes.",
    {"kills": placement_live.kills, "makespan": makespan.makespan, "gang": placement_live.gang},
    PlacementLive,
)
_ALL = (
    Bench(
        "runtime",
        "Measure what drlnb's processes, messages and leases cost, each against a named baseline.",
        {
            "hops": messages.hops,
            "handover": messages.handover,
            "overhead": training.overhead,
            "overhead-train": training.overhead_train,
            "first-step": training.first_step,
            "startup": starts.startup,
            "reclaim": recovery.reclaim,
            "failover": recovery.failover,
        },
        Runtime,
    ),
    Bench(
        "rl",
        "Train with the same settings here and in Stable-Baselines3, in turn.",
        {
            "cartpole": partial(peers.single, name="cartpole"),
            "acrobot": partial(peers.single, name="acrobot"),
            "pendulum": partial(peers.single, name="pendulum"),
            "first-round": first.first_round,
            "budget": first.budget,
            "four": peers.four,
            "neighbour": partial(peers.four, beside="neighbour"),
        },
        Peers,
    ),
    Bench(
        "returns",
        "Train under the shipped settings and play 40 deterministic episodes.",
        {name: partial(returns.returns, name=name) for name in CASES},
        Returns,
        unasked=lambda effort: effort.names,
    ),
    Bench(
        "patents",
        "Train two tasks by all of the patents' own rules, and by drlnb's, to their returns.",
        {"patents": patents.patents},
        Patents,
    ),
    Bench(
        "leasing",
        "Share slots by each hold planner, in simulation; time the lease table.",
        {
            "utilisation": leasing.utilisation,
            "throughput": leasing.throughput,
            "fairness": leasing.fairness,
            "events": lease_events.events,
        },
        SimulatedLeasing,
        live=_LEASING_LIVE,
    ),
    _LEASING_LIVE,
    Bench(
        "seats",
        "Share one device exclusively, by processes at once, and by leases with seats.",
        {name: partial(sharing.regime, name=name) for name in ("small", "large", "short")}
        | {"isolation": sharing.isolation},
        Seats,
    ),
    Bench(
        "warmup",
        "Start collectors by each planner, in simulation, on the same rounds.",
        {"wait": warmup.wait, "cells": warmup.cells, "plan": warmup.plan},
        SimulatedWarmup,
        live=_WARMUP_LIVE,
    ),
    _WARMUP_LIVE,
    Bench(
        "batching",
        "Split samples among unequal members by each planner, in simulation, beside the best that could be known.",
        {
            "static": batching.static,
            "bursts": batching.bursts,
            "harm": batching.harm,
            "foreseen": batching.foreseen,
            "unseen": batching.unseen,
            "steal": batching.steal,
            "patent": batching.patent,
            "trained": batching.trained,
            "ablation": batching.ablation,
            "plan": batching.plan,
        },
        SimulatedBatching,
        live=_BATCHING_LIVE,
        unasked=lambda effort: effort.names,
    ),
    _BATCHING_LIVE,
    Bench(
        "placement",
        "Place the jobs of a trace on slots that fail, by each planner, on the same faults.",
        {
            "exact": placement_exact.exact,
            "baselines": placement.baselines,
            "null": placement.null,
            "learner": placement_learner.learner,
            "small": placement_learner.small,
            "patent": placement_learner.patent,
            "ablation": placement_learner.ablation,
            "transfer": placement_learner.transfer,
            "speed": placement_exact.speed,
        },
        Placement,
        unasked=lambda effort: effort.names,
        live=_PLACEMENT_LIVE,
    ),
    _PLACEMENT_LIVE,
    Bench(
        "distribution",
        "Publish versions over shaped links by each plan, against each other and against what was computed.",
        {
            "network": network.network,
            "emulated": network.emulated,
            "payload": hops.payload,
            "handover": handover.handover,
            "pack": handover.pack,
            "staleness": staleness.staleness,
        },
        Distribution,
    ),
    Bench(
        "swapping",
        "Make training steps under swap plans: the same gradients, fewer bytes, and at which price.",
        {
            "gradients": cpu.gradients,
            "memory": cpu.memory,
            "hooks": cpu.hooks,
            "predicted": cpu.predicted,
            "overlap": cpu.overlap,
            "squeezed": cpu.squeezed,
            "subset": subset.subset,
            "contest": contest.contest,
            "table": contest.table,
            "copies": device.copies,
            "batches": cuda.batches,
            "steps": cuda.steps,
            "task": swapped_training.task,
        },
        Swapping,
        unasked=lambda effort: effort.names,
    ),
    Bench(
        "gpu",
        "Measure what one CUDA device costs and carries, and what happens when it is full or breaks.",
        {
            "copies": device.copies,
            "context": device.context,
            "utilisation": device.utilisation,
            "full": failures.full,
            "broken": failures.broken,
            "mlp": partial(sharing.regime, name="mlp"),
            "cnn": partial(sharing.regime, name="cnn"),
        },
        Gpu,
    ),
)
#: Every benchmark by its name, in the order in which they are listed.
BENCHES = {bench.name: bench for bench in _ALL}
