"""A kernel is compiled at the first steps of a generation, and not again later."""

from collections import defaultdict
from functools import partial
from typing import Any

import pytest
import torch

import optimized
from optimized import kernels, vector
from optimized.bench import operations
from optimized.bench.launch_recorder import launched, recorded
from optimized.bench.machine_code import source
from optimized.bench.operations import empty, mass, packing, ragged, selection
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels.hex._packed_decode_step import decode_packed
from reference.contract.enforce import trusted
from spec_tests.kernels.interpreter import as_on_gpu

STEPS = 200
LENGTHS = [*range(61, 131), *(2**k + rest for k in (8, 9, 12, 15, 18) for rest in (-1, 0, 1, 16))]
KCVT = optimized.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=TILE)
HEX = KCVT._replace(density=0.125, heavy=0.02, recent=2)


def variants(steps):
    """Return, for each module and kernel, the steps at which Triton's launcher would compile it."""
    seen, found = set(), defaultdict(list)
    for step, launches in enumerate(steps):
        for launch in launches:
            key = source(launch)
            if key not in seen:
                seen.add(key)
                found[key.home, key.kernel].append(step)
    return dict(found)


def scored(name, shape, dtype=torch.bfloat16, shielded=True, **settings):
    """Return the operation of a kernel on scores."""
    kernel, eager = getattr(kernels, name), getattr(vector, name)
    return operations.on_scores(name, shape, partial(kernel, **settings), eager, dtype, shielded)


def prompt_after_eviction(tokens):
    """Return the operation of new tokens after a cache of heads of different lengths."""

    def launch():
        left = empty(800, 128)
        cache = optimized.RaggedCache(left, left, *(empty(n, dtype=torch.int64) for n in (800, 9)))
        keys, queries = empty(1, 8, tokens, 128), empty(1, 32, tokens, 128)
        return kernels.ragged_attention(queries, cache, keys, keys)

    return ragged(tokens)._replace(launch=launch)


GROWING: dict[str, Any] = {
    "smd": lambda n: scored("smd", (1, 8, n)),
    "hubkv_refine and retain, model": lambda n: selection(5, 2, 8, n),
    "hubkv_refine and retain, one row": lambda n: selection(1, 1, n),
    "hubkv_refine, unprotected": lambda n: scored(
        "hubkv_refine", (8, n), shielded=False, ratio=0.5
    ),
    "retain, head": lambda n: scored("retain", (5, 2, 8, n), keep=50, scope="head"),
    "evict": operations.eviction,
    "graphkv_refine": operations.graph,
    "ragged_attention": ragged,
    "ragged_attention, new tokens": prompt_after_eviction,
    "hex_reconstruct, 4 bits": lambda n: packing("hex_reconstruct", n, 4),
    "hex_reconstruct, 3 bits": lambda n: packing("hex_reconstruct", n, 3),
    "attention_mass": lambda n: mass("attention_mass", "", n, n, span=None),
    "attention_mass, log-sum-exp": lambda n: mass(
        "attention_mass", "", n, n, log_sum_exp=True, span=None
    ),
    "h2o_mass, step": lambda n: mass("h2o_mass", "", 1, n, before=n - 1),
    "h2o_mass, padded": lambda n: mass("h2o_mass", "", n, n, padded=True),
    "snapkv": lambda n: mass("snapkv", "", 32, n, window=32),
}
"""Operations of a number of tokens."""

PROMPTS = {"attention_mass", "attention_mass, log-sum-exp", "h2o_mass, padded"}
"""Of up to 64 queries a program takes those of all heads of a group, of more, of one."""


@pytest.mark.parametrize("name", GROWING)
def test_no_kernel_is_compiled_anew_as_a_length_grows(name):
    """Two variants of a kernel are those of two steps of one call."""
    found = variants(GROWING[name](n).launches for n in LENGTHS)
    late = LENGTHS.index(65) if name in PROMPTS else 0
    assert found
    assert all(len(steps) <= 2 and {*steps} <= {0, late} for steps in found.values()), found


def hex_steps(config):
    """Yield the launches of a prompt, then of decode steps whose buffer and blocks grow."""
    keys = torch.randn(1, 2, TILE * 2, 64)
    cache = PackedCache.of(optimized.hex_prefill(keys, keys, keys, config))
    new = keys[..., :1, :]
    yield launched(lambda: as_on_gpu(vector.hex_prefill)(keys, keys, keys, config))
    for _ in range(STEPS):
        with trusted(), recorded() as launches:
            cache = decode_packed(cache, new, new, new)[1]
        yield launches


@pytest.mark.parametrize(("config", "kernel"), [(KCVT, "kcvt_kernel"), (HEX, "sparse_kernel")])
def test_decode_steps_do_not_compile_kernels_anew(config, kernel):
    found = variants(hex_steps(config))
    names = {name for _, name in found}
    assert {kernel, "residual_kernel", "merge_kernel", "codes_kernel"} < names
    assert all(max(steps) <= 1 for steps in found.values()), found


def test_the_discount_is_not_compiled_anew_for_each_gamma():
    found = variants(scored("smd", (2, 64), gamma=n / 127).launches for n in range(127))
    assert [*found.values()] == [[0]]
