"""`python -m optimized.bench COMMAND`: `ratios`, `cuda` or `aot`, each with its `--help`."""

import os
import sys
from importlib import import_module

COMMANDS = dict(ratios="ratios", cuda="gpu_benchmarks", aot="aot")

if __name__ == "__main__":
    if (command := "".join(sys.argv[1:2])) not in COMMANDS:
        sys.exit(f"usage: python -m optimized.bench {{{','.join(COMMANDS)}}} ...")
    os.environ.pop("TRITON_INTERPRET", None)  # Triton reads it when it is imported
    if "--dry-run" in sys.argv:
        os.environ["TRITON_INTERPRET"] = "1"
    import_module(f"optimized.bench.{COMMANDS[command]}").main(sys.argv[2:])
