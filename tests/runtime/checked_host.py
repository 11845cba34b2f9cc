"""A host that checks its machine's invariants after each event."""

from drlnb.runtime.machine_host import MachineHost

__all__ = ["CheckedHost"]


class CheckedHost(MachineHost):
    """A host of a machine that may break its invariants."""

    def _one(self, kind, fields):
        super()._one(kind, fields)
        self.machine.check()
