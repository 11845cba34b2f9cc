"""A command that fails in the way its option says."""

from drlnb.cli.parser import Command, option
from drlnb.records.errors import ConfigError, PeerError, TrainingFailed

ERRORS = {
    "input": ConfigError(["a is wrong", "b, too"]),
    "training": TrainingFailed("task a failed: it broke\n  File x, line 3"),
    "peer": PeerError("scheduler", "did not answer"),
    "defect": ZeroDivisionError("division by zero"),
    "ctrl-c": KeyboardInterrupt(),
}


def run(args):
    if args.kind in ERRORS:
        raise ERRORS[args.kind]
    print(args.kind)
    return 0


COMMAND = Command("fail", run, (option("kind"),))
