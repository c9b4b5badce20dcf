"""The conformance suite: it tests whether an implementation follows the papers."""

import os
import sys
from pathlib import Path
from runpy import run_path

# `python -m` imports the package with "-m" as the first argument; help is shown without PyTorch
if not (sys.argv[:1] == ["-m"] and {"-h", "--help"} & {*sys.argv}):
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # set before triton is imported

# loaded by path, because `optimized` may be a package of another project
_origin = run_path(str(Path(__file__).parents[1] / "optimized" / "_origin.py"))
for _name in ("reference", "optimized"):
    _origin["refuse_foreign"](_name)
