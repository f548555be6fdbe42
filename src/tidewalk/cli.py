"""The command line: find the command, run it, turn errors into one paragraph and an exit code."""

import functools
import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from tidewalk.core.errors import ConfigError, Interrupted, TidewalkError, TrainError, did_you_mean
from tidewalk.run import ambient

COMMANDS = {
    "demo": "write a sample market, run a walk-forward study on it, and report",
    "sample": "write a synthetic ES.FUT market as DBN files",
    "inspect": "show what is in data files: contracts, spans, rolls, sessions, what was dropped",
    "windows": "show the walk-forward windows of a study without training",
    "train": "run a walk-forward study",
    "resume": "go on with an interrupted study",
    "evaluate": "trade the test months of a run again, at other costs and delays",
    "audit": "look for leaks of the future in data, features and the pipeline, on your own data",
    "report": "write the report of a run anew",
    "bench": "measure on this machine what keeping the market on the device is worth",
    "doctor": "show versions, devices and what is missing",
}
INTERNAL_ERROR = 1
STOPPED, PIPE_CLOSED = 130, 141
"""Exit codes, as of shells: stopped by Ctrl-C with nothing to resume, and output no longer read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        Its exit code: 0 done, 2 bad request, 3 training failed, 75 interrupted but resumable; 130 stopped with nothing
        to resume, 141 output no longer read, 1 a fault of this program.
    """
    if argv is not None:
        return _guarded(list(argv))
    code = _guarded(sys.argv[1:])
    if code in (Interrupted.exit_code, STOPPED):
        os._exit(code)  # the interpreter's own way out waits for what the device still computes, or trips over it
    return code


def _guarded(args: list[str]) -> int:
    is_debug = "--debug" in args
    try:
        code = _dispatch([arg for arg in args if arg != "--debug"])
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # how the parser ends after --help
        return int(stop.code or 0)
    except BrokenPipeError:
        _let_go(sys.stdout)
        _let_go(sys.stderr)
        return PIPE_CLOSED
    except (Exception, KeyboardInterrupt) as error:
        text, code = explain(error)
        try:
            if is_debug:
                traceback.print_exc()
            print(f"tidewalk: {text}", file=sys.stderr, flush=True)
        except BrokenPipeError:
            _let_go(sys.stderr)
        return code


def explain(error: BaseException) -> tuple[str, int]:
    """What an error means to the user, as one paragraph, and its exit code."""
    if isinstance(error, TidewalkError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "stopped; there is nothing to resume.", STOPPED
    # jax reports an exhausted device or host as its own RuntimeError
    if isinstance(error, MemoryError) or any(word in str(error) for word in ("RESOURCE_EXHAUSTED", "Out of memory")):
        remedy = "Use fewer --seeds or windows, or a smaller --replay-capacity, --batch-size or --hidden."
        return f"out of memory ({_first_line(error).strip('.')}). {remedy}", TrainError.exit_code
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is not installed; install tidewalk anew with pip.", ConfigError.exit_code
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}.", ConfigError.exit_code
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, ValueError) and Path(frame.filename).match("jax/_src/config.py"):  # as jax is imported
        remedy = "Correct the variable of that name in the environment (in capitals), or unset it."
        return f"jax cannot start: {_first_line(error)}. {remedy}", ConfigError.exit_code
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    fault = f"{type(error).__name__} at {place}: {_first_line(error)}"
    return f"a fault of tidewalk, please report it: {fault} (--debug shows the traceback)", INTERNAL_ERROR


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if args[0] == "--version":
        print(f"tidewalk {importlib.metadata.version('tidewalk')}")
        return 0
    command, rest = args[0], args[1:]
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise ConfigError(f"unknown command {command!r}{hint}. Commands: {', '.join(COMMANDS)}.")
    _refuse_environment()
    ambient.pin(os.environ, functools.partial(_tell, quiet="--quiet" in rest))
    run: Callable[[list[str]], int] = importlib.import_module(f"tidewalk.commands.{command}").run
    return run(rest)


def _refuse_environment() -> None:
    """Refuse what jax would fail on while it is imported, where no command could say so."""
    asked = os.environ.get("JAX_NUM_CPU_DEVICES")
    if asked is not None and not (asked.isascii() and asked.isdigit() and int(asked)):
        raise ConfigError(
            f"JAX_NUM_CPU_DEVICES={asked} in the environment: allowed is a whole number from 1 on. Without the "
            "variable all cores are used."
        )


def _tell(text: str, *, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: tidewalk COMMAND [options]",
            "",
            "Walk-forward reinforcement learning for futures, resident on the accelerator.",
            "",
            *(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()),
            "",
            "`tidewalk COMMAND --help` lists the options; --version, and --debug for tracebacks.",
            "Exit codes: 0 done, 2 bad request, 3 training failed, 75 interrupted (`tidewalk resume` goes on).",
        ]
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _let_go(stream: TextIO) -> None:
    """Point a stream at nothing where its reader may have left, so that the interpreter's last flush is quiet."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
