"""GraphKV without a matrix of sources by tokens: its edges are made twice, and kept neither time.

First the tile of edges leaves the largest of every 16 tokens. The m best of these sub-tiles hold
the m strongest edges of a source, the lowest indices among equal ones; only they are made again,
for the exact m-th edge and the last token tied with it. Then the tile is made anew, and the sources
that reach a token change its score. Every time an edge is the same sum in the same order, so that
what is compared is equal or not, and never nearly.

All counts are integers, no two programs write to one place, and sources follow one another in a
fixed order: no order of programs changes a result.

Two things the launcher hands to the vectorised body: float64, for which there are no fast matrix
products, and vectors without a channel. Where m is more than a sixteenth of the tokens, every
sub-tile may hold a neighbour, and all edges are kept once after all.
"""

from fractions import Fraction
from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized.kernels._device import widened
from reference.graphkv.graph import group_mean, neighbour_count, source_count, source_tokens
from reference.precision import widen

BLOCK = 128  # tokens of a tile
SOURCES = 64  # and sources
SUBTILE = 16
CHANNELS = {2: 64, 4: 32}  # at a time, by the bytes of a number
ROWS = 32  # vectors whose length a program takes
CHUNK = 4096  # numbers among which a program ranks at a time
SAFE = 5  # doublings: 32 numbers 1 - e, each 0 or at least 2^-24, have a product in float64
HALVES = (torch.bfloat16, torch.float16)


