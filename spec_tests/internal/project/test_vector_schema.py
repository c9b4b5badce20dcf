"""The vector files follow their schema, and can be read without PyTorch."""

import json
import subprocess
import sys

from jsonschema import Draft202012Validator

from spec_tests.index import HERE, equations
from spec_tests.inputs import DRAWN, depends_on_random_stream
from spec_tests.json_values import read

FORM = Draft202012Validator(json.loads((HERE / "vectors.schema.json").read_text()))
FILES = sorted(HERE.rglob("vectors.json"))

READER = """
import json, sys
from pathlib import Path

sys.modules |= dict.fromkeys(["torch", "numpy"])  # an import of them fails
root = Path(sys.argv[1])

def read(value):
    words = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
    return [read(part) for part in value] if isinstance(value, list) else words.get(value, value)

def hub_mask(scores, radius=2, protected=None):
    if isinstance(scores[0], list):
        return [hub_mask(row, radius, None) for row in scores]
    def key(i):
        return (scores[i], -i)
    content = [i for i in range(len(scores)) if not (protected and protected[i])]
    return [
        i in content and i == max((j for j in content if abs(i - j) <= radius), key=key)
        for i in range(len(scores))
    ]

worked = 0
for file in root.rglob("vectors.json"):
    cases = json.loads(file.read_text())
    for case in cases:
        if case["function"] == "hub_mask":
            inputs = {name: read(value) for name, value in case["inputs"].items()}
            assert hub_mask(**inputs) == read(case["expected"]), case["id"]
            worked += 1
print(worked)
"""


def test_every_worked_example_is_of_the_form_that_the_schema_says():
    for file in FILES:
        FORM.validate(json.loads(file.read_text()))


def test_a_worked_example_of_another_form_is_seen():
    (first, *_) = json.loads(FILES[0].read_text())
    for wrong in (
        first | {"note": "one word too many"},
        {k: v for k, v in first.items() if k != "hunts"},
        first | {"spec": []},
        first | {"expected": {"shape": [2, 0], "of": "complex"}},
        first | {"inputs": {"scores": [1.0, "one"]}},
    ):
        assert not FORM.is_valid([wrong]), wrong


def test_an_example_is_found_by_its_name_and_works_an_equation_that_is():
    for file in FILES:
        cases = json.loads(file.read_text())
        assert len({case["id"] for case in cases}) == len(cases), file
        assert {spec for case in cases for spec in case["spec"]} <= equations().keys(), file


def test_an_example_that_follows_our_random_stream_says_so():
    for file in FILES:
        for case in json.loads(file.read_text()):
            drawn, said = (
                depends_on_random_stream(case["function"], read(case["inputs"])),
                case.get("drawn", False),
            )
            assert said >= drawn, (file, case["id"])
            assert case["function"] in DRAWN or not said, (file, case["id"])  # signs may be drawn


def test_the_examples_are_read_and_worked_without_pytorch():
    run = [sys.executable, "-c", READER, str(HERE)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2
