"""Begin a master's attempt with nothing, or with what a checkpoint holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drlnb.planning.leasing.fence import StoreGate
from drlnb.rl.checkpoints.trained import Trained

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["AGAIN", "Committed", "taken_over"]

#: How :meth:`Master.run_to_end` ends when another attempt must follow here.
AGAIN = "again"


@dataclass(slots=True, kw_only=True)
class Committed:
    """The newest version in host memory."""

    version: int = 0
    published: bytes | memoryview = b""
    #: Training state: plain facts and one flat buffer.
    facts: Mapping[str, Any] = field(default_factory=dict)
    state: bytes | memoryview = b""


def taken_over(master: "Master", restored: tuple[Trained, Mapping[str, Any]] | None) -> dict[str, Any]:
    """Give a checkpoint to a master; return the fields of TaskOpened.

    Parameters
    ----------
    master
        The master, whose machine is not up yet.
    restored
        What was read, and its other facts; None: the task begins.
    """
    if restored is None:
        nothing: tuple[tuple[float, int], ...] = ()
        plain = {"version": 0, "n_rounds": 0, "n_timesteps": 0, "elapsed_s": 0.0, "episodes": nothing, "n_bytes": 0}
        return {**plain, "settings": master.live}
    trained, facts = restored
    version = trained.n_rounds + 1
    master.committed = Committed(
        version=version,
        published=trained.state.published.tobytes(),
        facts=dict(trained.state.facts),
        state=trained.state.buffer.tobytes(),
    )
    master.gate = StoreGate(version=version)
    master.envs, master.ring_state = trained.envs, trained.replay
    return {
        "version": version,
        "n_rounds": trained.n_rounds,
        "n_timesteps": trained.n_timesteps,
        "elapsed_s": trained.elapsed_s,
        "episodes": trained.episodes,
        "n_bytes": len(master.committed.published),
        "eval_best": facts.get("eval_best"),
        "settings": {**facts.get("settings", {}), **master.live},
    }
