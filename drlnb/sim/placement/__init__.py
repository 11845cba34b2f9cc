"""Play traces of jobs on slots that fail, and compare planners of gangs on the same faults."""

from drlnb.sim.placement.attempts import Attempt, Conditions, Outcome
from drlnb.sim.placement.compare import Windows, ratio_of, side_by_side
from drlnb.sim.placement.faults import FaultModel, FaultPath
from drlnb.sim.placement.play import play, simulate
from drlnb.sim.placement.traces import Trace, TraceJob, Window, load_trace

__all__ = [
    "Attempt",
    "Conditions",
    "FaultModel",
    "FaultPath",
    "Outcome",
    "Trace",
    "TraceJob",
    "Window",
    "Windows",
    "load_trace",
    "play",
    "ratio_of",
    "side_by_side",
    "simulate",
]