@triton.jit
def power_of(largest):
    """Return the power of two at or below a magnitude; 1 where its square is an ordinary number."""
    power = (largest.to(tl.uint32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    power = tl.maximum(power, 2.0**-126)
    ordinary = (largest == 0) | ((largest > 2.0**-40) & (largest < 2.0**60))
    return tl.where(ordinary, 1.0, power)


@triton.jit
def entries(vectors, start, at, inside, step, tokens, WIDTH: tl.constexpr, CHANNELS: tl.constexpr):
    """Return some channels of the vectors at `at`; a graph's heads come one after the other."""
    PARTS: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    c = step % PARTS * CHANNELS + tl.arange(0, CHANNELS)
    head = tl.full((), step // PARTS, tl.int64) * tokens * WIDTH
    there = inside[:, None]
    if WIDTH % CHANNELS:
        there &= (c < WIDTH)[None, :]
    return tl.load(vectors + start + head + at[:, None] * WIDTH + c[None, :], mask=there, other=0.0)


@triton.jit
def lengths_kernel(
    vectors, chosen, lengths, powers, tokens, rows, heads,
    GATHERED: tl.constexpr, BALANCED: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Write the lengths of vectors, and the powers of two they are divided by before."""
    blocks = tl.cdiv(rows, ROWS)
    graph = (tl.program_id(0) // blocks).to(tl.int64)
    first = (tl.program_id(0) % blocks).to(tl.int64) * ROWS
    r = tl.arange(0, ROWS)
    inside = r < rows - first
    row = graph * rows + first + r
    start = graph * heads * tokens * WIDTH
    at = r.to(tl.int64)
    if GATHERED:
        at = tl.load(chosen + row, mask=inside, other=0)
    else:
        start += first * WIDTH
    PARTS: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    largest = tl.zeros([ROWS], tl.float32)
    squares = tl.zeros([ROWS], tl.float32)
    for step in range(0, heads * PARTS):
        x = widened(entries(vectors, start, at, inside, step, tokens, WIDTH, CHANNELS))
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
        squares += tl.sum(x * x, 1)
    power = tl.full([ROWS], 1.0, tl.float32)
    if BALANCED:
        power = power_of(largest)
        if tl.max((power != 1).to(tl.int32), 0) > 0:
            again = tl.zeros([ROWS], tl.float32)
            for step in range(0, heads * PARTS):
                x = widened(entries(vectors, start, at, inside, step, tokens, WIDTH, CHANNELS))
                x = tl.div_rn(x, tl.broadcast_to(power[:, None], x.shape))
                again += tl.sum(x * x, 1)
            squares = tl.where(power != 1, again, squares)
    tl.store(lengths + row, tl.sqrt_rn(squares), mask=inside)
    tl.store(powers + row, power, mask=inside)


@triton.jit
def copies_kernel(
    vectors, chosen, powers, copies, tokens, rows, heads,
    BALANCED: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Copy vectors, divided by their powers of two."""
    PARTS: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    step = tl.program_id(0) % (heads * PARTS)
    blocks = tl.cdiv(rows, ROWS)
    block = tl.program_id(0) // (heads * PARTS)
    graph = (block // blocks).to(tl.int64)
    first = (block % blocks).to(tl.int64) * ROWS
    r = tl.arange(0, ROWS)
    inside = r < rows - first
    row = graph * rows + first + r
    at = tl.load(chosen + row, mask=inside, other=0)
    start = graph * heads * tokens * WIDTH
    x = entries(vectors, start, at, inside, step, tokens, WIDTH, CHANNELS)
    if BALANCED:
        power = tl.load(powers + row, mask=inside, other=1.0)
        y = widened(x)
        y = tl.div_rn(y, tl.broadcast_to(power[:, None], y.shape))
        if x.dtype == tl.bfloat16:
            # a power of two less is exact: what is cut off is 0
            x = (y.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
        else:
            x = y
    c = step % PARTS * CHANNELS + tl.arange(0, CHANNELS)
    here = copies + (row[:, None] * heads + step // PARTS) * WIDTH + c[None, :]
    tl.store(here, x, mask=inside[:, None] & (c < WIDTH)[None, :])


@triton.jit
def products(
    vectors, copies, powers, start, at, inside, across, present, tokens, heads,
    DIVIDED: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Return the inner products of some tokens with some sources."""
    PARTS: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    inner = tl.zeros([at.shape[0], across.shape[0]], tl.float32)
    for step in range(0, heads * PARTS):
        token = entries(vectors, start, at, inside, step, tokens, WIDTH, CHANNELS)
        c = step % PARTS * CHANNELS + tl.arange(0, CHANNELS)
        there = present[None, :]
        if WIDTH % CHANNELS:
            there &= (c < WIDTH)[:, None]
        here = copies + step // PARTS * WIDTH + across[None, :] + c[:, None]
        source = tl.load(here, mask=there, other=0.0)
        kind = token.dtype
        if WIDE:
            source = widened(source)
        if DIVIDED:
            token = widened(token)
            token = tl.div_rn(token, tl.broadcast_to(powers[:, None], token.shape))
            if not WIDE:
                token = token.to(kind)
        elif WIDE:
            token = widened(token)
        inner = tl.dot(token, source, inner, input_precision="ieee")
    return inner


@triton.jit
def edges(
    vectors, lengths, powers, copies, reaches, chosen, barred, graph, first, at, source,
    tokens, rows, heads,
    BARRED: tl.constexpr, CLAMPED: tl.constexpr, BALANCED: tl.constexpr, WIDE: tl.constexpr,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    """Return the edges of tokens `first + at` to the sources from `source` on.

    Minus infinity where there is no candidate: beyond the end, barred, or the source itself.
    """
    n = first + at
    inside = n < tokens
    start = (graph * heads * tokens + first) * WIDTH
    s = source + tl.arange(0, SOURCES)
    present = s < rows
    across = tl.arange(0, SOURCES) * heads * WIDTH
    copies += (graph * rows + source) * heads * WIDTH
    power = tl.load(powers + graph * tokens + n, mask=inside, other=1.0)
    inner = products(
        vectors, copies, power, start, at, inside, across, present, tokens, heads,
        False, WIDE, WIDTH, CHANNELS,
    )  # fmt: skip
    if BALANCED:  # noqa: SIM102 a constant first
        if tl.max((power != 1).to(tl.int32), 0) > 0:
            divided = products(
                vectors, copies, power, start, at, inside, across, present, tokens, heads,
                True, WIDE, WIDTH, CHANNELS,
            )  # fmt: skip
            inner = tl.where((power != 1)[:, None], divided, inner)
    length = tl.load(lengths + graph * tokens + n, mask=inside, other=0.0)
    reach = tl.load(reaches + graph * rows + s, mask=present, other=0.0)
    both = length[:, None] * reach[None, :]
    edge = tl.where(both > 0, tl.div_rn(inner, tl.where(both > 0, both, 1.0)), 0.0)
    edge = tl.minimum(tl.maximum(edge, 0.0 if CLAMPED else -1.0), 1.0)
    candidate = inside
    if BARRED:
        candidate &= tl.load(barred + graph * tokens + n, mask=inside, other=1) == 0
    itself = tl.load(chosen + graph * rows + s, mask=present, other=-1)
    candidate = candidate[:, None] & present[None, :] & (n[:, None] != itself[None, :])
    return tl.where(candidate, edge, -float("inf"))


@triton.jit
def maxima_kernel(
    vectors, lengths, powers, copies, reaches, chosen, barred, maxima,
    tokens, rows, heads, subtiles,
    BARRED: tl.constexpr, CLAMPED: tl.constexpr, BALANCED: tl.constexpr, WIDE: tl.constexpr,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SOURCES: tl.constexpr,
    BLOCK: tl.constexpr, SUBTILE: tl.constexpr,
):  # fmt: skip
    """Write the strongest edge of every sub-tile of a tile; neighbouring programs share tokens."""
    across, blocks = tl.cdiv(rows, SOURCES), tl.cdiv(tokens, BLOCK)
    graph = (tl.program_id(0) // across // blocks).to(tl.int64)
    block = (tl.program_id(0) // across % blocks).to(tl.int64)
    source = tl.program_id(0) % across * SOURCES
    edge = edges(
        vectors, lengths, powers, copies, reaches, chosen, barred,
        graph, block * BLOCK, tl.arange(0, BLOCK), source, tokens, rows, heads,
        BARRED, CLAMPED, BALANCED, WIDE, WIDTH, CHANNELS, SOURCES,
    )  # fmt: skip
    strongest = tl.max(tl.reshape(edge, (BLOCK // SUBTILE, SUBTILE, SOURCES)), 1)
    s = source + tl.arange(0, SOURCES)
    t = block * (BLOCK // SUBTILE) + tl.arange(0, BLOCK // SUBTILE)
    here = maxima + (graph * rows + s[None, :]) * subtiles + t[:, None]
    tl.store(here, strongest, mask=(s < rows)[None, :] & (t < subtiles)[:, None])


@triton.jit
def keys(values, start, length, CHUNK: tl.constexpr):
    """Return unsigned integers that order and tie as numbers do, and which of them there are."""
    i = start + tl.arange(0, CHUNK)
    inside = i < length
    # plus zero, so that minus zero becomes zero
    bits = (tl.load(values + i, mask=inside, other=0.0) + 0.0).to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, ~bits, bits ^ -2147483648)
    return key.to(tl.uint32, bitcast=True), inside


@triton.jit
def ranked(values, length, rank, CHUNK: tl.constexpr):
    """Return the key at a rank from the top, digit after digit, and how many keys are above it."""
    found = tl.full((), 0, tl.uint32)
    need = tl.full((), 0, tl.int32) + rank
    bins = tl.arange(0, 256)
    for step in tl.static_range(4):
        shift = 24 - 8 * step
        count = tl.zeros([256], tl.int32)
        for start in range(0, length, CHUNK):
            key, match = keys(values, start, length, CHUNK)
            if step > 0:
                match &= (key >> (shift + 8)) == found
            count += tl.histogram(((key >> shift) & 255).to(tl.int32), 256, mask=match)
        digit = tl.sum((tl.cumsum(count, 0, reverse=True) >= need).to(tl.int32), 0) - 1
        need -= tl.sum(tl.where(bins > digit, count, 0), 0)
        found = (found << 8) | digit.to(tl.uint32)
    return found, rank - need


@triton.jit
def pick_kernel(maxima, picked, subtiles, several, CHUNK: tl.constexpr):
    """List the best sub-tiles of a source in the order of its tokens; the first among equal ones.

    Those that are left out cannot hold a neighbour: every sub-tile that is listed holds an edge as
    strong as their strongest, and comes first where these are equal.
    """
    row = tl.program_id(0).to(tl.int64)
    maxima += row * subtiles
    last, above = ranked(maxima, subtiles, several, CHUNK)
    room = several - above
    listed = tl.full((), 0, tl.int32)
    tied = tl.full((), 0, tl.int32)
    for start in range(0, subtiles, CHUNK):
        key, inside = keys(maxima, start, subtiles, CHUNK)
        equal = (key == last) & inside
        rank = tied + tl.cumsum(equal.to(tl.int32), 0)
        taken = ((key > last) & inside) | (equal & (rank <= room))
        place = listed + tl.cumsum(taken.to(tl.int32), 0) - 1
        tl.store(picked + row * several + place, start + tl.arange(0, CHUNK), mask=taken)
        listed += tl.sum(taken.to(tl.int32), 0)
        tied += tl.sum(equal.to(tl.int32), 0)


@triton.jit
def exact_kernel(
    vectors, lengths, powers, copies, reaches, chosen, barred, picked, exact,
    tokens, rows, heads, several,
    BARRED: tl.constexpr, CLAMPED: tl.constexpr, BALANCED: tl.constexpr, WIDE: tl.constexpr,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SOURCES: tl.constexpr,
    BLOCK: tl.constexpr, SUBTILE: tl.constexpr,
):  # fmt: skip
    """Write the edges of one source to all tokens of some of its best sub-tiles.

    A whole tile is made for one column of it, so that its sums are those of the other tiles.
    """
    EACH: tl.constexpr = BLOCK // SUBTILE
    parts = tl.cdiv(several, EACH)
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = tl.program_id(0) % parts * EACH
    graph, own = row // rows, (row % rows).to(tl.int32)
    t = tl.arange(0, EACH)
    listed = tl.load(picked + row * several + first + t, mask=first + t < several, other=0)
    at = listed.to(tl.int64)[:, None] * SUBTILE + tl.arange(0, SUBTILE)[None, :]
    source = own // SOURCES * SOURCES
    edge = edges(
        vectors, lengths, powers, copies, reaches, chosen, barred,
        graph, 0, tl.reshape(at, (BLOCK,)), source, tokens, rows, heads,
        BARRED, CLAMPED, BALANCED, WIDE, WIDTH, CHANNELS, SOURCES,
    )  # fmt: skip
    mine = (source + tl.arange(0, SOURCES) == own)[None, :]
    edge = tl.max(tl.where(mine, edge, -float("inf")), 1)
    i = tl.arange(0, BLOCK)
    here = exact + (row * several + first) * SUBTILE + i
    tl.store(here, edge, mask=i < (several - first) * SUBTILE)


@triton.jit
def cut_kernel(
    exact, picked, acting, cuts, ends, rows, count, several,
    SUBTILE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the weakest edge that reaches a neighbour, and the last token it reaches at that."""
    row = tl.program_id(0).to(tl.int64)
    length = several * SUBTILE
    exact += row * length
    last, above = ranked(exact, length, count, CHUNK)
    room = count - above
    tied = tl.full((), 0, tl.int32)
    place = tl.full((), 0, tl.int32)
    for start in range(0, length, CHUNK):
        key, inside = keys(exact, start, length, CHUNK)
        rank = tied + tl.cumsum(((key == last) & inside).to(tl.int32), 0)
        place += tl.sum(((rank < room) & inside).to(tl.int32), 0)
        tied += tl.sum(((key == last) & inside).to(tl.int32), 0)
    end = tl.load(picked + row * several + place // SUBTILE) * SUBTILE + place % SUBTILE
    bits = last.to(tl.int32, bitcast=True)
    edge = tl.where(bits < 0, bits ^ -2147483648, ~bits).to(tl.float32, bitcast=True)
    # a rank beyond the sources of its graph reaches nothing
    acts = row % rows < tl.load(acting + row // rows)
    tl.store(cuts + row, tl.where(acts, edge, float("inf")))
    tl.store(ends + row, end)


@triton.jit
def parted(x):
    """Return a float64 number as a mantissa in [1/2, 1) and an exponent; 0 and 0 for none."""
    bits = x.to(tl.int64, bitcast=True)
    exponent = (bits >> 52) & 0x7FF
    some = exponent != 0
    mantissa = ((bits & -9218868437227405313) | 4602678819172646912).to(tl.float64, bitcast=True)
    return tl.where(some, mantissa, 0.0), tl.where(some, exponent - 1022, 0)


@triton.jit
def power_of_two(exponent):
    """Return a power of two in float64."""
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def signal_kernel(
    vectors, lengths, powers, copies, reaches, chosen, barred, cuts, ends, scores, refined,
    strength, tokens, rows, heads,
    RULE: tl.constexpr, ROUNDS: tl.constexpr, BITS: tl.constexpr,
    BARRED: tl.constexpr, CLAMPED: tl.constexpr, BALANCED: tl.constexpr, WIDE: tl.constexpr,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SOURCES: tl.constexpr,
    BLOCK: tl.constexpr, LEVELS: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Write the scores of a block of tokens after all sources and rounds.

    Factors are multiplied as mantissas and exponents: one that overflows before the score comes in
    turns a score of 0 into NaN, one that underflows loses a large score.
    """
    blocks = tl.cdiv(tokens, BLOCK)
    graph = (tl.program_id(0) // blocks).to(tl.int64)
    first = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    mantissa = tl.full([BLOCK], 1.0, tl.float64)
    exponent = tl.zeros([BLOCK], tl.int64)
    lost = tl.zeros([BLOCK], tl.float64)
    last = tl.zeros([BLOCK], tl.float32)
    struck = tl.zeros([BLOCK], tl.int32)
    for source in range(0, rows, SOURCES):
        edge = edges(
            vectors, lengths, powers, copies, reaches, chosen, barred,
            graph, first, at, source, tokens, rows, heads,
            BARRED, CLAMPED, BALANCED, WIDE, WIDTH, CHANNELS, SOURCES,
        )  # fmt: skip
        s = source + tl.arange(0, SOURCES)
        there = s < rows
        cut = tl.load(cuts + graph * rows + s, mask=there, other=float("inf"))[None, :]
        end = tl.load(ends + graph * rows + s, mask=there, other=0)[None, :]
        reached = (edge > cut) | ((edge == cut) & ((first + at)[:, None] <= end))
        reached &= edge > -float("inf")
        loss = tl.where(reached, strength * edge, 0.0)
        if RULE == "product":
            kept = (1.0 - loss).to(tl.float64)
            for level in tl.static_range(LEVELS):
                pairs = tl.reshape(kept, (BLOCK, SOURCES >> (level + 1), 2))
                one, other = tl.split(pairs)
                kept = one * other
                if level + 1 == SAFE:
                    kept, more = parted(kept)
                    exponent += tl.sum(more, 1)
            mantissa, more = parted(mantissa * tl.reshape(kept, (BLOCK,)))
            exponent += more
        elif RULE == "sum":
            lost += tl.sum(loss.to(tl.float64), 1)
        elif RULE == "sequential":
            latest = tl.max(tl.where(reached, s[None, :] + 1, 0), 1)
            alone = tl.where(s[None, :] + 1 == latest[:, None], loss, 0.0)
            last = tl.where(latest > 0, tl.sum(alone, 1), last)
        else:
            struck |= tl.max(reached.to(tl.int32), 1)
    if RULE == "sum":
        mantissa, exponent = parted(1.0 - lost)
    elif RULE == "sequential":
        mantissa, exponent = parted((1.0 - last).to(tl.float64))
    here = graph * tokens + first + at
    inside = first + at < tokens
    score = tl.load(scores + here, mask=inside, other=0.0)
    if RULE == "evict":
        tl.store(refined + here, tl.where(struck > 0, -float("inf"), score), mask=inside)
    else:
        own, shift = parted(score.to(tl.float64))
        whole = tl.full([BLOCK], 1.0, tl.float64)
        sum_ = tl.zeros([BLOCK], tl.int64)
        for bit in tl.static_range(BITS):
            if (ROUNDS >> bit) % 2 == 1:
                whole, more = parted(whole * mantissa)
                sum_ += exponent + more
            mantissa, more = parted(mantissa * mantissa)
            # far from the end of int64, and beyond every float
            exponent = tl.minimum(tl.maximum(2 * exponent + more, -(2**40)), 2**40)
        shift = tl.minimum(tl.maximum(sum_ + shift, -2040), 2040)
        half = shift >> 1
        scaled = (own * whole) * power_of_two(half) * power_of_two(shift - half)
        tl.store(refined + here, scaled.to(tl.float32), mask=inside)


def graphkv_refine(
    scores: Tensor,
    keys: Tensor,
    keep: int,
    count: int,
    protected: Tensor | None,
    *,
    queries: Tensor | None,
    values: Tensor | None,
    kind: str,
    fraction: float,
    rounds: int,
    strength: float,
    rule: str,
    signal: str,
    per_head: bool,
    spare_sources: bool,
    clamp: bool,
    exclude_window: bool,
    adaptive: bool,
) -> Tensor:
    ends: dict[str, Any] = {"k": keys, "q": queries, "v": values}
    compared = ends[kind[0]], ends[kind[1]]
    if torch.float64 in (scores.dtype, *(end.dtype for end in compared)) or not keys.shape[-1]:
        return vector.graphkv_refine(
            scores, keys, keep, count, protected, queries=queries, values=values, kind=kind,
            fraction=fraction, rounds=rounds, strength=strength, rule=rule, signal=signal,
            per_head=per_head, spare_sources=spare_sources, clamp=clamp,
            exclude_window=exclude_window, adaptive=adaptive,
        )  # fmt: skip
    if not scores.numel():
        return scores.clone()
    score, shielded = widen(scores), protected
    if not per_head:
        score = score.mean(-2)
        shielded = None if protected is None else protected.any(-2)
    tokens = scores.shape[-1]
    count = min(neighbour_count(count, tokens) if adaptive else count, tokens)
    if count and rounds:
        start, end = (
            group_mean(one, keys) if which == "q" else one
            for which, one in zip(kind, compared, strict=True)
        )
        chosen = source_tokens(score, min(source_count(keep, fraction), tokens), shielded)
        graphs = prod(score.shape[:-1])
        acting = chosen.new_full((graphs,), chosen.shape[-1])
        if shielded is not None:
            taken = shielded.sum(-1).flatten()
            share = shares(keep, fraction, taken) if exclude_window else acting
            acting = torch.minimum(tokens - taken, share)
        barred = shielded
        if spare_sources:
            barred = torch.zeros_like(score, dtype=torch.bool) if barred is None else barred
            barred = barred.scatter(-1, spared(chosen, acting), True)
        score = sent(
            score.contiguous(), start, end, chosen, acting, barred, count,
            rounds=rounds,
            strength=float(strength if signal == "decay" else -strength),
            rule="product" if signal == "enhance" else "evict" if signal == "evict" else rule,
            clamp=clamp,
        )  # fmt: skip
    if not per_head:
        score = score[..., None, :].expand(scores.shape)
    return score.to(scores.dtype, copy=True).contiguous()


def shares(keep: int, fraction: float, taken: Tensor) -> Tensor:
    """Return the sources of graphs of which a window takes so many tokens."""
    part = Fraction(str(fraction))
    if max(part.numerator * keep, part.denominator) < 2**63:
        left = (keep - taken).clamp(min=0)
        return (left * part.numerator // part.denominator).clamp(min=1)
    table = [source_count(keep, fraction, window) for window in range(keep + 1)]
    return torch.tensor(table, device=taken.device)[taken.clamp(max=keep)]


def spared(chosen: Tensor, acting: Tensor) -> Tensor:
    """Return the sources, the first one instead of what is ranked and no source of its graph."""
    rank = torch.arange(chosen.shape[-1], device=chosen.device)
    return torch.where(rank < acting.view(*chosen.shape[:-1], 1), chosen, chosen[..., :1])


def sent(
    scores: Tensor, start: Tensor, end: Tensor, chosen: Tensor, acting: Tensor,
    barred: Tensor | None, count: int, *, rounds: int, strength: float, rule: str, clamp: bool,
) -> Tensor:  # fmt: skip
    """Return the scores of graphs once their signal is sent."""
    start, end = start.contiguous(), end.contiguous()
    chosen, refined = chosen.contiguous(), torch.empty_like(scores)
    tokens, rows, width = scores.shape[-1], chosen.shape[-1], end.shape[-1]
    graphs = scores.numel() // tokens
    heads = end.numel() // (graphs * tokens * width)
    barred = None if barred is None else barred.contiguous()
    subtile, most = min(SUBTILE, BLOCK), max(min(BLOCK, 16), min(BLOCK, SOURCES))
    sources = min(most, max(min(BLOCK, 16), triton.next_power_of_2(rows)))
    wide = start.dtype != end.dtype or end.dtype not in HALVES or triton.knobs.runtime.interpret
    channels = min(CHANNELS[end.itemsize], max(16, triton.next_power_of_2(width)))
    shape = dict(WIDTH=width, CHANNELS=channels)

    reaches, own = scores.new_empty((2, graphs, rows))
    copies = start.new_empty((graphs, rows, heads, width))
    several = graphs * triton.cdiv(rows, ROWS)
    scaled = dict(BALANCED=start.dtype != torch.float16, ROWS=ROWS, **shape)
    lengths_kernel[(several,)](
        start, chosen, reaches, own, tokens, rows, heads, GATHERED=True, **scaled
    )
    copies_kernel[(several * heads * triton.cdiv(width, channels),)](
        start, chosen, own, copies, tokens, rows, heads, **scaled
    )
    lengths, powers = scores.new_empty((2, graphs, tokens))
    balanced = end.dtype != torch.float16
    lengths_kernel[(graphs * triton.cdiv(tokens, ROWS),)](
        end, chosen, lengths, powers, tokens, tokens, heads,
        GATHERED=False, BALANCED=balanced, ROWS=ROWS, **shape,
    )  # fmt: skip

    blocks, subtiles = triton.cdiv(tokens, BLOCK), triton.cdiv(tokens, subtile)
    several = min(count, subtiles)
    graph = (end, lengths, powers, copies, reaches, chosen, chosen if barred is None else barred)
    tile = dict(BARRED=barred is not None, CLAMPED=clamp, BALANCED=balanced, WIDE=wide, **shape)
    tile |= dict(SOURCES=sources, BLOCK=BLOCK)
    if several < subtiles:
        picked = chosen.new_empty((graphs, rows, several), dtype=torch.int32)
        maxima = scores.new_empty((graphs, rows, subtiles))
        maxima_kernel[(graphs * blocks * triton.cdiv(rows, sources),)](
            *graph, maxima, tokens, rows, heads, subtiles, SUBTILE=subtile, num_warps=8, **tile
        )
        chunk = min(CHUNK, max(2048, triton.next_power_of_2(subtiles)))
        pick_kernel[(graphs * rows,)](maxima, picked, subtiles, several, CHUNK=chunk)
    else:
        every = torch.arange(subtiles, dtype=torch.int32, device=chosen.device)
        picked = every.expand(graphs, rows, several).contiguous()
    exact = scores.new_empty((graphs, rows, several * subtile))
    parts = triton.cdiv(several, BLOCK // subtile)
    exact_kernel[(graphs * rows * parts,)](
        *graph, picked, exact, tokens, rows, heads, several, SUBTILE=subtile, num_warps=8, **tile
    )
    cuts, ends = scores.new_empty((graphs, rows)), picked.new_empty((graphs, rows))
    chunk = min(CHUNK, triton.next_power_of_2(several * subtile))
    cut_kernel[(graphs * rows,)](
        exact, picked, acting, cuts, ends, rows, count, several, SUBTILE=subtile, CHUNK=chunk
    )
    signal_kernel[(graphs * blocks,)](
        *graph, cuts, ends, scores, refined, strength, tokens, rows, heads,
        RULE=rule, ROUNDS=rounds, BITS=rounds.bit_length(),
        LEVELS=sources.bit_length() - 1, SAFE=SAFE, num_warps=8, num_stages=1, **tile,
    )  # fmt: skip
    return refined
