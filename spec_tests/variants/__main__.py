"""Run the suite on every correct module: no test may fail.

`python -m spec_tests.variants` runs all of them, each up to the level at which it is right. Names
select some: `noisy_1 edges`. It takes pytest's options, such as `-n logical`, `--examples 5` and
`--hypothesis-seed=1`.
"""

import sys

import pytest

from spec_tests.__main__ import pytest_arguments

LEVELS = {
    "renamed": "errors",
    "elsewhere": "errors",
    "values": "values",
    "edges": "edges",
    "double": "edges",  # these four round half precision in another way
    "noisy_1": "edges",
    "noisy_2": "edges",
    "noisy_3": "edges",
}
"""For each module, the highest level at which it is right."""


def run(names: list[str], words: list[str]) -> int:
    """Run the suite on modules, level by level, and return the worst exit status."""
    worst = 0
    for level in ("values", "edges", "errors"):
        of_level = [f"spec_tests.variants:{n}" for n in names if LEVELS[n] == level]
        if of_level:
            # jaxtyping's plugin is already imported here, by the reference
            quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
            patient = ["--call-limit", "60"]  # a variant may be slow
            given = [*of_level, "--ours", "--level", level, *quiet, *patient, *words]
            worst = max(worst, int(pytest.main(pytest_arguments(given))))
    return worst


if __name__ == "__main__":
    if {"-h", "--help"} & {*sys.argv}:
        print(__doc__, f"modules: {', '.join(LEVELS)}", sep="\n")
        sys.exit()
    given = [word for word in sys.argv[1:] if word in LEVELS]
    sys.exit(run(given or [*LEVELS], [word for word in sys.argv[1:] if word not in given]))
