"""`python -m optimized`: compress the cache of a language model, and see what it costs."""

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimized.readings import READINGS

if TYPE_CHECKING:
    from optimized.study.results import Shard

PAPERS = ("hex", "hubkv", "graphkv")
MODEL = "words"
SYSTEMS = "default"
RATIOS = (0.5, 0.75, 0.9, 0.95)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m optimized", description=__doc__)

    def add(*names: str, default: Any = None, **how: Any) -> None:
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        if shown not in (None, True):
            how["help"] = f"{how.get('help', '')} (default {shown})".strip()
        made.add_argument(*names, default=default, **how)

    add(
        "--model",
        default=MODEL,
        help="`words`, `smollm2`, or the folder or id of another model",
    )
    add("--text", help="`prose`, `code`, `noise` or a text file to hide tasks in")
    add("--tasks", nargs="+", help="kinds of tasks, or a file of your own: FILE.jsonl")
    add(
        "--experiment",
        metavar="ID",
        help="the options for a table or figure of the papers, such as HubKV-Tab1; `list` has all",
    )
    add("--paper", choices=PAPERS, help="all tables and figures of a paper, each in a folder")
    add("--systems", nargs="+", default=[SYSTEMS], help="names of systems, or `default`, or `all`")
    add(
        "--ratios",
        nargs="+",
        type=ratio,
        default=list(RATIOS),
        help="shares of the cache to remove",
    )
    add("--keep", nargs="+", type=positive, help="entries a head keeps, in place of ratios")
    add("--context", type=whole, default=1024, help="tokens of the longest documents")
    add("--documents", type=whole, default=18, help="number of documents; a third has each length")
    add("--needles", type=natural, default=4, help="number of tasks hidden in each document")
    add("--continuation", type=whole, default=128, help="tokens to predict after each document")
    add(
        "--interval",
        type=positive,
        help="read the continuation before the tasks, and compress again after so many tokens",
    )
    add("--implementation", choices=("reference", "optimized"), default="optimized")
    add("--device", default="cpu", help="such as cuda:1; `auto` takes a GPU if there is one")
    add("--dtype", choices=("float32", "bfloat16", "float16"), help="by default the model's own")
    add("--batch", type=positive, help="documents that are read at once")
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
    add("--out", type=Path, help="a new folder for the report, or one of an unfinished run")
    add("--minutes", type=positive, help="stop after the batch that ends after so many minutes")
    add("--shard", type=shard, metavar="K/N", help="measure the K-th of N parts, then merge them")
    add("--json", type=Path, help="a new file to which figures.json is copied")
    add(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="draw the papers' figures from this model",
    )
    made.add_argument("--quiet", action="store_true", help="no progress")
    return made


def merge_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m optimized merge`."""
    made = argparse.ArgumentParser(
        prog="python -m optimized merge", description="Join the parts of a run into one report."
    )
    made.add_argument("folders", nargs="+", type=Path, help="the folders of the parts")
    made.add_argument("--out", type=Path, help="the folder of the report, by default the first")
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


def positive(text: str) -> int:
    """Return the integer of at least 1 that a text holds."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def shard(text: str) -> "Shard":
    """Return the part of a run that a text K/N names."""
    index, _, count = text.partition("/")
    from optimized.study.results import Shard

    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"must be K/N with K from 1 to N, got {text}")
    return Shard(int(index) - 1, int(count))


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
    arguments = sys.argv[1:] if arguments is None else arguments
    merging = arguments[:1] == ["merge"]
    given = (merge_parser() if merging else parser()).parse_args(arguments[merging:])
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # some encodings have no Greek letters
    if sys.stderr.isatty() and not merging and not given.quiet:
        print("loading torch and transformers", file=sys.stderr)
    try:
        from optimized.study.command import merge, print_lines, run
        from optimized.study.experiments import lines, of_paper, options_of

        if not merging and given.experiment == "list":
            print_lines(*lines())
            return
        if not merging and given.paper:
            folder = given.out or Path(f"kvspec-{given.paper}")
            folder.mkdir(exist_ok=True)
            refused = []
            for name in of_paper(given.paper, folder):
                print_lines(f"\n{name}")
                try:
                    measured = run(experiment(name, arguments, folder / name))
                except ValueError as refusal:  # the others may run
                    print(f"{name} is refused: {refusal}", file=sys.stderr)
                    measured = False
                refused += [] if measured else [name]
            if refused:
                print(f"nothing was measured in {', '.join(refused)}", file=sys.stderr)
                sys.exit(1)
            return
        if not merging and given.experiment:
            given = parser().parse_args([*options_of(given.experiment), *arguments])
        if not (merge(given.folders, given.out or given.folders[0]) if merging else run(given)):
            print("python -m optimized: every system was refused", file=sys.stderr)
            sys.exit(1)
    except (ImportError, ValueError) as refusal:
        refuse(str(refusal))
    except KeyboardInterrupt:
        print("interrupted: with the same options and --out the run goes on", file=sys.stderr)
        sys.exit(130)


def experiment(name: str, arguments: Sequence[str], out: Path) -> argparse.Namespace:
    """Return the options of an experiment of a paper; only those about pictures draw them."""
    from optimized.study.experiments import options_of

    options = options_of(name)
    given = parser().parse_args([*options, *arguments])
    given.experiment, given.paper, given.out, given.answer = name, None, out, False
    given.pictures &= "--pictures" in options
    return given


def refuse(reason: str) -> None:
    """Print the reason in one line and exit with status 2."""
    print(f"python -m optimized: error: {' '.join(reason.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
