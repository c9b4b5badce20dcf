"""Run Python in another process, as users of this repository do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spec_tests.index import ROOT


def run_python(*words: str, folder: Path = ROOT, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run `python *words` in a folder, with this repository on the search path."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, **how
    )
