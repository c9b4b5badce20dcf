"""With heads split over ranks, the kept set equals that of one process, bit for bit."""

from importlib import import_module
from itertools import product
from types import SimpleNamespace

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
EXCHANGES = {torch.bfloat16: 4, torch.float16: 4, torch.float32: 5, torch.float64: 8}


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


def both(ranks, heads, calls, **how):
    """Yield, for each call, the result of one process, that of all ranks, and what each sent."""
    calls_of_rank = [[] for _ in heads]
    for name, arguments in calls:
        parts = {
            key: sharded(value, heads, -1 if key == "selectivity" else -2)
            for key, value in arguments.items()
            if key in ("scores", "protected", "selectivity")
        }
        if arguments.get("scope") == "head" and isinstance(arguments.get("keep"), torch.Tensor):
            parts["keep"] = sharded(arguments["keep"], heads, -1)
        for rank, mine in enumerate(calls_of_rank):
            mine.append((name, arguments | {key: part[rank] for key, part in parts.items()}))
    answers = ranks.call(calls_of_rank, **how)
    for (name, arguments), answer in zip(calls, zip(*answers, strict=True), strict=True):
        results, sent = zip(*answer, strict=True)
        if error := next((part for part in results if isinstance(part, Exception)), None):
            raise error
        axis = -1 if name == "head_weights" else -2
        yield getattr(kv, name)(**arguments), torch.cat(results, axis), [*sent]


