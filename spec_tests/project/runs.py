"""Run the suite again and again in one process, as one line of JSON from standard input says each.

Most of a run on a few tests is imports.
"""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from spec_tests.__main__ import arguments

if __name__ == "__main__":
    os.environ["COLUMNS"] = "200"
    for line in sys.stdin:
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = pytest.main(arguments(json.loads(line)))
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
