"""Keep the models of the latest used tasks on a slot between their leases, as many as a byte budget holds."""

import torch

from drlnb.records.columns.swapping import SwapOrder
from drlnb.records.ids import Fence
from drlnb.rl.algorithms.learner import Learner, plainly
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.protocol import Plain
from drlnb.runtime.swapping.driven import Driven

__all__ = ["Model", "Residency"]


class Model:
    """One task's model on a slot."""

    def __init__(self, learner: Learner | FitLearner) -> None:
        self.learner = learner
        #: Version of the parameters that the learner holds.
        self.version = 0
        #: Key of the parameters that it holds, as a step of several slots made them; empty: they have none.
        self.holds = ""
        #: It is at no version: in the midst of a round, or it has only the parameters of a step.
        self.ahead = False
        #: (fence, round) of the batches staged so far.
        self.staging: tuple[Fence, int] | None = None
        #: Their collectors, each with its environments; none are known of what was computed elsewhere.
        self.staged: dict[int, tuple[int, ...]] = {}
        #: Gradients of this round that the master keeps, too: key -> as they were packed.
        self.parts: dict[str, bytes] = {}
        #: Parameters, moments and a gradient.
        self.n_bytes = 0
        #: Makes its gradient steps under a budget; None: there was none yet.
        self.driven: Driven | None = None

    def is_at(self, version: int) -> bool:
        """Whether its learner is at a version as a whole."""
        return self.version == version and not self.ahead

    def has_parameters(self, version: int) -> bool:
        """Whether its learner has the parameters of a version, and perhaps nothing else of it."""
        return self.is_at(version) or self.holds == _bare(version)

    def restored(self, version: int, *, bare: bool) -> None:
        """Note that it was brought to a version; `bare`: without what the optimiser keeps of each parameter."""
        self.got(_bare(version) if bare else "", None if bare else version)
        self.staging = None
        self.parts.clear()

    def got(self, key: str, version: int | None = None) -> None:
        """Note that it has parameters with a key, of a version or of a step that is no version."""
        self.holds, self.ahead = key, version is None
        self.version = self.version if version is None else version

    @property
    def module(self) -> torch.nn.Module | None:
        """Its network; None: an MLP, whose gradient is written out."""
        return self.learner.module

    def follow(self, header: Plain) -> bool:
        """Make the next gradient steps as a command's header says; false if the plan must be sent."""
        if not header.get("swap") or self.module is None:
            self.learner.around = plainly
            return True
        self.driven = self.driven or Driven(self.module)
        self.learner.around = self.driven.around
        return self.driven.follow(SwapOrder(**header["swap"]), header.get("swap_plan"))

    def swaps(self) -> list[Plain]:
        """Return what is to be reported of the gradient steps since the last call."""
        return self.driven.events() if self.driven else []

    def sized(self, n_state: int, *, bare: bool = False) -> None:
        """Record what the model takes, by the bytes of its training state: parameters and two moments, and a gradient.

        Parameters
        ----------
        n_state
            Those bytes; `bare`: of parameters alone.
        """
        self.n_bytes = n_state * 2 if bare else n_state * 4 // 3


def _bare(version: int) -> str:
    """Return under which key a model holds a version's parameters, and nothing of its optimiser's."""
    return f"version {version}"


class Residency(dict[str, Model]):
    """The models of one slot, by task; who was used longest ago is first.

    What is dropped is nowhere lost: a version is committed to host memory under the lease that made it, and so are the
    gradients of a lease that was given away, so the next lease brings the state along.
    """

    @property
    def n_bytes(self) -> int:
        """Bytes of all models."""
        return sum(model.n_bytes for model in self.values())

    def use(self, task: str) -> Model | None:
        """Return a task's model, as the latest used one; None if it is not here."""
        if (model := self.get(task)) is not None:
            self.put(task, model)
        return model

    def put(self, task: str, model: Model) -> None:
        """Put a task's model here, in place of one that it may have had."""
        if self.get(task) is not model:
            self.drop(task)
        self.pop(task, None)
        self[task] = model

    def drop(self, task: str) -> bool:
        """Drop a task's model; false if it is not here."""
        model = self.pop(task, None)
        if model is not None and model.driven is not None:
            model.driven.close()
        return model is not None

    def shrink(self, budget_bytes: float, task: str) -> tuple[str, ...]:
        """Drop models until all together fit a budget; one task's stays, however large.  Return whose are gone."""
        dropped = []
        for other in [other for other in self if other != task]:
            if self.n_bytes <= budget_bytes:
                break
            self.drop(other)
            dropped.append(other)
        return tuple(dropped)
