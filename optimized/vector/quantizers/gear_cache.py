"""GEAR's streaming cache of vectorised spans."""

import torch
from torch import Tensor

from optimized.vector.hex._packed_products import fields
from optimized.vector.hex.packing import as_bytes, unpack_bits
from optimized.vector.quantizers.gear import compress_side, gear_reconstruct
from reference.hex.kcvt import joint_bits
from reference.precision import widest
from reference.quantizers.gear import GearBlock
from reference.quantizers.gear_cache import GearCache, with_block, with_tokens


def gear_prefill(
    keys: Tensor,
    values: Tensor,
    bits: int,
    outliers: float,
    rank: int,
    decoded_rank: int,
    block: int,
    fill: bool,
    seed: int,
    scales: torch.dtype | None,
    value_bits: int | None,
) -> GearCache:
    settings = joint_bits(bits, value_bits), outliers, decoded_rank, block, fill, seed, scales
    empty = GearCache(*settings, (), (), keys[..., :0, :].clone(), values[..., :0, :].clone())
    return with_block(empty, keys, values, rank, compress_side) if keys.shape[-2] else empty


def gear_append(cache: GearCache, keys: Tensor, values: Tensor) -> GearCache:
    return with_tokens(cache, keys, values, compress_side)


def gear_read(cache: GearCache, exact_outliers: bool) -> tuple[Tensor, Tensor]:
    return (
        joined(cache.key_blocks, cache.residual_keys, exact_outliers),
        joined(cache.value_blocks, cache.residual_values, exact_outliers),
    )


def joined(blocks: tuple[GearBlock, ...], last: Tensor, exact_outliers: bool) -> Tensor:
    """Return the restored tokens of blocks, and the last ones."""
    parts = [gear_reconstruct(block, exact_outliers) for block in alike(blocks)]
    parts[1:] = [x.movedim(0, -3).flatten(-3, -2) for x in parts[1:]]
    return torch.cat([*parts, last], -2)


def gear_attention(
    query: Tensor, cache: GearCache, keys: Tensor, values: Tensor, exact_outliers: bool
) -> Tensor:
    """Return the attention of one query a head over a cache and new tokens.

    No code is moved to its place, and no low-rank correction is multiplied out, unless outliers are
    exact.
    """
    *batch, kv_heads, _, width = keys.shape
    exact = widest(query, keys)
    q = query.to(exact).view(*batch, kv_heads, -1, width) / width**0.5
    left, right = (
        torch.cat([old, new], -2).to(exact)
        for old, new in ((cache.residual_keys, keys), (cache.residual_values, values))
    )
    logits = [key_logits(q, block, exact_outliers) for block in alike(cache.key_blocks)]
    weights = torch.cat([*logits, q @ left.mT], -1).softmax(-1)
    *shares, recent = weights.split([*(x.shape[-1] for x in logits), left.shape[-2]], -1)
    blocks = zip(shares, alike(cache.value_blocks), strict=True)
    read = [mixture(share, block, exact_outliers) for share, block in blocks]
    return sum(read, recent @ right).to(query.dtype).view(query.shape)


def alike(blocks: tuple[GearBlock, ...]) -> list[GearBlock]:
    """Return the first block, and all others, which are equally long, along one more first axis."""
    if len(blocks) < 2:
        return list(blocks)
    bits, *parts = zip(*blocks[1:], strict=True)
    return [blocks[0], GearBlock(bits[0], *map(torch.stack, parts))]


def key_logits(q: Tensor, block: GearBlock, exact_outliers: bool) -> Tensor:
    """Return queries, `[..., queries, width]`, times keys: `[..., queries, tokens]`."""
    left, right = block.left.to(q.dtype), block.right.to(q.dtype)
    if exact_outliers:
        found = q @ gear_reconstruct(block, exact_outliers).to(q.dtype).mT
    else:
        numbers = numbers_by_lane(block, left.shape[-2], left.shape[-2], q.dtype)
        found = (q @ numbers.flatten(-2)).unflatten(-1, numbers.shape[-2:]).mT.flatten(-2)
        found += (q @ right) @ left.mT
    return found.movedim(0, -2).flatten(-2) if found.ndim > q.ndim else found


def mixture(weights: Tensor, block: GearBlock, exact_outliers: bool) -> Tensor:
    """Return the weighted sum of values; weights are `[..., queries, tokens]`."""
    left, right = block.left.to(weights.dtype), block.right.to(weights.dtype)
    (kv_heads, tokens), width, several = (
        left.shape[-3:-1],
        right.shape[-2],
        left.ndim > weights.ndim,
    )
    if several:
        weights = weights.unflatten(-1, (-1, tokens)).movedim(-2, 0)
    if exact_outliers:
        read = weights @ gear_reconstruct(block, exact_outliers).to(weights.dtype)
    else:
        numbers = numbers_by_lane(block, kv_heads * width, width, weights.dtype)
        by_head = numbers.unflatten(-1, (kv_heads, -1)).movedim(-4, -2)
        read = (weights.unsqueeze(-4) @ by_head).movedim(-4, -1).flatten(-2)
        read += (weights @ left) @ right.mT
    return read.sum(0) if several else read


def numbers_by_lane(block: GearBlock, members: int, span: int, exact: torch.dtype) -> Tensor:
    """Return codes and outliers of rows of `members` as numbers, `[..., lanes, members / lanes]`.

    A lane is the same bits of all bytes, so codes are not interleaved: lane 1 of 2 has every other
    code. There is one lane if a byte has codes of two spans.
    """
    bits, cut, places = block.bits, fields(block.bits), block.places
    steps, minima = (x.to(exact)[..., None, None] for x in (block.steps, block.minima))
    lanes = 1 if cut.period > 1 or span % cut.codes else cut.codes
    if lanes == 1:
        codes = unpack_bits(block.words, bits, members)[..., None, :]
    else:
        stream = as_bytes(block.words)
        codes = torch.stack([stream & mask for (mask,) in cut.masks], -2)[..., : members // lanes]
        steps = steps * cut.worth.to(steps)  # masked bits times their worth are the code
        lane, place = places & lanes - 1, places >> lanes.bit_length() - 1
        places = lane * (members // lanes) + place
    found = codes.to(exact, memory_format=torch.contiguous_format).mul_(steps).add_(minima)
    found.flatten(-2).scatter_(-1, places.long(), block.outliers.to(exact))
    return found
