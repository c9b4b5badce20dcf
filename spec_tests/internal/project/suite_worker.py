"""Run the suite once for each line of standard input, a JSON list of arguments, in one process.

One process saves the imports, which take most of the time of a short run.
"""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from spec_tests.__main__ import pytest_arguments

if __name__ == "__main__":
    os.environ["COLUMNS"] = "200"
    for line in sys.stdin:
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = pytest.main(pytest_arguments(json.loads(line)))
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
