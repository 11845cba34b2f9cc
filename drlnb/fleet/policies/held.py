"""Keep what a model has learnt beside the policy that users hold of it, the same at any time."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from drlnb.fleet.policies.tensors import drawn
from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.checkpoints.trained import State, Trained

if TYPE_CHECKING:
    from drlnb.fleet.policies.torch_policy import Policy

__all__ = ["Held"]


class Held:
    """What a model has learnt, and its policy.

    Parameters
    ----------
    trained
        What was learnt; None: nothing yet.
    """

    def __init__(self, trained: Trained | None) -> None:
        self._trained = trained
        #: What the model's seed gave it, while nothing was set or learnt.
        self.drawn: Trained | None = None
        #: None: nobody has asked for it.
        self.policy: Policy | None = None
        #: Takes what is changed in the policy while the model trains, or refuses it; None: the model rests.
        self.elsewhere: Callable[[State], None] | None = None

    def trained(self) -> Trained | None:
        """Return what was learnt, with what was changed in the policy since."""
        self.read_back()
        return self._trained

    def made(self, spec: RlWork) -> Trained:
        """Return what :meth:`trained` does, or the state that the task's seed gives, which is kept."""
        self.read_back()
        if self._trained is None:
            self._trained = self.drawn = drawn(spec)
        return self._trained

    def frozen(self) -> str:
        """Return the name of a parameter that was frozen in the policy; empty: none was."""
        policy = self.policy
        if policy is None:
            return ""
        named = policy.named_parameters()
        return next((name for name, p in named if name in policy.trainable and not p.requires_grad), "")

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy gets: it makes a policy of its own."""
        self.read_back()
        return {**self.__dict__, "policy": None, "elsewhere": None}

    def read_back(self) -> None:
        """Take what was changed in the policy.

        Raises
        ------
        ConfigError
            If it cannot be changed now, or not so; the policy is as it was.
        """
        policy = self.policy
        if policy is None:
            return
        before = policy.state
        try:
            after = policy.taken()
            if after is not before and self.elsewhere is not None:
                self.elsewhere(after)
        except ConfigError:
            policy.show(policy.spec, before)
            raise
        if after is not before and self.elsewhere is None and self._trained is not None:
            self._trained = replace(self._trained, state=after)

    def adopt(self, spec: RlWork, trained: Trained | None) -> None:
        """Go on with another state; None: with that of the seed."""
        self._trained = trained
        if self.policy is not None:
            self.policy.show(spec, self.made(spec).state)
