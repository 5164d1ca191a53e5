"""The `specjax` command: one word that names a module, then the module's own flags."""

import argparse
import importlib
import os
import sys
import warnings

from specjax import __version__
from specjax.runtime import compilation_cache, console

# A command, the package that its module of the same name is in, and what it does.
COMMANDS = {
    "demo": ("cli", "decode a prompt with and without a draft, timed, step by step"),
    "measure": ("cli", "measure alpha, c, v and the speed of a pair on your prompts"),
    "compare": ("cli", "compare two files of measured rows, with intervals"),
    "run": ("cli", "measure the rows of your gin files: alpha, walltime, an audit"),
    "sweep": ("cli", "measure rows of gin files on many machines, or on this one"),
    "decode": ("cli", "decode a file of prompts in blocks, on many machines"),
    "audit": ("cli", "test one run of a pair against the target's distributions"),
    "microscope": ("cli", "find where greedy texts differ, and whether it is rounding"),
    "transcribe": ("cli", "transcribe recordings with a pair of Whispers"),
    "train-draft": ("cli", "train a draft or a head for your target, on its own texts"),
    "fetch": ("cli", "download a published model: smollm2, whisper-base"),
    "certify": ("exactness", "check that rules keep the target's distribution"),
    "soak": ("exactness", "test rules on extreme logits, over millions of rows"),
}


def main() -> int | None:
    """Reads `sys.argv`; returns the exit code of the command that it names."""
    with console.guard_output(), console.handle_stops():
        return run()


def command_module(command: str) -> str:
    """Returns the name of the module that a command is in."""
    return f"specjax.{COMMANDS[command][0]}.{command.replace('-', '_')}"


def run() -> int | None:
    parser = argparse.ArgumentParser(
        prog="specjax",
        description="Speculative decoding in JAX.",
        epilog="\n".join(f"  {name:11} {text}" for name, (_, text) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"specjax {__version__}")
    parser.add_argument(
        "command", choices=COMMANDS, help="COMMAND --help lists its flags"
    )
    command = parser.parse_args(sys.argv[1:2]).command
    sys.argv = [f"specjax {command}", *sys.argv[2:]]
    if os.getcwd() not in sys.path:  # for "my_module:my_verifier", as `python -m` does
        sys.path.insert(0, os.getcwd())
    compilation_cache.turn_on()
    # Imported only now, so that the other commands need not load.
    # Warnings take one line each, like every other message.
    warnings.formatwarning = lambda message, *_, **__: f"specjax: {message}\n"
    return importlib.import_module(command_module(command)).main()


if __name__ == "__main__":
    sys.exit(main())
