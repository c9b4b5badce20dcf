"""With heads split over ranks, the kept set equals that of one process, bit for bit."""

from itertools import product

import pytest
import torch

import optimized as kv
from optimized import distributed
from spec_tests.accuracy import assert_equal
from spec_tests.internal.project.ranks import sharded, started_ranks

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
SHARDS = ((4, 4), (3, 5), (0, 8), (2, 2, 2, 2), (3, 0, 4, 1))
SCOPES = ("head", "layer", "model")
BUDGETED = dict(head=(3, 2, 8), layer=(3, 2), model=(2,))


@pytest.fixture(scope="module")
def ranks():
    """The running processes of all ranks."""
    with started_ranks() as started:
        yield started


def scores_of(seed, dtype, tokens=24, tied=False):
    """Return scores of 3 layers, 2 batch rows and 8 heads, each with a different spread."""
    generator = torch.Generator().manual_seed(seed)
    power = torch.linspace(0.5, 6, 8)[:, None]
    scores = torch.rand(3, 2, 8, tokens, generator=generator).pow(power)
    return (scores.mul(3).round() if tied else scores).to(dtype)


def scattered(seed, shape):
    """Return a random mask, another one for each head."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.2


def masks(shape):
    """Return no mask, one that all heads share, and two that differ between heads."""
    shared = kv.protected_mask(shape[-1], sinks=2, recent=3).expand(shape)
    last_differs = shared.clone()
    last_differs[..., -1, 5] = True
    return None, shared, last_differs, scattered(1, shape)


def both(ranks, heads, calls):
    """Yield, for each call, the result of one process and that of all ranks."""
    given = [[] for _ in heads]
    for name, arguments in calls:
        parts = {
            key: sharded(value, heads, -1 if key == "selectivity" else -2)
            for key, value in arguments.items()
            if key in ("scores", "protected", "selectivity")
        }
        if arguments.get("scope") == "head" and isinstance(arguments.get("keep"), torch.Tensor):
            parts["keep"] = sharded(arguments["keep"], heads, -1)
        for rank, mine in enumerate(given):
            mine.append((name, arguments | {key: part[rank] for key, part in parts.items()}))
    answers = ranks.call(given)
    for (name, arguments), *found in zip(calls, *answers, strict=True):
        if wrong := next((part for part in found if isinstance(part, Exception)), None):
            raise wrong
        axis = -1 if name == "head_weights" else -2
        yield getattr(kv, name)(**arguments), torch.cat(found, axis)


def budgets(scores, protected, scope):
    """Return a ratio, a number and a tensor of numbers, each enough for the protected tokens."""
    shape = BUDGETED[scope]
    pool = scores.numel() // torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(2)
    counts = torch.randint(pool // 2, pool + 1, shape, generator=generator)
    if protected is None:
        counts.view(-1)[0] = 0
    return dict(ratio=0.45), dict(keep=pool // 2), dict(keep=counts)


def selections(dtype):
    """Yield calls of `retain` in every scope, with ties, signs, evicted and protected entries."""
    for scope, tied in product(SCOPES, (False, True)):
        scores = scores_of(3, dtype, tied=tied)
        signed = torch.where(scattered(4, scores.shape), -scores, scores)
        signed = signed.masked_fill(scattered(5, scores.shape), -torch.inf)
        for x, protected in ((scores, None), (signed, scattered(6, scores.shape))):
            for budget in budgets(x, protected, scope):
                yield "retain", dict(scores=x, protected=protected, scope=scope, **budget)


def refinements(dtype):
    """Yield calls of `hubkv_refine` with every kind of mask."""
    scores = scores_of(7, dtype)
    for protected in masks(scores.shape):
        yield "hubkv_refine", dict(scores=scores, ratio=0.7, protected=protected)
    yield "hubkv_refine", dict(scores=scores[0, 0], ratio=0.9, tau=2.0, maximum=3.0)
    yield "hubkv_refine", dict(scores=scores.mul(0), ratio=0.9, power=1.0, radius=0)
    yield "head_weights", dict(selectivity=scores[..., 0].contiguous())


@pytest.mark.parametrize("heads", SHARDS, ids=str)
@pytest.mark.parametrize("calls_of", [selections, refinements])
def test_ranks_return_the_bits_of_one_process(ranks, calls_of, heads):
    calls = [call for dtype in DTYPES for call in calls_of(dtype)]
    for alone, together in both(ranks, heads, calls):
        assert_equal(together, alone)


def test_a_rank_without_a_mask_protects_none_of_its_heads(ranks):
    scores, mask = torch.rand(2, 4, 8), scattered(1, (2, 4, 8))
    mask[:, :2] = False
    first = dict(scores=scores[:, :2], ratio=0.5, scope="layer")
    second = dict(scores=scores[:, 2:], ratio=0.5, scope="layer", protected=mask[:, 2:])
    found = [answer for (answer,) in ranks.call([[("retain", first)], [("retain", second)]])]
    alone = kv.retain(scores, mask, ratio=0.5, scope="layer")
    assert torch.equal(torch.cat(found, -2), alone)


GOOD = dict(
    head_weights=dict(selectivity=torch.rand(2, 3)),
    hubkv_refine=dict(scores=torch.rand(2, 3, 8), ratio=0.5, protected=None),
    retain=dict(scores=torch.rand(2, 3, 8), protected=None, ratio=0.75, scope="layer"),
)
MASK = torch.ones(2, 3, 8, dtype=torch.bool)
REFUSED = [
    ("head_weights", dict(tau=1.0), ValueError, "tau must be alike on every rank"),
    ("hubkv_refine", dict(ratio=1.5), ValueError, r"ratio must be in \[0, 1\], got 1.5"),
    ("hubkv_refine", dict(scores=3), TypeError, "scores must be a floating-point tensor"),
    ("hubkv_refine", dict(scores=-torch.ones(2, 3, 8)), ValueError, "scores must be finite and >="),
    ("retain", dict(protected=MASK), ValueError, "ratio must leave the 24 protected entries"),
    ("retain", dict(scope="all"), ValueError, "scope must be .*layer"),
    ("retain", dict(scores=torch.rand(8), scope="head"), ValueError, "must have an axis of heads"),
]


@pytest.mark.parametrize(
    ("name", "wrong", "kind", "says"),
    REFUSED,
    ids=[f"{n}-{next(iter(w))}-{i}" for i, (n, w, *_) in enumerate(REFUSED)],
)
def test_what_one_rank_refuses_all_refuse(ranks, name, wrong, kind, says):
    calls = [[(name, GOOD[name])], [(name, GOOD[name] | wrong)]]
    for (error,) in ranks.call(calls):
        assert type(error) is kind
        with pytest.raises(kind, match=says):
            raise error


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (dict(), "exactly one of keep and ratio"),
        (dict(keep=49), r"keep must be in \[0, 48\], got 49"),
        (dict(keep=torch.tensor([1, 2, 3])), r"keep must have shape \(2,\)"),
        (dict(keep=torch.tensor([1, -2])), r"keep must be in \[0, 48\], got -2"),
    ],
    ids=str,
)
def test_a_budget_is_held_to_the_pool_of_all_ranks(ranks, budget, says):
    call = ("retain", dict(scores=torch.rand(2, 3, 8), scope="layer", **budget))
    for (error,) in ranks.call([[call], [call]]):
        assert type(error) is ValueError
        with pytest.raises(ValueError, match=says):
            raise error


def test_without_a_group_there_is_an_error():
    with pytest.raises(ValueError, match="group must be an initialised group"):
        distributed.retain(torch.rand(2, 3), keep=1)
