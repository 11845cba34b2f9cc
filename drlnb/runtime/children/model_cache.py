"""Keep the models of the latest used tasks on a slot between their leases, as many as a byte budget holds."""

from drlnb.records.ids import Fence
from drlnb.rl.algorithms.learner import Learner

__all__ = ["MEMORY_FRAC", "Model", "Residency"]

#: Share of a device's memory that models may take between leases (leasing, 4.2); the rest is for what is computed.
MEMORY_FRAC = 0.6


class Model:
    """One task's model on a slot."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        #: Version of the parameters that the learner holds; -1 while a round is half done.
        self.version = 0
        #: (fence, round) of the batches staged so far.
        self.staging: tuple[Fence, int] | None = None
        #: Gradients of this round that the master keeps, too: key -> as they were packed.
        self.parts: dict[str, bytes] = {}
        #: Parameters, moments and a gradient.
        self.n_bytes = 0


class Residency(dict[str, Model]):
    """The models of one slot, by task; who was used longest ago is first.

    What is dropped is nowhere lost: a version is committed to host memory under the lease that made it, and so are the
    gradients of a lease that was given away, so the next lease brings the state along.

    Parameters
    ----------
    budget_bytes
        What all models may take together.  The one in use stays, however large it is.
    """

    def __init__(self, budget_bytes: float) -> None:
        self.budget_bytes = budget_bytes

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

    def sized(self, task: str, n_state: int) -> tuple[str, ...]:
        """Record the bytes of a task's training state; return whose models were dropped to make room for it."""
        self[task].n_bytes = n_state * 4 // 3  # parameters and two moments; and a gradient
        dropped = []
        for other in [other for other in self if other != task]:
            if self.n_bytes <= self.budget_bytes:
                break
            del self[other]
            dropped.append(other)
        return tuple(dropped)
