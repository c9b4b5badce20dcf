"""KNorm: minus the length of the key."""

import math

import pytest
import torch
from hypothesis import example, given

from spec_tests.accuracy import assert_close
from spec_tests.inputs import INPUTS
from spec_tests.scorers.attention_inputs import two_row_batch
from spec_tests.scorers.padding_invariance import assert_rows

pytestmark = pytest.mark.spec("GraphKV-KNorm")


@given(two_row_batch())
def test_a_score_is_minus_the_length_of_the_key(impl, x):
    keys = dict(keys=x["keys"], valid=x["valid"])
    scored = impl.knorm(**keys)
    lengths = lambda keys: [[-math.hypot(*key) for key in head] for head in keys]  # noqa: E731
    assert_rows(scored.scores, keys, lengths)
    assert not scored.protected.any()


@given(INPUTS["knorm"])
@example(x=dict(keys=torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]), valid=None))
def test_the_longest_real_key_of_a_head_is_shifted_to_zero(impl, x):
    raw, shifted = (impl.knorm(**x | dict(shift=shift)).scores for shift in (False, True))
    assert (shifted >= 0).all()
    valid = torch.ones(raw.shape[-1]).bool() if x["valid"] is None else x["valid"]
    real = valid.unsqueeze(-2).expand(raw.shape)
    least = raw.masked_fill(~real, 0).amin(-1, keepdim=True) if raw.shape[-1] else raw
    assert_close(shifted, torch.where(real, raw.double() - least.double(), 0))
    assert (shifted[real & (raw == least)] == 0).all()
