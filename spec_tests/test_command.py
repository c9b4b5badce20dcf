"""`python -m optimized`: what it prints is for the eye, what it refuses is said once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("tokens", ["-1", "0", "16", "63"])
def test_too_short_a_cache_is_refused_in_one_line(tokens):
    command = [sys.executable, "-m", "optimized", f"--tokens={tokens}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert (
        f"error: --tokens must be at least 64, the queries that score the cache, got {tokens}"
        in (ended.stderr.splitlines()[-1])
    )
