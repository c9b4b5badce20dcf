"""Table 5 of HEX: spectra of 18 masks at 3.125 %.

Degrees, first eigenvalue and bound follow from the size. The second eigenvalue is that of one
random mask. The test compares the printed one with masks drawn here, in units of the deviation over
400 masks of every size (`python docs/tables.py table5` draws those on file).

A module of Python loops takes at least half a second for masks of 1152 tokens and more. By default
only `optimized` draws those; with `--hypothesis-profile=thorough` every module does.
"""

import csv
import math
import statistics
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from spec_tests.accuracy import assert_within_five_deviations

HERE = Path(__file__).parent
SLOW = 1152


def read(name):
    with open(HERE / name, newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


PRINTED, DRAWN = read("table5.csv"), read("table5_draws.csv")
NAMES = [f"{row['tokens']:.0f}" for row in PRINTED]
BOTH = [*zip(PRINTED, DRAWN, strict=True)]


@pytest.mark.spec("HEX-Tab5")
@pytest.mark.parametrize("row", PRINTED, ids=NAMES)
def test_degrees_first_eigenvalue_and_bound_follow_from_the_size(impl, row):
    degrees = impl.biregular_degrees(int(row["tokens"]), 1024, 0.03125)
    assert tuple(degrees) == (row["token_degree"], row["channel_degree"])
    first = math.sqrt(degrees.token * degrees.channel)
    assert round(first, 2) == row["lambda1"]
    assert round(impl.ramanujan_bound(*degrees), 2) == row["bound"]
    # two printed numbers, each rounded to a hundredth
    assert abs(first - row["lambda2"] - row["gap"]) <= 0.011


@pytest.mark.spec("HEX-Tab5")
@pytest.mark.parametrize(("printed", "drawn"), BOTH, ids=NAMES)
def test_the_printed_second_eigenvalue_is_one_of_ours(impl, printed, drawn):
    tokens = int(printed["tokens"])
    quick = settings.get_current_profile_name() != "thorough"
    if quick and tokens >= SLOW and not impl.name.startswith("optimized"):
        pytest.skip("half a second a mask: --hypothesis-profile=thorough draws it")
    count = max(1, 480 // tokens)
    masks = [impl.random_expander(tokens, 1024, 32, seed).mask for seed in range(count)]
    second = [impl.second_singular_value(mask) for mask in masks]
    bound = impl.ramanujan_bound(32, int(printed["channel_degree"]))
    assert max(second) <= bound
    mean, deviation = statistics.mean(second), drawn["deviation"]
    assert abs(mean - drawn["mean"]) <= 5 * deviation / math.sqrt(count)
    assert abs(printed["lambda2"] - mean) <= 5 * deviation * math.sqrt(1 + 1 / count)


def test_the_printed_second_eigenvalues_scatter_around_ours_as_random_ones_do():
    off = [(row["lambda2"] - drawn["mean"]) / drawn["deviation"] for row, drawn in BOTH]
    # a sum of 18 squared deviations has mean 18 and variance 36
    assert_within_five_deviations(torch.tensor(sum(z * z for z in off)), 18, 36)
    assert max(map(abs, off)) <= 3
