"""Run one member of a gang in a Dask worker, and let its function know what it is part of."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

from distributed import get_worker

from drlnb.records.errors import ConfigError
from drlnb.runtime.ipc.pickling import pack_error, pack_value, unpack
from drlnb.runtime.placement import checkpoints
from drlnb.runtime.placement.checkpoints import ResumePoint

if TYPE_CHECKING:
    from drlnb.runtime.placement.agent import SlotAgent

__all__ = ["LOST", "RAISED", "RETURNED", "Member", "Part", "run_member"]

#: What became of a member: it returned, it raised, or nobody knows; the first two with a pickle.
RETURNED, RAISED, LOST = "returned", "raised", "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A member's part of a gang, as it travels."""

    #: Name of the agent among a worker's plugins, and the process in which the member is to run.
    plugin: str
    life: str
    #: Name of the gang, unique over all runs.
    gang: str
    attempt: int
    rank: int
    size: int
    slot: str
    #: Pickle of the function.
    call: bytes
    #: None: the job has no folder for checkpoints.
    resume: ResumePoint | None
    #: Seconds between signs of life; None: nobody listens.
    sign_s: float | None


class Member:
    """What the function of a job is given: which part of the gang it is, and where the job had been.

    Attributes
    ----------
    rank, size
        Its number, from 0, and how many there are.
    slot
        Name of its slot.
    attempt
        Number of the job's gang, from 1.
    resume_step
        Newest step that all members had saved; 0 at the beginning.
    """

    def __init__(self, part: Part, agent: "SlotAgent") -> None:
        self.rank, self.size, self.slot, self.attempt = part.rank, part.size, part.slot, part.attempt
        self.resume_step = 0 if part.resume is None else part.resume.step
        self._part, self._agent = part, agent
        self._signed_s = time.monotonic()

    def should_stop(self) -> bool:
        """Return whether the gang is to stop: save if you like, and return, within 30 s.

        To ask is a sign of life, too, for jobs with `silent_s`.
        """
        sign_s, now_s = self._part.sign_s, time.monotonic()
        if sign_s is not None and now_s - self._signed_s >= sign_s:
            self._signed_s = now_s
            self._agent.say("member_lives", gang=self._part.gang, rank=self.rank)
        return self._agent.stops(self._part.gang)

    def save(self, step: int, payload: object) -> None:
        """Save what the member needs to go on after a step; a step counts once all members have saved it.

        Parameters
        ----------
        step
            Its number, above 0.
        payload
            Anything that can be pickled; None where another member saves for this one.

        Raises
        ------
        ConfigError
            If the job has no folder, or the step is no number above 0.
        OSError
            If it cannot be written.
        """
        if self._part.resume is None:
            raise ConfigError("the job has no folder for checkpoints: Job(..., checkpoint=FOLDER)")
        if not isinstance(step, Integral) or step < 1:
            raise ConfigError(f"step must be a whole number above 0, got {step!r}")
        checkpoints.save(self._part.resume.saves_to, int(step), self.rank, self.size, payload)
        self._agent.say("member_saved", gang=self._part.gang, rank=self.rank, step=int(step))

    def load(self) -> object:
        """Return what this member had saved at `resume_step`; None at the beginning.

        Raises
        ------
        ConfigError
            If it cannot be read here.
        """
        return checkpoints.load(self._part.resume, self.rank) if self._part.resume and self.resume_step else None


def run_member(part: Part) -> tuple[str, bytes]:
    """Return what became of a member, and a pickle of its result or error.

    Dask runs it again if its worker dies; elsewhere than where it was to run it does nothing.
    """
    agent = get_worker().plugins.get(part.plugin)
    if getattr(agent, "life", "") != part.life:
        return LOST, b""
    with agent.running(part.gang, part.rank):
        try:
            function: Callable[[Member], object]
            function, _, _ = unpack(part.call)
            result = None if agent.stops(part.gang) else function(Member(part, agent))
            # Of a gang that was told to stop it may be half of what it would have been.
            return (LOST, b"") if agent.stops(part.gang) else (RETURNED, pack_value(result))
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            return RAISED, pack_error(error)
