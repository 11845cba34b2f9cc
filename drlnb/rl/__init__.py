"""Which floor learns?  Environments, collectors, learners and evaluation, with no cluster in sight.

Import the module you need (``drlnb.rl.collect``, ``drlnb.rl.learner``): this package loads nothing by itself, so that a
collector process never pays for torch.  A few names that people type load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drlnb.rl.advantages import gae
    from drlnb.rl.dqn_losses import dqn_loss
    from drlnb.rl.evaluation import Evaluation, evaluate
    from drlnb.rl.gpf_losses import gpf_loss
    from drlnb.rl.losses import ppo_loss
    from drlnb.rl.traces import retrace, vtrace
    from drlnb.rl.video import Episode, record_episode

__all__ = [
    "Episode",
    "Evaluation",
    "dqn_loss",
    "evaluate",
    "gae",
    "gpf_loss",
    "ppo_loss",
    "record_episode",
    "retrace",
    "vtrace",
]

#: Name -> the module that defines it; none has the name of a module.
_HOMES = {
    "Episode": "drlnb.rl.video",
    "Evaluation": "drlnb.rl.evaluation",
    "dqn_loss": "drlnb.rl.dqn_losses",
    "evaluate": "drlnb.rl.evaluation",
    "gae": "drlnb.rl.advantages",
    "gpf_loss": "drlnb.rl.gpf_losses",
    "ppo_loss": "drlnb.rl.losses",
    "record_episode": "drlnb.rl.video",
    "retrace": "drlnb.rl.traces",
    "vtrace": "drlnb.rl.traces",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb.rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
