"""Which floor learns?  Environments, collectors, learners and evaluation, with no cluster in sight.

Import the module you need (``drlnb.rl.collect``, ``drlnb.rl.learner``): this package loads nothing by itself, so that a
collector process never pays for torch.  A few names that people type load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drlnb.rl.evaluation import Evaluation, evaluate
    from drlnb.rl.video import Episode, record_episode

__all__ = ["Episode", "Evaluation", "evaluate", "record_episode"]

#: Name -> the module that defines it; none has the name of a module.
_HOMES = {
    "Episode": "drlnb.rl.video",
    "Evaluation": "drlnb.rl.evaluation",
    "evaluate": "drlnb.rl.evaluation",
    "record_episode": "drlnb.rl.video",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb.rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
