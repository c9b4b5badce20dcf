"""A kernel is compiled at the first steps of a generation, and not again later."""

from collections import defaultdict

import pytest
import torch

import optimized
from optimized import kernels
from optimized.bench.launch_recorder import launched
from optimized.bench.machine_code import source
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels.hex.attention import attend_packed

triton = pytest.importorskip("triton")

STEPS = 400
CONFIG = optimized.HexConfig(bits=4, density=0.0, heavy=0.0, recent=2, block=TILE)


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


def hex_steps():
    """Yield decode steps over a cache whose buffer grows, and whose blocks do with it."""
    tokens = TILE * 8
    keys = torch.randn(1, 2, tokens, 64)
    some = keys[..., :TILE, :]
    block = optimized.hex_prefill(some, some, some, CONFIG)
    for step in range(STEPS):
        filled, rest = divmod(step, TILE)
        whole = block._replace(
            blocks=block.blocks[:1] * (1 + filled),
            residual_keys=keys[..., : rest + 1, :],
            residual_values=keys[..., : rest + 1, :],
            residual_mass=torch.zeros(1, rest + 1),
        )
        cache = PackedCache.of(whole)
        yield lambda cache=cache: attend_packed(keys[..., :1, :], cache, mass=True, of_all=False)


def test_decode_steps_do_not_compile_kernels_anew():
    found = variants(hex_steps())
    assert {"codes_kernel", "residual_kernel", "merge_kernel", "mass_kernel"} <= found.keys()
    assert all(steps == [0] for steps in found.values()), found


def test_the_discount_is_not_compiled_anew_for_each_gamma():
    scores = torch.rand(2, 64)
    found = variants(
        lambda gamma=step / 127: kernels.smd(scores, 3, gamma, None) for step in range(127)
    )
    assert found == {"smd_kernel": [0]}
