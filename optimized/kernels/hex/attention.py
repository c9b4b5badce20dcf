"""Decode attention over a HEX cache in the layout of `optimized.hex_packed_layout`.

A step launches four kernels, of `optimized.kernels.hex._decode_kernels`, and nothing else. All else
falls back to PyTorch: see `taken`.
"""

from math import e, log, log2, sqrt
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.hex_packed_layout import TILE, PackedCache, PackedSpans, alike
from optimized.kernels._attention_common import multiprocessors
from optimized.kernels.hex._decode_kernels import (
    COLUMNS,
    Codes,
    Entries,
    Residual,
    Sizes,
    Token,
    kcvt_kernel,
    mass_kernel,
    merge_kernel,
    residual_kernel,
    sparse_kernel,
)
from optimized.kernels.hex._sparse_entries import ROOM, Tables, tables
from optimized.vector.hex.attention import has_one_width
from optimized.vector.hex.stacked_cache import cached_on_tensor, mask_settings
from reference.hex.attention import HexAttention
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig

TAKEN = {(3, 128), (4, 64), (4, 128)}
"""The bits of codes and the channels of heads that the kernels are made for."""
REGISTERS = {} if torch.version.hip or triton.knobs.runtime.interpret else dict(maxnreg=255)
"""The most registers of a lane: by default the assembler allocates fewer, and spills."""
RESIDENT = 8
"""Programs of one warp with that many registers that a multiprocessor holds at once."""
MERGED = 8 if triton.knobs.runtime.interpret else 64
"""Partial outputs times columns that a program merges at a time, so that loads overlap."""


def taken(queries: Tensor, cache: HexCache, valid: Tensor | None) -> bool:
    """Whether the kernels support the call: a decoding step without padding, in float32 at most.

    Nor do they where values have other bits than keys.
    """
    width = queries.shape[-1]
    return (
        torch.float64 not in (queries.dtype, cache.residual_keys.dtype)
        and queries.shape[-2] == 1
        and queries.shape[-3] > 0
        and valid is None
        and cache.config.density < 1
        and has_one_width(cache)
        and alike(cache.blocks)
        and all((b.bits, width) in TAKEN and b.dynamic.numel() > 0 for b in cache.blocks)
    )


@gradient_fallback(vector.hex_attention)
def hex_attention(
    queries: Tensor,
    cache: HexCache,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
    mass: bool,
    log_sum_exp: bool,
) -> HexAttention:
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise TypeError(
            "cache must be a PackedCache while a CUDA graph is captured, got a HexCache: lay it "
            "out by PackedCache.of(cache) and capture optimized.kernels.hex.attention.attend_packed"
        )
    if not taken(queries, cache, valid):
        return vector.hex_attention(queries, cache, valid, causal, scale, mass, log_sum_exp)
    return attend_packed(queries, PackedCache.of(cache), scale, mass, log_sum_exp)


def attend_packed(
    queries: Tensor, cache: PackedCache, scale: float | None = None, mass: bool = False,
    log_sum_exp: bool = False,
) -> HexAttention:  # fmt: skip
    """Return the attention of one query a head to a cache in the kernels' layout."""
    rest, room = cache.rest, cache.room
    cache.require_newest()
    if room is not None:
        residual = Residual(room.keys, room.values, room.filled)
    else:
        filled = torch.full((1,), cache.held, device=queries.device)
        exact = rest.residual_keys.contiguous(), rest.residual_values.contiguous()
        residual = Residual(*exact, filled)
    sums = target = None
    if mass:
        tokens, size = sum(cache.spans.lengths), residual.residual_keys.shape[-2]
        rows = rest.residual_mass.shape[:-1]
        sums = queries.new_empty(*rows, tokens + size, dtype=torch.float32)
        target = Mass(sums, cache.spans.counts[1], False)
        sums = sums[..., : tokens + cache.held]
    output, whole = launch(queries, cache.spans, residual, None, rest.config, scale, target)
    return HexAttention(output, sums, log_sum_exps(whole, queries) if log_sum_exp else None)


def log_sum_exps(whole: Tensor, queries: Tensor) -> Tensor:
    """Return the log-sum-exp of each query's logits from what `launch` returns beside outputs."""
    group = queries.shape[-3] // whole.shape[1]
    sums = whole.sum(-2).flatten(-2)[..., :group] * log(2)
    return sums.reshape(queries.shape[:-1])


def decode(queries: Tensor, keys: Tensor, values: Tensor, cache: PackedCache) -> Tensor:
    """Add one token to a cache with room, and its attention to the mass; return its output.

    Four kernels and nothing else: a CUDA graph that captures a step may be replayed until the room
    is full. `PackedCache.grown` is the cache after a step.
    """
    room = cache.room
    assert room is not None
    cache.require_newest()
    residual = Residual(room.keys, room.values, room.filled)
    remembered = cache.spans.counts[1] if cache.rest.mass.shape[-1] else 0
    target = Mass(room.mass, remembered, True)
    new = Token(keys.contiguous(), values.contiguous())
    return launch(queries, cache.spans, residual, new, cache.rest.config, None, target)[0]


