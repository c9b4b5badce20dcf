"""HEX on one page: a cache whose entries are exact or coded. Sections are the paper's.

The types `HexConfig`, `Quantised`, `HexBlock` and `HexCache` are named tuples of `reference`.
"""

from fractions import Fraction
from functools import lru_cache
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from reference import HexBlock, HexCache, HexConfig, Quantised


def widen(x: Tensor) -> Tensor:
    """Return numbers in float32 at least, in which sums and quotients are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


# The static mask: a random biregular graph between tokens and channels (3.2, A.2, A.3)


def half_edge_pairing(
    tokens: int, channels: int, token_degree: int, seed: int = 0, draw: int = 0
) -> Tensor:
    """Pair the half-edges of tokens and channels at random: each token's channels."""
    generator = np.random.default_rng([seed, draw])
    names = generator.permutation(channels)
    half_edges = np.resize(names, tokens * token_degree)
    return torch.from_numpy(generator.permutation(half_edges)).reshape(tokens, token_degree)


def double_edge_swaps(pairs: Tensor, channels: int, seed: int = 0, draw: int = 0) -> Tensor:
    """Swap the channel of each repeated edge with that of a random edge until none repeats."""
    generator = np.random.default_rng([seed, draw, channels])
    rows = pairs.tolist()
    for row in rows:
        while repeated := [i for i, channel in enumerate(row) if channel in row[:i]]:
            i, j = repeated[0], int(generator.integers(len(row)))
            other = rows[int(generator.integers(len(rows)))]
            if other[j] not in row and row[i] not in other:
                row[i], other[j] = other[j], row[i]
    return torch.tensor([sorted(row) for row in rows], dtype=torch.int64).reshape(pairs.shape)


def biadjacency(pairs: Tensor, channels: int) -> Tensor:
    """Write the channels of each token as a mask."""
    mask = torch.zeros(len(pairs), channels, dtype=torch.bool, device=pairs.device)
    return mask.scatter(1, pairs, True)


def second_singular_value(mask: Tensor) -> float:
    """Return the second largest singular value of a mask."""
    return float(torch.linalg.svdvals(mask.double())[1]) if min(mask.shape) > 1 else 0.0


def is_ramanujan(mask: Tensor) -> bool:
    """Decide whether degrees are equal and at least 3, and the second value within the bound."""
    rows, columns = mask.sum(1).unique(), mask.sum(0).unique()
    if len(rows) != 1 or len(columns) != 1 or min(rows, columns) < 3:
        return False
    bound = sqrt(rows - 1) + sqrt(columns - 1)
    return second_singular_value(mask) <= bound * (1 + 2**-40)


