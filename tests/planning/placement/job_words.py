"""Speak with a machine that places jobs: one call per event, each followed by the end of its instant."""

import json

from drlnb.planning.placement.jobs.machine import PlacementMachine
from drlnb.planning.registry import Planners
from drlnb.records.columns import placement as words
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.common import DeadlinePassed, SetDeadline, SettingChanged

CONFIG = {"planner": "first", "order": "fifo", "backfill": "greedy", "hold_s": 30.0}


class Jobs:
    """A machine, and what it has answered."""

    def __init__(self, n_nodes=2, slots_per_node=4, own=None, **config):
        self.config = CONFIG | config
        self.machine = PlacementMachine(self.config, Planners(own))
        self.t, self.answers, self.events = 0.0, [], []
        for node in range(n_nodes):
            for k in range(slots_per_node):
                self.tell(self.up(f"s{node * slots_per_node + k}", f"n{node}"))
        self.settle()

    def up(self, slot, node="n0"):
        return SlotAdded(t=self.t, slot=slot, node=node, device="cpu", executor_epoch=0)

    def tell(self, event):
        """Feed one event, and nothing after it."""
        self.events.append(event)
        answer = self.machine.handle(event)
        self.machine.check()
        self.answers += answer
        return list(answer)

    def settle(self):
        """End the instant, as often as the machine asks for."""
        heard = []
        while self.machine.state.waking:
            heard += self.tell(DeadlinePassed(t=self.t, name="instant"))
        return [record for record in heard if not isinstance(record, SetDeadline)]

    def at(self, t, *events):
        """Feed events of one instant, made by functions of the time, and end it; return all but deadlines."""
        self.t = t
        heard = []
        for make in events:
            heard += self.tell(make(t))
        return [record for record in heard if not isinstance(record, SetDeadline)] + self.settle()

    def slots_of(self, job):
        """Return the slots that were planned last for a job."""
        return [record.slots for record in self.answers if isinstance(record, words.GangPlanned) and record.job == job][
            -1
        ]

    def restored(self):
        """Return another machine with this one's state."""
        other = PlacementMachine(self.config, self.machine.state.planners)
        other.restore(json.loads(json.dumps(self.machine.snapshot())))
        return other


def submit(job, n_slots, work_s=100.0):
    return lambda t: words.JobSubmitted(t=t, job=job, n_slots=n_slots, work_s=work_s)


def started(job, version, slots):
    return lambda t: words.JobStarted(t=t, job=job, gang_version=version, slots=tuple(slots))


def fails(slot, reason="gone"):
    return lambda t: SlotFailed(t=t, slot=slot, reason=reason)


def taken(slot):
    return lambda t: words.SlotTaken(t=t, slot=slot, by="process 7")


def back(slot, node="n0"):
    return lambda t: SlotAdded(t=t, slot=slot, node=node, device="cpu", executor_epoch=0)


def finished(job, version):
    return lambda t: words.JobFinished(t=t, job=job, gang_version=version, ran_s=1.0)


def stopped(job, version, kept_s=0.0):
    return lambda t: words.GangStopped(t=t, job=job, gang_version=version, ran_s=kept_s, kept_s=kept_s)


def saved(job, version, kept_s):
    return lambda t: words.CheckpointSaved(t=t, job=job, gang_version=version, kept_s=kept_s)


def raised(job, version, slot, reason="ValueError: no"):
    return lambda t: words.GangMemberLost(t=t, job=job, gang_version=version, slot=slot, reason=reason)


def silent(job, version, slots, stuck=()):
    return lambda t: words.GangSilent(
        t=t, job=job, gang_version=version, slots=tuple(slots), stuck=tuple(stuck), silent_s=60.0
    )


def unwanted(job, reason="stopped by the user"):
    return lambda t: words.JobStopped(t=t, job=job, reason=reason)


def passed(name):
    return lambda t: DeadlinePassed(t=t, name=name)


def drain(slot, *, back_again=False):
    key = "slot.undrain" if back_again else "slot.drain"
    return lambda t: SettingChanged(t=t, key=key, value=slot, task=None)
