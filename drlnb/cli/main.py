"""Run one command of the command line: exit codes, and one line per error.

Nothing heavy is imported here: each command imports what it needs when it runs.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module

import drlnb
from drlnb.cli.option_names import by_options
from drlnb.cli.parser import Command, Parser, UsageError, parse
from drlnb.fleet.plain import first_line
from drlnb.records.errors import InputError, PeerError, TrainingFailed

__all__ = ["build_parser", "main"]

#: Command -> its module, in the order of ``--help``.
_COMMANDS = {
    name: f"drlnb.cli.{name}"
    for name in ("train", "resume", "runs", "replay", "report", "play", "simulate", "lab", "doctor")
}
#: Command that has gone -> what to do instead.
_FORMER = {"bench": "benchmarks are not in the package: run 'python -m benchmarks NAME' in a checkout of drlnb"}

#: Exit codes: a task or the run failed; wrong input; stopped by Ctrl-C.
_FAILED, _WRONG, _STOPPED = 1, 2, 130


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="drlnb", description="Train many deep-RL tasks at once on a few GPUs, on a Dask cluster.")
    parser.add_argument("--version", action="version", version=f"drlnb {drlnb.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True, parser_class=Parser)
    for name, module in _COMMANDS.items():
        command: Command = import_module(module).COMMAND
        command.add_to(commands, name)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        Words after ``drlnb``; None: this process's.

    Returns
    -------
    int
        0 done; 1 a task or the run failed; 2 wrong input; 130 stopped by Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    args = argparse.Namespace(parser=None)
    try:
        if words[:1] and words[0] in _FORMER:
            raise UsageError(_FORMER[words[0]])
        with _sigterm_as_ctrl_c():
            args = parse(build_parser(), words)
            code: int = args.run(args)
            sys.stdout.flush()
            return code
    except SystemExit as end:  # argparse's --help and --version
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing can be written, and the interpreter must not try to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except KeyboardInterrupt:
        return _failed("stopped", _STOPPED, debug=debug)
    except (InputError, TrainingFailed, PeerError) as error:
        said = by_options(first_line(error), args.parser)
        return _failed(said, _WRONG if isinstance(error, InputError) else _FAILED, debug=debug)
    except OSError as error:  # a disk, a path or a socket; the system's words name it
        return _failed(first_line(error), _FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001 - the last place where an error can become one line
        return _failed(f"{type(error).__name__}: {first_line(error)} (--debug shows where)", _FAILED, debug=debug)


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM, and SIGHUP unless it is ignored (nohup), as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    former = {each: signal.signal(each, signal.default_int_handler) for each in ends}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


def _failed(text: str, code: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    with contextlib.suppress(OSError):  # of a terminal that is gone
        print(f"drlnb: {text}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