@lru_cache
def expander_mask(
    tokens: int, channels: int, density: float, seed: int = 0, near: bool = False,
    tile: bool = False, block: int = 96,
) -> Tensor:  # fmt: skip
    """Draw graphs of a density until one is Ramanujan."""
    if tile:
        return expander_mask(block, channels, density, seed, near).repeat(tokens // block, 1)
    if density in (0, 1):
        return torch.full((tokens, channels), density == 1)
    share = Fraction(str(density)).limit_denominator(10**6) * channels
    degree, uneven = round(share), share.denominator > 1 or round(share) * tokens % channels
    if not near and (uneven or min(degree, degree * tokens // channels) < 3):
        raise ValueError(f"density must give whole degrees of at least 3, got {density}")
    few = min(degree, channels - degree)  # of a dense mask what it leaves out is drawn
    for draw in range(1000):
        pairs = double_edge_swaps(half_edge_pairing(tokens, channels, few, seed, draw), channels)
        mask = biadjacency(pairs, channels) ^ (few < degree)
        if uneven or min(degree, degree * tokens // channels) < 3 or is_ramanujan(mask):
            return mask
    raise RuntimeError("none of 1000 graphs is Ramanujan")


# The dynamic mask: heavy hitters and the most recent tokens (3.3)


def attention_mass(
    queries: Tensor, keys: Tensor, span: int | None = None, causal: bool = True,
    normalize: bool = False, log_sum_exp: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Sum the attention that each token draws, over all heads and queries."""
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    exact = exact if log_sum_exp is None else torch.promote_types(exact, log_sum_exp.dtype)
    group = queries.shape[-3] // max(1, keys.shape[-3])
    each = keys.to(exact).repeat_interleave(group, -3)
    logits = queries.to(exact) @ each.mT / queries.shape[-1] ** 0.5
    count, tokens = logits.shape[-2:]
    seen = torch.ones(count, tokens, dtype=torch.bool, device=keys.device)
    seen = seen.tril(tokens - count) if causal else seen  # the last query sits at the last key
    logits = logits.masked_fill(~seen, -torch.inf)
    total = logits.logsumexp(-1) if log_sum_exp is None else log_sum_exp
    mass = (logits - total[..., None]).exp().sum((-3, -2))
    mass = mass / seen.sum(0).clamp(min=1) if normalize else mass
    return mass if span is None else mass[..., tokens - span :].clone()


def heavy_hitter_mask(
    mass: Tensor, ratio: float = 0.02, recent: int = 0, outside_recent: bool = False
) -> Tensor:
    """Mark a share of the tokens, rounded down: the largest mass, the first of equals."""
    tokens = mass.shape[-1]
    rivals = max(0, tokens - recent) if outside_recent else tokens
    order = mass[..., :rivals].argsort(dim=-1, descending=True, stable=True)
    count = int(Fraction(str(ratio)) * tokens)
    return torch.zeros_like(mass, dtype=torch.bool).scatter(-1, order[..., :count], True)


def recent_mask(tokens: int, recent: int) -> Tensor:
    """Mark the last tokens."""
    return torch.arange(tokens) >= tokens - recent


def h2o_mask(
    mass: Tensor, ratio: float = 0.02, recent: int = 8, outside_recent: bool = False
) -> Tensor:
    """Join heavy hitters and recent tokens."""
    heavy = heavy_hitter_mask(mass, ratio, recent, outside_recent)
    return heavy | recent_mask(mass.shape[-1], recent).to(mass.device)


def hex_mask(expander: Tensor, dynamic: Tensor, kv_heads: int) -> Tensor:
    """Join the static and the dynamic mask, in the layout of the cache (3.5)."""
    joint = expander | dynamic[..., None]
    return joint.unflatten(-1, (kv_heads, -1)).transpose(-3, -2).contiguous()


# What neither mask marks is coded (3.4)


def quantise(
    x: Tensor, bits: int, kept: Tensor | None = None, scales: torch.dtype | None = None
) -> Quantised:
    """Code the members of each group, without the kept ones, from minimum to maximum."""
    kept = torch.zeros_like(x, dtype=torch.bool) if kept is None else kept
    own = x.dtype in (torch.float16, torch.float64)
    stored = scales or (x.dtype if own else torch.float32)
    steps = torch.zeros(x.shape[:-1], dtype=stored, device=x.device)
    minima, codes = torch.zeros_like(steps), torch.zeros_like(x, dtype=torch.uint8)
    for group in np.ndindex(x.shape[:-1]):
        rest = widen(x[group][~kept[group]])
        if rest.numel():
            minima[group] = rest.min()
            steps[group] = (rest.max() - rest.min()) / (2**bits - 1)
            if steps[group] > 0:
                code = (rest - minima[group].to(rest.dtype)) / steps[group].to(rest.dtype)
                codes[group][~kept[group]] = code.round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantised(codes, steps, minima)


def dequantise(codes: Tensor, steps: Tensor, minima: Tensor) -> Tensor:
    """Return the value each code stands for."""
    return codes * widen(steps)[..., None] + widen(minima)[..., None]


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """Write the codes of each row one after the other into 32-bit words."""
    length = codes.shape[-1]
    words = codes.new_zeros(*codes.shape[:-1], -(-length * bits // 32), dtype=torch.int64)
    for p in range(bits * length):
        words[..., p // 32] |= (codes[..., p // bits].long() >> p % bits & 1) << p % 32
    return (words - (words >> 31 << 32)).to(torch.int32)  # bit 31 is the sign


def unpack_bits(words: Tensor, bits: int, length: int) -> Tensor:
    """Read the codes of each row back."""
    codes = words.new_zeros(*words.shape[:-1], length, dtype=torch.uint8)
    for p in range(bits * length):
        bit = words[..., p // 32] >> p % 32 & 1
        codes[..., p // bits] |= (bit << p % bits).to(torch.uint8)
    return codes


# A span of the cache, compressed (3.5): keys by channel, values by token


def hex_compress(
    keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor, bits: int = 3,
    value_group: str = "token", scales: torch.dtype | None = None,
) -> HexBlock:  # fmt: skip
    """Keep what the joint mask marks, and code the rest."""
    heads, kept = keys.shape[-3], hex_mask(expander, dynamic, keys.shape[-3])
    by_channel = quantise(keys.mT, bits, kept.mT, scales)
    if value_group == "token":  # one group over all heads
        rows, aside = (x.transpose(-3, -2).flatten(-2) for x in (values, kept))
        codes, steps, minima = quantise(rows, bits, aside, scales)
        codes = codes.unflatten(-1, (heads, -1)).transpose(-3, -2)
    else:
        codes, steps, minima = quantise(values, bits, kept, scales)
    return HexBlock(
        bits, pack_bits(by_channel.codes, bits), by_channel.steps, by_channel.minima,
        pack_bits(codes.mT, bits), steps, minima, keys[kept], values[kept], dynamic.clone(),
    )  # fmt: skip


def restored(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values before they are rounded to the type of the cache."""
    assert isinstance(block.bits, int)  # the same for keys and values
    kept = hex_mask(expander, block.dynamic, block.key_steps.shape[-2])
    codes = unpack_bits(block.key_words, block.bits, kept.shape[-2])
    keys = dequantise(codes, block.key_steps, block.key_minima).mT
    codes = unpack_bits(block.value_words, block.bits, kept.shape[-2]).mT
    steps, minima = block.value_steps, block.value_minima
    if steps.ndim < block.key_steps.ndim:  # one group a token, whatever its head
        steps, minima = (x[..., None, :].expand(codes.shape[:-1]) for x in (steps, minima))
    values = dequantise(codes, steps, minima)
    exact = torch.promote_types(keys.dtype, block.kept_keys.dtype)
    parts = (keys, block.kept_keys), (values, block.kept_values)
    first, second = (x.to(exact).masked_scatter(kept, own.to(exact)) for x, own in parts)
    return first, second


def hex_reconstruct(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    """Restore keys and values."""
    keys, values = restored(block, expander)
    return keys.to(block.kept_keys.dtype), values.to(block.kept_values.dtype)


# The cache: blocks, and a buffer of the latest tokens, which is exact (4.1)


def static(config: HexConfig, tokens: int, channels: int) -> Tensor:
    """Return the mask that the settings of a cache name."""
    how = config.density, config.seed, config.near, config.tile, config.block
    return expander_mask(tokens, channels, *how)


def span(config: HexConfig, keys: Tensor, values: Tensor, mass: Tensor, first: bool) -> HexBlock:
    """Compress the oldest of the tokens whose mass is given."""
    heads, tokens, width = keys.shape[-3:]
    if config.normalize:  # by the queries that saw each token: one less for each before it
        mass = mass / torch.arange(mass.shape[-1], 0, -1, dtype=mass.dtype)
    windowed = not config.carry_recent and (first or config.recent_per_block)
    recent = config.recent if windowed else 0
    dynamic = h2o_mask(mass[..., :tokens], config.heavy, recent, config.outside_recent)
    mask = static(config, tokens, heads * width)
    settings = config.bits, config.value_group, config.scales
    return hex_compress(keys, values, mask, dynamic, *settings)


def leave(cache: HexCache, blocks: tuple[HexBlock, ...], size: int) -> HexCache:
    """Return the cache with these blocks, which hold the oldest tokens of its buffer."""
    keys, values, mass = cache.residual_keys, cache.residual_values, cache.residual_mass
    remembered = 0 if cache.config.mode == "append" else size
    original = size if cache.config.mode == "oracle" else 0
    return cache._replace(
        blocks=blocks,
        residual_keys=keys[..., size:, :].clone(),
        residual_values=values[..., size:, :].clone(),
        residual_mass=mass[..., size:].clone(),
        mass=torch.cat([cache.mass, mass[..., :remembered]], -1),
        original_keys=torch.cat([cache.original_keys, keys[..., :original, :]], -2),
        original_values=torch.cat([cache.original_values, values[..., :original, :]], -2),
    )


def hex_prefill(queries: Tensor, keys: Tensor, values: Tensor, config: HexConfig) -> HexCache:
    """Compress the whole blocks of a prompt as one span; the rest of it is the buffer."""
    carried = config.recent if config.carry_recent else 0
    n = max(0, keys.shape[-2] - carried) // config.block * config.block
    own = attention_mass(queries[..., :n, :], keys[..., :n, :])
    mass = attention_mass(queries[..., n:, :], keys)
    mass[..., :n] += own
    empty = mass[..., :0], keys[..., :0, :], values[..., :0, :]
    cache = HexCache(config, (), keys, values, mass, *empty)
    blocks = (span(config, keys[..., :n, :], values[..., :n, :], own, True),) if n else ()
    return leave(cache, blocks, n)


def hex_append(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexCache:
    """Add tokens one by one to the buffer, and compress a block whenever it is full."""
    config = cache.config
    full = config.block + (config.recent if config.carry_recent else 0)
    for t in range(keys.shape[-2]):
        query, key, value = (x[..., t : t + 1, :] for x in (queries, keys, values))
        cache = cache._replace(
            residual_keys=torch.cat([cache.residual_keys, key], -2),
            residual_values=torch.cat([cache.residual_values, value], -2),
        )
        drawn = attention_mass(query, read(cache, restored)[0])
        before = drawn.shape[-1] - cache.residual_keys.shape[-2]
        held = torch.nn.functional.pad(cache.residual_mass, (0, 1)) + drawn[..., before:]
        remembered = cache.mass + drawn[..., : cache.mass.shape[-1]]
        cache = cache._replace(residual_mass=held, mass=remembered)
        if cache.residual_keys.shape[-2] < full:
            continue
        if config.mode == "append" or len(cache.blocks) < config.period:
            oldest = (
                x[..., : config.block, :] for x in (cache.residual_keys, cache.residual_values)
            )
            block = span(config, *oldest, held, not cache.blocks)
            cache = leave(cache, (*cache.blocks, block), config.block)
        else:
            cache = as_one(cache, config.block)
    return cache


def as_one(cache: HexCache, size: int) -> HexCache:
    """Compress all blocks and the oldest tokens of the buffer as one span."""
    keys, values = hex_read(cache)
    if cache.config.mode == "oracle":
        keys = torch.cat([cache.original_keys, cache.residual_keys], -2)
        values = torch.cat([cache.original_values, cache.residual_values], -2)
    mass = torch.cat([cache.mass, cache.residual_mass], -1)
    n = cache.mass.shape[-1] + size
    block = span(cache.config, keys[..., :n, :], values[..., :n, :], mass, True)
    return leave(cache, (block,), size)


def hex_read(cache: HexCache) -> tuple[Tensor, Tensor]:
    """Return the keys and values that a cache stands for, in the order of the tokens."""
    return read(cache, hex_reconstruct)


def read(cache: HexCache, restore) -> tuple[Tensor, Tensor]:
    """Return what the blocks stand for, restored, and after it the buffer."""
    channels = cache.residual_keys.shape[-3] * cache.residual_keys.shape[-1]
    masks = (static(cache.config, b.dynamic.shape[-1], channels) for b in cache.blocks)
    spans = [restore(block, mask) for block, mask in zip(cache.blocks, masks, strict=True)]
    keys, values = zip(*spans, (cache.residual_keys, cache.residual_values), strict=True)
    return torch.cat(keys, -2), torch.cat(values, -2)
