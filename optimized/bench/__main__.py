"""`python -m optimized.bench NAME [arguments]`."""

import sys
from importlib import import_module

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    import_module(f"optimized.bench.{name}").main(arguments)
