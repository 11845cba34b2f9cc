"""Keep the models of the latest used tasks on a slot between their leases, as many as a byte budget holds."""

from drlnb.records.ids import Fence
from drlnb.rl.algorithms.learner import Learner

__all__ = ["Model", "Residency"]


class Model:
    """One task's model on a slot."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        #: Version of the parameters that the learner holds.
        self.version = 0
        #: (fence, round) of the batches staged so far.
        self.staging: tuple[Fence, int] | None = None
        #: Gradients of this round that the master keeps, too: key -> as they were packed.
        self.parts: dict[str, bytes] = {}
        #: Parameters, moments and a gradient.
        self.n_bytes = 0

    def sized(self, n_state: int) -> None:
        """Record what the model takes, by the bytes of its training state."""
        self.n_bytes = n_state * 4 // 3  # parameters and two moments; and a gradient


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
        self.pop(task, None)
        self[task] = model

    def drop(self, task: str) -> bool:
        """Drop a task's model; false if it is not here."""
        return self.pop(task, None) is not None

    def shrink(self, budget_bytes: float, task: str) -> tuple[str, ...]:
        """Drop models until all together fit a budget; one task's stays, however large.  Return whose are gone."""
        dropped = []
        for other in [other for other in self if other != task]:
            if self.n_bytes <= budget_bytes:
                break
            del self[other]
            dropped.append(other)
        return tuple(dropped)
