"""Plain ways to KIVI, and to the parts of GEAR."""

import numpy as np
import torch
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.hex import dequantise, pack_bits, quantise, unpack_bits
from optimized.bench.straightforward.rows import KV_HEADS, WIDTH, layer, normal, row
from optimized.bench.straightforward.selection import marked


@row(lambda tokens, dtype: dict(x=normal(0, KV_HEADS * WIDTH, tokens).to(dtype)), "1024 rows of {}")
def outlier_mask(x: Tensor) -> Tensor:
    """Mark one percent at each end."""
    ends = (x.topk(x.shape[-1] // 100, largest=end, sorted=False) for end in (True, False))
    return marked(x, torch.cat([end.indices for end in ends], -1))


@row(
    lambda tokens, dtype: dict(x=normal(0, KV_HEADS, tokens, WIDTH).to(dtype), rank=4),
    "8 heads of 128, {} tokens, rank 4",
    compared=lambda found: found[0] @ found[1].mT,
)
def low_rank(x: Tensor, rank: int) -> Tensor:
    """Iterate from a few columns, the same as ours, and multiply the factors."""
    wide = x.float()
    start = 2 * np.random.RandomState([0, 4]).random_sample((rank, WIDTH)) - 1
    columns = torch.from_numpy(start).float().T
    for _ in range(2):
        columns = wide.mT @ (wide @ columns)
    left = torch.linalg.qr(wide @ torch.linalg.qr(columns).Q).Q
    return left @ (wide.mT @ left).mT


LAYER = "8 key heads of 128, {} tokens, 4 bits"


def grouped(x: Tensor) -> list[Tensor]:
    """Quantise the last axis in groups of 32, and pack."""
    codes, *scales = quantise(x.unflatten(-1, (-1, 32)), 4)
    return [pack_bits(codes.flatten(-2), 4), *scales]


@row(
    lambda tokens, dtype: layer(tokens, dtype) | dict(bits=4),
    LAYER,
    compared=lambda cache: cache[4:10],
)
def kivi_prefill(keys: Tensor, values: Tensor, bits: int) -> list[Tensor]:
    """Quantise blocks of 32 keys by channel, and values but the last 32 by token."""
    assert bits == 4
    return grouped(keys.unflatten(2, (-1, 32)).mT.contiguous()) + grouped(values[:, :, :-32])


def ungrouped(words: Tensor, steps: Tensor, minima: Tensor, length: int) -> Tensor:
    """Return what `grouped` was given."""
    codes = unpack_bits(words, 4, length).unflatten(-1, (-1, 32))
    return dequantise(codes, steps, minima).flatten(-2)


@row(lambda tokens, dtype: dict(cache=kv.kivi_prefill(**layer(tokens, dtype), bits=4)), LAYER)
def kivi_read(cache: kv.KiviCache) -> tuple[Tensor, Tensor]:
    """Restore both, and append what is exact."""
    keys = ungrouped(cache.key_words, cache.key_steps, cache.key_minima, 32).mT.flatten(2, 3)
    values = ungrouped(cache.value_words, cache.value_steps, cache.value_minima, WIDTH)
    both = (keys, cache.residual_keys), (values, cache.residual_values)
    old, new = (torch.cat([x.to(exact.dtype), exact], -2) for x, exact in both)
    return old, new