class Mass(NamedTuple):
    """Where the attention mass of a step goes."""

    sums: Tensor  # float32 [*rows, tokens]: the tokens of the tiles, then room for residual ones
    tiles: int  # all, or 0 where only the mass of the residual buffer is wanted
    add: bool  # to what is there


def launch(
    queries: Tensor,
    spans: PackedSpans,
    residual: Residual,
    new: Token | None,
    config: HexConfig,
    scale: float | None,
    mass: Mass | None,
) -> tuple[Tensor, Tensor]:
    """Launch the kernels of a step of one query a head, and return its output.

    Beside it are, to base two, the largest logit of each query and the logarithm of the sum of
    powers relative to it: [rows, heads, programs, 2, columns].
    """
    rows, heads, width = spans.key_steps.shape[1:]
    group = queries.shape[-3] // heads
    if (spans.bits, width) not in TAKEN or torch.float64 in (queries.dtype, spans.kept_keys.dtype):
        raise ValueError(
            "cache and queries must be in at most float32, and bits and channels among "
            f"{sorted(TAKEN)}, got {queries.dtype}, {spans.bits} bits and {width} channels"
        )
    if not group or queries.shape[-3:] != (group * heads, 1, width):
        raise ValueError(
            f"queries must have shape (*batch, a multiple of {heads}, 1, {width}), "
            f"got {tuple(queries.shape)}"
        )
    parts = triton.cdiv(group, COLUMNS)
    size = Sizes(rows, heads, group, parts, heads if spans.value_steps.ndim == 4 else 1)
    columns = COLUMNS if parts > 1 else triton.next_power_of_2(group)
    shape = dict(C=COLUMNS, HELD=columns)
    grid, tiles, room = rows * heads * parts, spans.counts[1], residual.residual_keys.shape[-2]
    most = RESIDENT * multiprocessors(queries.device)
    share = triton.cdiv(tiles, max(1, most // max(1, grid)))
    several = triton.cdiv(tiles, share)
    extra = min(triton.cdiv(room, 32), max(4, most // max(1, grid)))
    splits = several + extra
    queries = queries.contiguous()
    output = torch.empty_like(queries)
    found = queries.new_empty(grid, splits, width, columns, dtype=torch.float32)
    norms = found.new_empty(grid, splits, 2, columns)
    whole = found.new_empty(rows, heads, parts, 2, columns)
    stored = (mass.tiles if mass else 0) * TILE  # logits of tiles, before those of the buffer
    pieces = mass.tiles + triton.cdiv(room, TILE) if mass else 0
    logits = found.new_empty(grid, pieces * TILE, columns) if mass else None
    scale = (1 / sqrt(width) if scale is None else scale) * log2(e)
    entries = entries_of(spans, config, grid * several, columns)
    kernel, sparse = (kcvt_kernel, ()) if entries is None else (sparse_kernel, (entries,))
    kernel[(grid, several)](
        queries, scale, Codes(spans.key_words, spans.key_steps, spans.key_minima),
        Codes(spans.value_words, spans.value_steps, spans.value_minima), spans.reach, spans.tiles,
        *sparse, logits if stored else None, found, norms, size, tiles, share, splits,
        pieces * TILE, BITS=spans.bits, WIDTH=width, **shape, num_warps=1,
        # the registers of one warp do not suffice for a pipelined loop that stores logits
        num_stages=1 if stored else 2, **REGISTERS,
    )  # fmt: skip
    if extra:
        residual_kernel[(grid, extra)](
            queries, scale, residual, new, logits, found, norms, size, room, splits, several,
            pieces * TILE, stored, WIDTH=width, **shape, num_warps=1, num_stages=2,
        )  # fmt: skip
    merge_kernel[(grid, width // 32)](
        found, norms, output, whole, residual.filled if new else None, size, splits,
        WIDTH=width, **shape, MANY=max(1, MERGED // columns), num_warps=1,
    )  # fmt: skip
    if mass and logits is not None:
        mass_kernel[(rows * pieces,)](
            logits, whole, mass.sums, spans.tiles, residual.filled, size, pieces, mass.tiles,
            pieces * TILE, room, mass.sums.shape[-1], **shape, ADD=mass.add,
        )  # fmt: skip
    return output, whole


def entries_of(
    spans: PackedSpans, config: HexConfig, programs: int, columns: int
) -> Entries | None:
    """Return the kept entries, with scratch memory for programs of some columns."""
    table = static_tables(spans, config)
    if table is None:
        return None
    room = programs, ROOM + (2 * TILE + 1 + spans.key_steps.shape[-1]) * columns
    scratch = spans.kept_keys.new_empty(room, dtype=torch.float32)
    stored = spans.kept_keys, spans.kept_values, spans.begins, spans.dynamic
    return Entries(*stored, *table, scratch)


def static_tables(spans: PackedSpans, config: HexConfig) -> Tables | None:
    """Return the tables of the static masks, or None if no entry is ever kept.

    They are copied to the device at the first call for a set of lengths, which waits.
    """
    if not (config.density or config.heavy or config.recent or spans.counts[2]):
        return None
    key = mask_settings(config), spans.kinds, *spans.key_steps.shape[-2:], spans.dynamic.device
    return cached_on_tensor(spans.key_steps, tables, *key)
