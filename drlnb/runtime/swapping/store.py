"""Keep swap plans by their keys, and put them around the training steps of an executor."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

__all__ = ["SwapPlans"]

#: Makes what a plan does around one training step.
Hook = Callable[[], AbstractContextManager[None]]


class SwapPlans:
    """The swap plans of one executor."""

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}

    def put(self, key: str, hook: Hook) -> None:
        """Keep a plan.

        Parameters
        ----------
        key
            The one that commands name it by.
        hook
            Returns a context manager that is open during one training step.
        """
        self._hooks[key] = hook

    def around(self, key: str | None) -> AbstractContextManager[None]:
        """Return what a plan does around a training step.

        Parameters
        ----------
        key
            The plan's; None: every tensor stays on the device.

        Raises
        ------
        ValueError
            If there is no such plan here.
        """
        if key is None:
            return nullcontext()
        if key not in self._hooks:
            known = ", ".join(sorted(self._hooks)) or "none"
            raise ValueError(f"no swap plan {key!r} is here; known are {known}")
        return self._hooks[key]()
