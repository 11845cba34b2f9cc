"""Declare how much each benchmark measures: the options of its command line, each a field."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.frame.bench import option
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import Windows

__all__ = [
    "CASES",
    "BatchingLive",
    "Distribution",
    "Gpu",
    "LeasingLive",
    "Patents",
    "Peers",
    "Placement",
    "Returns",
    "Runtime",
    "Seats",
    "SimulatedBatching",
    "SimulatedLeasing",
    "SimulatedWarmup",
    "Swapping",
    "WarmupLive",
]


class Case(NamedTuple):
    """One environment and algorithm under the shipped settings, and what every seed must earn."""

    algo: str
    env: str
    #: Mean raw return of 40 deterministic episodes, of the worst seed.
    at_least: float
    #: ``ci`` takes seconds a seed, ``nightly`` minutes.
    tier: str


#: Row of ``python -m benchmarks returns`` -> case.
CASES = {
    "ppo-cartpole": Case("ppo", "CartPole-v1", 475, "ci"),
    "gpf-cartpole": Case("gpf", "CartPole-v1", 475, "ci"),
    "dqn-cartpole": Case("dqn", "CartPole-v1", 475, "ci"),
    "ppo-acrobot": Case("ppo", "Acrobot-v1", -100, "nightly"),
    "gpf-acrobot": Case("gpf", "Acrobot-v1", -120, "nightly"),
    "ppo-mountaincar": Case("ppo", "MountainCar-v0", -130, "nightly"),
    "dqn-mountaincar": Case("dqn", "MountainCar-v0", -130, "nightly"),
    "ppo-pendulum": Case("ppo", "Pendulum-v1", -250, "nightly"),
    "ppo-catch": Case("ppo", "drlnb/Catch-v0", 0.8, "nightly"),
    "ppo-lunarlander": Case("ppo", "LunarLander-v3", 200, "nightly"),
    "ppo-halfcheetah": Case("ppo", "HalfCheetah-v5", 1300, "nightly"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """How much ``python -m benchmarks runtime`` measures."""

    repeats: int = option(3, "interleaved pairs per row", least=1)
    steps: int = option(50_000, "steps of overhead-train", least=1)
    quick: bool = option(False, "leave out the baseline of reclaim: it takes 30-40 s by its rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """How much ``python -m benchmarks rl`` measures."""

    #: The returns are compared under every relabelling: more pairs would take for ever.
    pairs: int = option(5, "interleaved pairs per row, at most 10", least=1, most=10)
    steps: int | None = option(None, "environment steps per training (default: the row's)", least=1)
    seed: int = option(0, "seed of the first pair", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """How much ``python -m benchmarks returns`` measures."""

    tier: str = option("ci", "which rows, without --rows", choices=("ci", "nightly"))
    seeds: int = option(3, "seeds per row", least=1)
    seed: int = option(0, "the first seed", least=0)
    jobs: int = option(1, "trainings at once", least=1)
    steps: int | None = option(None, "environment steps per training (default: shipped)", least=1)

    @property
    def names(self) -> Sequence[str]:
        """The rows of the tier."""
        return [name for name, case in CASES.items() if case.tier == self.tier]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Simulated:
    repeats: int = option(5, "seeds per row, at most 5", least=1, most=5)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of each row."""
        return tuple(range(self.repeats))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLeasing(_Simulated):
    """How much ``python -m benchmarks leasing`` simulates: rounds per task, of which a tenth does not count."""

    rounds: int = option(60, "rounds per simulated run", least=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWarmup(_Simulated):
    """How much ``python -m benchmarks warmup`` simulates: rounds per run, of which a tenth does not count."""

    rounds: int = option(400, "rounds per simulated run", least=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBatching(_Simulated):
    """How much ``python -m benchmarks batching`` simulates."""

    splits: int = option(2000, "splits per simulated run", least=20)

    @property
    def names(self) -> Sequence[str]:
        """The groups that train no network."""
        return ("static", "bursts", "harm", "foreseen", "unseen", "patent", "plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingLive:
    """How much ``python -m benchmarks batching-live`` measures."""

    repeats: int = option(3, "trainings of each way", least=1)
    rounds: int = option(30, "rounds of each that count", least=2)
    steps: int = option(96, "steps of supervised work, of about 100 ms each", least=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How much ``python -m benchmarks placement`` simulates."""

    trace: str = option("", "CSV file of jobs (default: the sample that is part of the package)")
    windows: int = option(60, "windows of 64 jobs, as far as they share none", least=2)
    paths: int = option(6, "fault paths of each; more where there are fewer windows", least=1)
    seed: int = option(0, "of rates and faults", least=0, most=2**31)
    seconds: float = option(60.0, "processor seconds of each training of planner patent", least=1)
    quick: bool = option(False, "12 windows and 2 paths, a tenth of all else")

    @property
    def names(self) -> Sequence[str]:
        """The groups that train no network for long."""
        return ("exact", "baselines", "null", "learner", "small", "speed")

    @property
    def share(self) -> float:
        """Share of the runs that are made."""
        return 0.1 if self.quick else 1.0

    def of(self, family: str, n_jobs: int = 64, max_gpus: int = 32) -> Windows:
        """Return the windows of a family of jobs."""
        n_windows, n_paths = (12, 2) if self.quick else (self.windows, self.paths)
        jobs = Windows(family=family, n_jobs=n_jobs, max_gpus=max_gpus)
        return replace(jobs, n_windows=n_windows, n_paths=n_paths, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementLive:
    """How much ``python -m benchmarks placement-live`` measures."""

    kills: int = option(20, "workers that are killed under gangs of jobs", least=1)
    paths: int = option(3, "paths of faults on which jobs are run beside the simulator", least=1)
    gang_kills: int = option(10, "executors that are killed under a task's gang", least=1)
    every_s: float = option(30.0, "seconds between these", least=1)
    rounds: int = option(1300, "rounds of that task", least=10)
    seed: int = option(0, "of who is killed, and when", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patents:
    """How much ``python -m benchmarks patents`` measures."""

    steps: int = option(200_000, "environment steps of each task", least=512)
    seeds: int = option(1, "seeds; each is trained by both sets of rules", least=1)
    seed: int = option(0, "the first seed", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingLive:
    """How much ``python -m benchmarks leasing-live`` measures."""

    repeats: int = option(3, "turns of every way", least=1)
    rounds: int = option(40, "rounds of each task", least=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupLive:
    """How much ``python -m benchmarks warmup-live`` measures."""

    repeats: int = option(3, "trainings of each way", least=1)
    rounds: int = option(16, "rounds of each that count", least=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """How much ``python -m benchmarks seats`` measures."""

    repeats: int = option(3, "turns of every way", least=1)
    seconds: float = option(30.0, "that count, per way", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How much ``python -m benchmarks distribution`` measures, and on which links.

    Raises
    ------
    ConfigError
        If there are not as many rates as numbers of hosts.
    """

    rig: str = option("netns", "links: shaped (needs root), or emulated", choices=("netns", "emulated"))
    hosts: tuple[int, ...] = option((8, 16), "hosts beside the learner, of each rig", least=2, most=200)
    rate_mbit: tuple[float, ...] = option((200.0, 100.0), "Mbit/s of every card, of each rig", least=1)
    model_mb: float = option(20.0, "megabytes of one version", least=0.1, most=1000)
    repeats: int = option(3, "turns of every plan", least=1)

    def __post_init__(self) -> None:
        if len(self.hosts) != len(self.rate_mbit):
            raise ConfigError(f"--rate-mbit must have {len(self.hosts)} numbers as --hosts, got {len(self.rate_mbit)}")

    @property
    def n_bytes(self) -> int:
        """Bytes of one version."""
        return round(self.model_mb * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """How much ``python -m benchmarks gpu`` measures: by default some minutes on one device.

    Raises
    ------
    ConfigError
        If there is no CUDA device here.
    """

    repeats: int = option(2, "turns of every way", least=1)
    seconds: float = option(8.0, "that count, per way", least=1)

    def __post_init__(self) -> None:
        _need_cuda("bench gpu")


def _need_cuda(bench: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"{bench} needs a CUDA device, and torch {torch.__version__} sees none here")


#: What ``python -m benchmarks swapping`` measures on a CPU, and in each phase on a CUDA device.
_SWAPPING = {
    "cpu": (("gradients", "memory", "hooks", "predicted", "overlap", "squeezed", "subset", "contest", "table"),),
    "cuda": (("copies",), ("batches",), ("steps",), ("task",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapping:
    """How much ``python -m benchmarks swapping`` measures, and on which device.

    Raises
    ------
    ConfigError
        If CUDA is asked for and there is none, or a phase without it.
    """

    device: str = option("cpu", "where steps are made: other rows for each", choices=tuple(_SWAPPING))
    phase: int | None = option(None, "part of --device cuda: 1 copies, 2 batches, 3 steps, 4 task", least=1, most=4)
    mode: str = option("fp32", "arithmetic of --device cuda", choices=("fp32", "tf32"))
    repeats: int = option(3, "turns of every way", least=1)

    def __post_init__(self) -> None:
        if self.device == "cuda":
            _need_cuda("bench swapping --device cuda")
        elif self.phase or self.mode != "fp32":
            raise ConfigError("--phase and --mode need --device cuda")

    @property
    def names(self) -> Sequence[str]:
        """The groups of the device, or of the phase."""
        parts = _SWAPPING[self.device]
        return [name for part in (parts[self.phase - 1 : self.phase] if self.phase else parts) for name in part]