def budgets(scores, protected, scope):
    """Return a ratio, a number and a tensor of numbers, each enough for the protected tokens."""
    shape = BUDGETED[scope]
    pool = scores.numel() // torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(2)
    of_pool = torch.randint(pool // 2, pool + 1, shape, generator=generator)
    if protected is None:
        of_pool.view(-1)[0] = 0
    return dict(ratio=0.45), dict(keep=pool // 2), dict(keep=of_pool)


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
def test_ranks_keep_what_one_process_keeps(ranks, heads):
    calls = [call for dtype in DTYPES for call in selections(dtype)]
    for alone, together, _ in both(ranks, heads, calls):
        assert torch.equal(together, alone)


def test_scores_may_lie_in_any_order(ranks):
    """One rank holds one head, and tokens are the outermost axis in memory."""
    scores = scores_of(3, torch.float32).movedim(-1, 0).contiguous().movedim(0, -1)
    calls = [("retain", dict(scores=scores, scope=scope, ratio=0.5)) for scope in SCOPES]
    for alone, together, _ in both(ranks, (1, 7), calls):
        assert torch.equal(together, alone)


@pytest.mark.parametrize("heads", SHARDS, ids=str)
def test_ranks_refine_to_the_bits_of_one_process(ranks, heads):
    calls = [call for dtype in DTYPES for call in refinements(dtype)]
    for alone, together, _ in both(ranks, heads, calls):
        assert_equal(together, alone)


def test_a_rank_with_one_head_adds_up_in_the_order_of_many(ranks):
    """The input is long enough that torch splits one sum over its threads."""
    scores = scores_of(8, torch.float32, tokens=70_000)[:1, 0]
    call = ("hubkv_refine", dict(scores=scores, ratio=0.9))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for alone, together, _ in both(ranks, (1, 7), [call], threads=2):
            assert_equal(together, alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exchanges_depend_on_nothing_but_the_dtype(ranks, dtype):
    sent = []
    for tokens in (8, 4096):
        scores = scores_of(9, dtype, tokens)
        calls = [
            ("hubkv_refine", dict(scores=scores, ratio=0.5)),
            *(("retain", dict(scores=scores, ratio=0.5, scope=scope)) for scope in SCOPES),
        ]
        found = [bytes_ for _, _, bytes_ in both(ranks, (3, 5), calls)]
        assert [[len(rank) for rank in call] for call in found] == [
            [3, 3], [1, 1], [EXCHANGES[dtype]] * 2, [EXCHANGES[dtype]] * 2,
        ]  # fmt: skip
        sent.append(found)
    assert sent[0] == sent[1], "what is sent grows with the tokens"


class Stopped(Exception):
    """Raised where a rank would wait for others."""


def test_kernels_among_ranks_refine_to_the_bits_of_one_launch():
    pytest.importorskip("triton")
    from spec_tests.kernels.interpreter import small_blocks

    home = import_module("optimized.kernels.hubkv.refine")
    scores = scores_of(10, torch.bfloat16, tokens=19)[:2, 0]
    knobs = (2, 0.5, 0.5, 0.8, 1.2, 2.0, 1e-6)
    heads, parts = (3, 0, 5), (slice(0, 3), slice(3, 3), slice(3, 8))
    for protected in masks(scores.shape)[1::2]:
        assert protected is not None
        moments = []

        def stop(mine, _, moments=moments):
            moments.append(mine)
            raise Stopped

        def gather(_, axis, moments=moments):
            return torch.cat(moments, axis)

        def refine(mine, gather, protected=protected):
            ranks = SimpleNamespace(heads=heads, mine=mine, gather=gather)
            part, mask = scores[:, mine], protected[:, mine]
            return home.refine_among(part, 0.7, mask, kv.HubSettings(*knobs), ranks)

        with small_blocks(8):
            for mine in parts:
                with pytest.raises(Stopped):
                    refine(mine, stop)
            together = torch.cat([refine(mine, gather) for mine in parts], -2)
            assert_equal(together, home.hubkv_refine(scores, 0.7, protected, *knobs))


GOOD = dict(
    head_weights=dict(selectivity=torch.rand(2, 3)),
    hubkv_refine=dict(scores=torch.rand(2, 3, 8), ratio=0.5, protected=None),
    retain=dict(scores=torch.rand(2, 3, 8), protected=None, ratio=0.75, scope="layer"),
)
MASK = torch.ones(2, 3, 8, dtype=torch.bool)
REFUSED = [
    ("head_weights", dict(tau=1.0), ValueError, "tau must be alike on every rank"),
    ("head_weights", dict(selectivity=torch.rand(3, 3)), ValueError, "selectivity must be alike"),
    ("hubkv_refine", dict(ratio=0.75), ValueError, "ratio must be alike .* 0.5 on rank 0 and 0.75"),
    ("hubkv_refine", dict(ratio=1.5), ValueError, r"ratio must be in \[0, 1\], got 1.5"),
    ("hubkv_refine", dict(scores=3), TypeError, "scores must be a floating-point tensor"),
    ("hubkv_refine", dict(scores=-torch.ones(2, 3, 8)), ValueError, "scores must be finite and >="),
    ("hubkv_refine", dict(scores=torch.rand(2, 3, 8).half()), ValueError, "scores must be alike"),
    ("retain", dict(keep=3), ValueError, "keep must be alike on every rank"),
    ("retain", dict(protected=MASK), ValueError, "ratio must leave the 24 protected entries"),
    ("retain", dict(protected=MASK[0]), ValueError, "protected must have shape"),
]
BUDGETS = [
    (dict(ratio=None), "exactly one of keep and ratio"),
    (dict(ratio=None, keep=49), r"keep must be in \[0, 48\], got 49"),
    (dict(ratio=None, keep=torch.tensor([1, 2, 3])), r"keep must have shape \(2,\)"),
]
"""Budgets of the pool of both ranks, wrong on each of them."""


@pytest.mark.parametrize(
    ("name", "wrong", "kind", "message", "both_wrong"),
    [
        *(pytest.param(*row, False, id=f"{row[0]}: {row[3]}") for row in REFUSED),
        *(pytest.param("retain", *row[:1], ValueError, row[1], True, id=row[1]) for row in BUDGETS),
    ],
)
def test_what_one_rank_refuses_all_refuse(ranks, name, wrong, kind, message, both_wrong):
    good, bad = (name, GOOD[name]), (name, GOOD[name] | wrong)
    for ((error, _),) in ranks.call([[bad if both_wrong else good], [bad]]):
        assert type(error) is kind
        with pytest.raises(kind, match=message):
            raise error


def test_without_a_group_there_is_an_error():
    with pytest.raises(ValueError, match="group must be an initialised group"):
        distributed.retain(torch.rand(2, 3), keep=1)
