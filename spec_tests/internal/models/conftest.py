"""Skip the tests of the plug-in where `transformers` is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("transformers") else ["test_*.py"]
