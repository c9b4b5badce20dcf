"""The options of the conformance check, in a file that `--help` reads without PyTorch."""

from argparse import ArgumentTypeError
from contextlib import suppress
from typing import Any

from spec_tests.limits import SECONDS

PAPERS = {"hubkv": "HubKV", "graphkv": "GraphKV", "hex": "HEX"}
"""Names of the papers on the command line, and in the ids of their equations."""
LEVELS = ("values", "edges", "errors")
DAY = 86400


def seconds_of_a_call(text: str) -> float:
    """Return the value of `--call-limit`."""
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) <= DAY:
            return seconds
    raise ArgumentTypeError(f"must be seconds from 0 to {DAY}, got {text}")


OPTIONS: dict[str, dict[str, Any]] = {
    "--impl": dict(
        action="append", metavar="MODULE", help="module to test, such as yourlib.kv; repeatable"
    ),
    "--command": dict(
        action="append",
        dest="impl",
        type=lambda command: f"spec_tests.program:{command}",
        metavar="COMMAND",
        help="program to test, which answers calls on stdin and stdout; repeatable",
    ),
    "--xfails": dict(metavar="FILE", help="expected failures, one `test id  # reason` a line"),
    "--complete": dict(action="store_true", help="fail if a function is missing, and list those"),
    "--ours": dict(
        action="store_true",
        help="also test functions that the papers name but do not define, and our extensions",
    ),
    "--mutants": dict(action="store_true", help="run each mutant against the test that detects it"),
    "--paper": dict(choices=[*PAPERS], help="test only the functions of one paper"),
    "--call-limit": dict(
        type=seconds_of_a_call,
        default=SECONDS,
        metavar="SECONDS",
        help="time limit of one call of the module, at most a day; 0 is no limit",
    ),
    "--device": dict(default="cpu", help="device of the inputs"),
    "--examples": dict(type=int, metavar="N", help="run each law on at most N examples"),
    "--level": dict(
        choices=LEVELS,
        default=LEVELS[-1],
        help="count only wrong results on ordinary input (values), also those on unusual input "
        "(edges), or also errors that are not raised (errors, the default)",
    ),
    "--report-html": dict(metavar="FILE", help="write the report as html"),
    "--report-json": dict(metavar="FILE", help="write the report as json"),
}
"""Each option with the arguments of argparse, which pytest takes too."""
