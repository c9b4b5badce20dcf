"""Controls: each takes away one property of a method, and nothing else."""

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

import optimized as kv
from optimized import Scored
from optimized.bench.straightforward.rows import normal
from optimized.models.scorer import Scores
from optimized.study import controls
from optimized.study.compared_systems import systems_named
from optimized.study.measurements import Trial
from spec_tests.internal.study.command_runner import CommandRunner


@pytest.fixture(scope="module")
def held() -> tuple[Any, torch.Tensor, torch.Tensor]:
    keys, values = normal(0, 1, 2, 200, 32), normal(1, 1, 2, 200, 32)
    scored = Scored(torch.rand(1, 2, 200), torch.zeros(1, 2, 200, dtype=torch.bool))
    config = kv.HexConfig(density=0.0625)
    return kv.compress(keys, values, scored, store=config), keys, values


def test_random_values_are_as_many_and_in_other_places(held):
    cache, keys, values = held
    (found, _), nbytes = controls.stored_with_mask(cache, keys, values, "random", 0, kv)
    exact, usual = (found == keys), (kv.hex_read(cache)[0] == keys)
    assert nbytes == pytest.approx(kv.stored_bytes(cache), rel=0.01)
    assert not torch.equal(exact, usual)
    assert abs(int(exact.sum()) - int(usual.sum())) < 0.02 * keys.numel()
    rows = exact[0, :, : cache.blocks[0].dynamic.shape[-1]].transpose(0, 1).flatten(1).sum(1)
    assert len(rows.unique()) > 3  # no degree is prescribed


def test_extremes_are_the_ends_of_each_group_and_pay_for_their_places(held):
    cache, keys, values = held
    how = cache, keys, values, "extremes", 0, kv
    (found_keys, found_values), nbytes = controls.stored_with_mask(*how)
    span = cache.blocks[0].dynamic.shape[-1]
    coded = ~cache.blocks[0].dynamic[0]
    assert nbytes > kv.stored_bytes(cache)
    for head in range(2):
        column = keys[0, head, :span][coded]
        both = found_keys[0, head, :span][coded]
        for end in (column.argmax(0), column.argmin(0)):
            assert torch.equal(both.gather(0, end[None]), column.gather(0, end[None]))
    rows = values[0, :, :span].transpose(0, 1).flatten(1)[coded]
    read = found_values[0, :, :span].transpose(0, 1).flatten(1)[coded]
    for end in (rows.argmax(1), rows.argmin(1)):
        assert torch.equal(read.gather(1, end[:, None]), rows.gather(1, end[:, None]))


def test_dealt_keys_are_the_same_keys_at_other_places():
    keys = normal(0, 2, 3, 50, 8)
    other = controls.dealt(keys, 3)
    assert not torch.equal(other, keys)
    assert torch.equal(other.sort(2).values, keys.sort(2).values)
    assert torch.equal(other[0, 0].norm(dim=-1), controls.dealt(keys[:1, :1], 3)[0, 0].norm(dim=-1))


def test_positions_are_most_alike_where_they_are_nearest():
    code = controls.positions(normal(0, 1, 1, 90, 16))[0, 0]
    near = torch.nn.functional.cosine_similarity(code[40], code, dim=-1)
    assert near.topk(9).indices.sort().values.tolist() == [*range(36, 45)]


def test_budgets_of_a_rule_are_kept_exactly():
    scores = torch.rand(1, 4, 60, generator=torch.Generator().manual_seed(0)) ** torch.tensor(
        [1.0, 2.0, 4.0, 8.0]
    ).view(4, 1)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    (system,) = systems_named(["h2o"])[1:]
    kept = controls.kept_by_budgets(
        Scores((Scored(scores, protected),), None), "entropy", Trial(system, 15), kv
    )
    budgets = kv.head_budgets(scores, 15, "entropy", protected)
    assert torch.equal(kept[0].sum(-1), budgets)
    assert len(budgets.unique()) > 1
    assert int(kept.sum()) == 60


@pytest.mark.parametrize(
    "name",
    [
        "snapkv:control.keys=dealt",
        "kivi-4:control.mask=random",
        "snapkv+nms:control.budgets=hybrid",
    ],
)
def test_a_control_of_another_system_is_refused(name):
    with pytest.raises(ValueError, match=r"must be of a system that is measured"):
        systems_named([name])


def test_a_number_of_entries_is_kept_whatever_the_length(command: CommandRunner):
    names = ["snapkv", "snapkv+graphkv", "snapkv+graphkv:control.keys=dealt", "kvzip+hubkv"]
    figures = command.figures("--systems", *names, "--keep", "24", "40", "--context", "160")
    lengths = figures["documents"]["lengths"]
    rows = figures["rows"][1:]
    assert [row["ratio"] for row in rows] == [24, 40] * 4
    for row in rows:
        share = len(lengths) * row["ratio"] / sum(lengths)
        assert row["kept_percent"] == pytest.approx(100 * share, abs=0.01)
    dealt, own = rows[4]["digest"], rows[2]["digest"]
    assert dealt != own
