"""A kernel is compiled at the first steps of a generation, and not again later."""

from collections import defaultdict
from typing import Any, NamedTuple

import pytest
import torch

import optimized
from optimized import kernels, vector
from optimized.bench.launch_recorder import Launch, launched
from optimized.bench.machine_code import source
from optimized.bench.operations import empty
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels.evict import gathered, kept_per_block
from optimized.kernels.hex._packed_decode_step import decode_packed
from optimized.kernels.hex.compress import coded_span, restored
from spec_tests.kernels.interpreter import as_on_gpu

triton = pytest.importorskip("triton")

STEPS = 200
LENGTHS = [*range(61, 131), *(2**k + rest for k in (8, 9, 12, 15, 18) for rest in (-1, 0, 1, 16))]
HALF, FLAG, PLACE = torch.bfloat16, torch.bool, torch.int64
KCVT = optimized.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=TILE)
HEX = KCVT._replace(density=0.125, heavy=0.02, recent=2)


def variants(steps):
    """Return, for each module and kernel, the steps at which Triton's launcher would compile it."""
    seen, found = set(), defaultdict(list)
    for step, call in enumerate(steps):
        for launch in launched(call):
            key = source(launch)
            if key not in seen:
                seen.add(key)
                found[key.home, key.kernel].append(step)
    return dict(found)


def scores(tokens, *shape, dtype=HALF):
    """Return scores of a layer without values."""
    return empty(*(shape or (1, 8)), tokens, dtype=dtype)


def rows(tokens, heads=8):
    """Return queries, keys or values without values."""
    return empty(1, heads, tokens, 128, dtype=HALF)


