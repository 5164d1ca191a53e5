"""The `specjax` command: one word that names a module, then the module's own flags."""

import argparse
import importlib
import sys

from specjax import __version__

COMMANDS = {
    "demo": "decode a prompt with and without speculation, timed and traced",
    "certify": "enumerate what verifiers emit; fail where it is not the target's law",
    "audit": "one run of a pair, tested against the target's own laws",
    "microscope": "where argmax texts depend on the shape of calls, and by how much",
    "soak": "verifiers on nasty logits, millions of draws",
    "measure": "alpha, c, v and speed of a pair on your prompts; the best gamma",
    "compare": "differences between two files of measured rows, with intervals",
}


def main() -> int | None:
    """Reads `sys.argv`; returns the exit code of the command that it names."""
    parser = argparse.ArgumentParser(
        prog="specjax",
        description="Speculative decoding in JAX.",
        epilog="\n".join(f"  {name:11} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"specjax {__version__}")
    parser.add_argument("command", choices=COMMANDS, help="its flags: COMMAND --help")
    command = parser.parse_args(sys.argv[1:2]).command
    sys.argv = [f"specjax {command}", *sys.argv[2:]]
    # Imported only now: the other command need not load.
    return importlib.import_module(f"specjax.{command}").main()


if __name__ == "__main__":
    sys.exit(main())
