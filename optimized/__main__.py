"""`python -m optimized`: compress the cache of a language model, and see what it costs."""

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from optimized.readings import READINGS

MODEL = "words"
SYSTEMS = "default"
RATIOS = (0.5, 0.75, 0.9, 0.95)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m optimized", description=__doc__)
    add = made.add_argument
    add(
        "--model",
        default=MODEL,
        help="`words`, `bytes`, `smollm2`, or the folder or id of another model",
    )
    add("--text", type=Path, help="the text file to read; by default held-out text")
    add("--systems", nargs="+", default=[SYSTEMS], help="names of systems, or `default`, or `all`")
    add(
        "--ratios",
        nargs="+",
        type=ratio,
        default=list(RATIOS),
        help="shares of the cache to remove",
    )
    add("--context", type=whole, default=1024, help="tokens of the longest documents")
    add("--documents", type=whole, default=18, help="number of documents; a third has each length")
    add("--needles", type=natural, default=4, help="number of facts hidden in each document")
    add("--continuation", type=whole, default=128, help="tokens to predict after each document")
    add("--implementation", choices=("reference", "optimized"), default="optimized")
    add("--device", default="cpu")
    add("--seed", type=seed, default=0)
    add("--readings", choices=READINGS, default="remedied")
    add(
        "--set",
        action="append",
        metavar="NAME.SETTING=VALUE",
        help="a setting of a refinement, scorer or hex, such as hubkv.gamma=0.7; may be repeated",
    )
    add(
        "--answer",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="begin with the answers to one question",
    )
    add("--out", type=Path, help="a new folder for the report")
    add("--json", type=Path, help="a new file to which figures.json is copied")
    add(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="draw the papers' figures from this model",
    )
    add("--quiet", action="store_true", help="no progress")
    return made


def ratio(text: str) -> float:
    """Return the share of the cache to remove that a text holds."""
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, got {text}")
    return value


def natural(text: str) -> int:
    """Return the integer of at least 0 that a text holds."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def seed(text: str) -> int:
    """Return the integer that a text holds, if every generator accepts it as a seed."""
    value = natural(text)
    if value >= 1 << 32:
        raise argparse.ArgumentTypeError(f"must be below 2**32, got {text}")
    return value


def whole(text: str) -> int:
    """Return the integer of at least 2 that a text holds."""
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"must be at least 2, got {text}")
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run the command; report a failure in one line."""
    given = parser().parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # some encodings have no Greek letters
    if sys.stderr.isatty() and not given.quiet:
        print("loading torch and transformers", file=sys.stderr)
    try:
        from optimized.study.command import run

        if not run(given):
            print("python -m optimized: every system was refused", file=sys.stderr)
            sys.exit(1)
    except (ImportError, ValueError) as refusal:
        refuse(str(refusal))
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        sys.exit(130)


def refuse(reason: str) -> None:
    """Print the reason in one line and exit with status 2."""
    print(f"python -m optimized: error: {' '.join(reason.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
