"""A kernel is compiled at the first steps of a generation, and not again later."""

from collections import defaultdict

import pytest
import torch

import optimized
from optimized import kernels
from optimized.bench.launch_recorder import launched
from optimized.bench.machine_code import source
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels.hex._packed_decode_step import decode_packed

triton = pytest.importorskip("triton")

STEPS = 400
KCVT = optimized.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=TILE)
HEX = KCVT._replace(density=0.125, heavy=0.02, recent=2)


def variants(steps):
    """Return, for each kernel, the steps at which Triton's launcher would compile it."""
    seen, found = set(), defaultdict(list)
    for step, call in enumerate(steps):
        for launch in launched(call):
            key = source(launch)
            if key not in seen:
                seen.add(key)
                found[key.kernel].append(step)
    return dict(found)


def hex_steps(config):
    """Yield a prompt, then decode steps whose buffer grows, and whose blocks do with it."""
    keys = torch.randn(1, 2, TILE * 2, 64)
    cache = PackedCache.of(optimized.hex_prefill(keys, keys, keys, config))
    new = keys[..., :1, :]
    yield lambda: kernels.hex_prefill(keys, keys, keys, config)

    def step():
        nonlocal cache
        cache = decode_packed(cache, new, new, new)[1]

    for _ in range(STEPS):
        yield step


@pytest.mark.parametrize(("config", "kernel"), [(KCVT, "kcvt_kernel"), (HEX, "sparse_kernel")])
def test_decode_steps_do_not_compile_kernels_anew(config, kernel):
    found = variants(hex_steps(config))
    attending = {kernel, "residual_kernel", "merge_kernel", "mass_kernel"}
    assert attending < found.keys(), "also those that compress"
    assert all(max(steps) <= 1 for steps in found.values()), found


def test_the_discount_is_not_compiled_anew_for_each_gamma():
    scores = torch.rand(2, 64)
    found = variants(
        lambda gamma=step / 127: kernels.smd(scores, 3, gamma, None) for step in range(127)
    )
    assert found == {"smd_kernel": [0]}