def evict(tokens):
    """Evict, but for the wait for the number of entries that are left."""
    kept = scores(tokens, dtype=FLAG)
    counts = kept_per_block(kept)
    gathered(rows(tokens), rows(tokens), kept, counts, 8 * tokens // 2)


def compress(tokens):
    """Select as `compress` does, then evict."""
    scored = optimized.Scored(scores(tokens), scores(tokens, dtype=FLAG))
    as_on_gpu(vector.hubkv_select)(rows(tokens), rows(tokens), scored, ratio=0.5)
    evict(tokens)


def retain(tokens, scope: Any):
    """Select in five layers of two rows."""
    shape = 5, 2, 8
    kernels.retain(scores(tokens, *shape), scores(tokens, *shape, dtype=FLAG), keep=50, scope=scope)


def graph(tokens, keep=60, **settings):
    """Refine by a graph of a layer."""
    few: dict[str, Any] = dict(adaptive=False) | settings
    kernels.graphkv_refine(scores(tokens, 8), rows(tokens)[0], keep, 8, None, **few)


def ragged(tokens, new=1):
    """Attend to a cache of heads of different lengths."""
    left = empty(8 * tokens, 128, dtype=HALF)
    places = [empty(count, dtype=PLACE) for count in (8 * tokens, 9)]
    cache = optimized.RaggedCache(left, left, *places)
    kernels.ragged_attention(rows(new, 32), cache, rows(new), rows(new))


def span(tokens, bits):
    """Compress a span of a HEX cache, and restore it."""
    masks = empty(tokens, 1024, dtype=FLAG), empty(tokens, dtype=FLAG)
    stored = coded_span(rows(tokens)[0], rows(tokens)[0], *masks, bits, "token", None)
    restored(stored, masks[1], bits, HALF)


GROWING: dict[str, Any] = {
    "discount": lambda n: kernels.smd(scores(n), 3, 0.5, scores(n, dtype=FLAG)),
    "hubkv/refine": lambda n: kernels.hubkv_refine(scores(n), 0.5, scores(n, dtype=FLAG)),
    "hubkv/refine, one mask": lambda n: kernels.hubkv_refine(
        scores(n), 0.5, empty(n, dtype=FLAG).expand(1, 8, n)
    ),
    "retain, head": lambda n: retain(n, "head"),
    "retain, layer": lambda n: retain(n, "layer"),
    "retain, model": lambda n: retain(n, "model"),
    "retain, float32": lambda n: kernels.retain(
        scores(n, dtype=torch.float32), keep=50, scope="layer"
    ),
    "retain, one row": lambda n: kernels.retain(
        scores(n, 1, 1), empty(n, dtype=FLAG).expand(1, 1, n), ratio=0.5, scope="model"
    ),
    "evict": evict,
    "compress": compress,
    "graphkv/refine": graph,
    "graphkv/refine, per head": lambda n: graph(n, per_head=True),
    "graphkv/refine, growing budget": lambda n: graph(n, keep=n),
    "graphkv/refine, float32": lambda n: kernels.graphkv_refine(
        scores(n, 8, dtype=torch.float32), rows(n)[0].float(), n, 8, adaptive=False
    ),
    "ragged_attention": ragged,
    "ragged_attention, new tokens": lambda n: ragged(100, n),
    "hex/compress, 4 bits": lambda n: span(n, 4),
    "hex/compress, 3 bits": lambda n: span(n, 3),
    "hex/heavy_hitters": lambda n: kernels.attention_mass(rows(n, 32), rows(n)),
    "hex/heavy_hitters, log-sum-exp": lambda n: kernels.attention_mass(
        rows(n, 32), rows(n), log_sum_exp=empty(1, 32, n, dtype=torch.float32)
    ),
    "scorers/h2o, step": lambda n: kernels.h2o_mass(
        rows(1, 32), rows(n), scores(n - 1, dtype=torch.float32)
    ),
    "scorers/h2o, padded": lambda n: kernels.h2o_mass(
        rows(n, 32), rows(n), valid=empty(1, n, dtype=FLAG)
    ),
    "scorers/snapkv": lambda n: kernels.snapkv(rows(32, 32), rows(n), 32),
}
"""Calls with a length."""

SHORT = {"hex/heavy_hitters", "hex/heavy_hitters, log-sum-exp", "scorers/h2o, padded"}
"""Prompts: of up to 64 queries a program takes those of all heads of a group, of more, of one."""


@pytest.mark.parametrize("name", GROWING)
def test_no_kernel_is_compiled_anew_as_a_length_grows(name):
    """Two variants of a kernel are those of two steps of one call."""
    call = GROWING[name]
    found = variants(lambda n=n: call(n) for n in LENGTHS)
    late = LENGTHS.index(65) if name in SHORT else 0
    assert found
    assert all(len(steps) <= 2 and {*steps} <= {0, late} for steps in found.values()), found


class Sizes(NamedTuple):
    """A record of one tensor and two integers."""

    one: torch.Tensor
    size: int
    other: int


@triton.jit(do_not_specialize=["general", "sizes"])
def specialised(tensor, size, general, sizes, CONSTANT: triton.language.constexpr):
    """Take arguments of all kinds."""


@pytest.mark.parametrize("size", [1, 16, 17])
@pytest.mark.parametrize("start", [0, 3])
def test_kernels_are_specialised_as_by_the_launcher_of_triton(size, start):
    jit = pytest.importorskip("triton.runtime.jit")
    compiler = pytest.importorskip("triton.backends.nvidia.compiler")
    tensor = torch.zeros(64)[start:]
    given = dict(tensor=tensor, size=size, general=size, sizes=Sizes(tensor, size, 32))
    made = source(Launch(specialised, (1,), given | dict(CONSTANT=size), {}))
    signature, constants = dict(made.signature), dict(made.constants)
    for place, (name, value) in enumerate(given.items()):
        kind, key = jit.native_specialize_impl(
            compiler.CUDABackend, value, False, name not in ("general", "sizes"), True
        )
        if name == "sizes":
            assert tuple(signature[name]) == tuple(kind)
            keys = {(place, i): one for i, one in enumerate(key)}
        else:
            assert signature[name] == kind
            keys = {(place,): key}
        for at, one in keys.items():
            assert (at in made.aligned) == (one == "D")
            assert constants.get(at) == (one if isinstance(one, int) else None)


def hex_steps(config):
    """Yield a prompt, then decode steps whose buffer grows, and whose blocks do with it."""
    keys = torch.randn(1, 2, TILE * 2, 64)
    cache = PackedCache.of(optimized.hex_prefill(keys, keys, keys, config))
    new = keys[..., :1, :]
    yield lambda: as_on_gpu(vector.hex_prefill)(keys, keys, keys, config)

    def step():
        nonlocal cache
        cache = decode_packed(cache, new, new, new)[1]

    for _ in range(STEPS):
        yield step


@pytest.mark.parametrize(("config", "kernel"), [(KCVT, "kcvt_kernel"), (HEX, "sparse_kernel")])
def test_decode_steps_do_not_compile_kernels_anew(config, kernel):
    found = variants(hex_steps(config))
    names = {name for _, name in found}
    assert {kernel, "residual_kernel", "merge_kernel", "codes_kernel"} < names
    assert all(max(steps) <= 1 for steps in found.values()), found


def test_the_discount_is_not_compiled_anew_for_each_gamma():
    scores = torch.rand(2, 64)
    found = variants(
        lambda gamma=step / 127: kernels.smd(scores, 3, gamma, None) for step in range(127)
    )
    assert [*found.values()] == [[0]]
