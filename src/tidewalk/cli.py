"""The command line: parse, call, print. Flags are generated from the configuration records."""

import importlib
import sys
from collections.abc import Callable, Sequence

from tidewalk.core.errors import ConfigError, TidewalkError, did_you_mean

COMMANDS = {
    "demo": "write a sample market, run a walk-forward study on it, and report",
    "sample": "write a synthetic ES.FUT market as DBN files",
    "inspect": "show what is in data files: contracts, spans, rolls, sessions, what was dropped",
    "windows": "show the walk-forward windows of a study without training",
    "train": "run a walk-forward study",
    "resume": "go on with an interrupted study",
    "report": "write the report of a run anew",
    "doctor": "show versions, devices and what is missing",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (0 done, 2 bad request, 3 training failed, 75 interrupted but resumable)."""
    args = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    try:
        return _dispatch(args)
    except TidewalkError as error:
        if is_debug:
            raise
        print(f"tidewalk: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tidewalk: stopped at once; `tidewalk resume` goes on from the last checkpoint.", file=sys.stderr)
        return 75
    except MemoryError as error:
        return _out_of_memory(error, is_debug=is_debug)
    except RuntimeError as error:
        # jax reports an exhausted device as its own RuntimeError
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _out_of_memory(error, is_debug=is_debug)


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"tidewalk {version('tidewalk')}")
        return 0
    command, rest = args[0], args[1:]
    if command not in COMMANDS:
        raise ConfigError(f"unknown command {command!r}{did_you_mean(command, COMMANDS)}. Commands: {', '.join(COMMANDS)}.")
    run: Callable[[list[str]], int] = importlib.import_module(f"tidewalk.commands.{command}").run
    return run(rest)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = ["usage: tidewalk COMMAND [options]", "", "Walk-forward reinforcement learning for futures, resident on the accelerator.", ""]
    lines += [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", "`tidewalk COMMAND --help` lists the options; --debug shows tracebacks."])


def _out_of_memory(error: Exception, *, is_debug: bool) -> int:
    if is_debug:
        raise error
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    print(
        f"tidewalk: out of memory ({first}). Use fewer --seeds, --lanes or --replay-capacity, or fewer windows.", file=sys.stderr
    )
    return 3




if __name__ == "__main__":
    sys.exit(main())
