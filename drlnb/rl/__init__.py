"""Learn: environments, collectors, learners and evaluation, with no cluster in sight.

Import the module you need (``drlnb.rl.collecting.collector``, ``drlnb.rl.algorithms.registry``): this package loads
nothing by itself, so that a collector process never pays for torch.  A few names that people type load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drlnb.rl.collecting.evaluation import Evaluation, evaluate
    from drlnb.rl.collecting.video import Episode, record_episode
    from drlnb.rl.objectives.advantages import gae
    from drlnb.rl.objectives.gpf_losses import gpf_loss
    from drlnb.rl.objectives.losses import dqn_loss, ppo_loss
    from drlnb.rl.objectives.traces import retrace, vtrace

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

_FOLDERS = {
    "collecting.evaluation": ("Evaluation", "evaluate"),
    "collecting.video": ("Episode", "record_episode"),
    "objectives.advantages": ("gae",),
    "objectives.traces": ("retrace", "vtrace"),
    "objectives.gpf_losses": ("gpf_loss",),
    "objectives.losses": ("dqn_loss", "ppo_loss"),
}
#: Name -> the module that defines it; none has the name of a module.
_HOMES = {name: f"drlnb.rl.{module}" for module, names in _FOLDERS.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb.rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
