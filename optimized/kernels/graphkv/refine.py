"""GraphKV without storing the matrix of edges, sources by tokens.

The first kernel computes a tile of edges. It stores the maximum of every sub-tile (8 tokens) and of
the tile. The m best tiles of a source contain its m best sub-tiles, and these
contain its m strongest edges, with ties at the lowest indices. The second kernel computes only the
edges of those sub-tiles again, and lists the neighbours of each source. The third scans the lists
for the sources that reach a token.

An edge is computed twice, and ties need both results to be equal bit for bit. Both kernels multiply
16-bit numbers in tiles of one shape, by as many warps, hence by the same instruction; float32 is
multiplied and added in the order of channels, whatever the tile.

Counts are integers, no two programs write to one place, and sources are applied in a fixed order:
the order of programs does not change a result.

The launcher falls back to PyTorch for float64, which has no fast matrix products, and for vectors
without a channel.
"""

from math import prod
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._numerics import widened
from reference.contract import checks
from reference.graphkv.graph import group_mean, neighbour_count, source_count, source_tokens
from reference.precision import widen

BLOCK = 128  # tokens of a tile
SOURCES = 64  # sources of a tile
ALONE = 16  # sources of a tile of float32 that is computed again, of which only one is used
SUBTILE = 8
CHANNELS = {True: 16, False: 32}  # channels of a product's step
CHUNKS = 256, 4096  # fewest and most numbers that a program ranks at a time
SPAN = 128  # tokens whose scores a program writes
LISTED = 1024  # neighbours that a program scans at a time
HITS = 16  # neighbours that it applies at a time
WARPS = {True: 8, False: 4}  # of a program that multiplies; True if widened
HALVES = (torch.bfloat16, torch.float16)


class Graphs(NamedTuple):
    """The vectors of graphs, and the results of the kernels so far.

    Triton would specialise integers in a record; sizes are arguments of their own.
    """

    vectors: Tensor
    copies: Tensor  # of the vectors of sources
    reaches: Tensor  # lengths of these copies
    chosen: Tensor
    barred: Tensor | None
    lengths: Tensor
    maxima: Tensor
    highest: Tensor


@triton.jit(do_not_specialize=["tokens", "rows"])
def sources_kernel(
    vectors, chosen, copies, reaches, tokens, rows, heads,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Copy a source vector, and write its length; 1 instead of 0, since its products are 0."""
    row = tl.program_id(0).to(tl.int64)
    vectors += (row // rows * heads * tokens + tl.load(chosen + row)) * WIDTH
    copies += row * heads * WIDTH
    squares = tl.zeros([CHUNK], tl.float32)
    for start in range(0, heads * WIDTH, CHUNK):
        i = start + tl.arange(0, CHUNK)
        here = vectors + (i // WIDTH).to(tl.int64) * tokens * WIDTH + i % WIDTH
        x = tl.load(here, mask=i < heads * WIDTH, other=0.0)
        y = widened(x)
        squares += y * y
        tl.store(copies + i, x, mask=i < heads * WIDTH)
    length = tl.sqrt_rn(tl.sum(squares, 0))
    tl.store(reaches + row, tl.where(length > 0, length, 1.0))


@triton.jit
def entries(vectors, start, index, step, tokens, WIDTH: tl.constexpr, CHANNELS: tl.constexpr):
    """Return some channels of the vectors at `index`; steps run through the heads of a graph."""
    PARTS: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    first, c = step % PARTS * CHANNELS, tl.arange(0, CHANNELS)
    head = tl.full((), step // PARTS, tl.int64) * tokens * WIDTH
    here = vectors + (start + head + first) + (index[:, None] * WIDTH + c[None, :])
    if WIDTH % CHANNELS:
        return tl.load(here, mask=(first + c < WIDTH)[None, :], other=0.0)
    else:
        return tl.load(here)


@triton.jit
def products(
    vectors, copies, start, index, across, tokens, heads,
    SQUARED: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Return the inner products of some sources with some tokens, and the tokens' squares."""
    PARTS: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    inner = tl.zeros([across.shape[0], index.shape[0]], tl.float32)
    squares = tl.zeros([index.shape[0], CHANNELS // 8], tl.float32)
    for step in tl.range(0, heads * PARTS, num_stages=4):
        token = entries(vectors, start, index, step, tokens, WIDTH, CHANNELS)
        source = entries(copies, 0, across, step, 1, WIDTH, CHANNELS)
        if SQUARED:
            squares += sums_of_squares(widened(token))
        if WIDE:
            token, source = widened(token), widened(source)
        inner = tl.dot(source, tl.trans(token), inner, input_precision="ieee")
    return inner, squares


@triton.jit
def sums_of_squares(x):
    """Return the sums of squares of every 8 channels."""
    return tl.sum(tl.reshape(x * x, (x.shape[0], x.shape[1] // 8, 8)), 2)


@triton.jit
def clamped(edge, CLAMPED: tl.constexpr):
    """Return edges clamped to their range; minus infinity stays where there is none."""
    within = tl.minimum(tl.maximum(edge, 0.0 if CLAMPED else -1.0), 1.0)
    return tl.where(edge > -float("inf"), within, -float("inf"))


@triton.jit(do_not_specialize=["tokens", "rows"])
def maxima_kernel(
    graphs, tokens, rows, heads, CLAMPED: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr, SOURCES: tl.constexpr, BLOCK: tl.constexpr, SUBTILE: tl.constexpr,
):  # fmt: skip
    """Write the strongest edge of every sub-tile of a tile and of the tile; write token lengths.

    An edge is minus infinity where the token is not a candidate: beyond the end, barred, or the
    source itself.
    """
    EACH: tl.constexpr = BLOCK // SUBTILE
    across, blocks = tl.cdiv(rows, SOURCES), tl.cdiv(tokens, BLOCK)
    # neighbouring programs share tokens
    graph = (tl.program_id(0) // across // blocks).to(tl.int64)
    block = tl.program_id(0) // across % blocks
    source = tl.program_id(0) % across * SOURCES
    first = block * BLOCK
    t = tl.arange(0, BLOCK)
    inside = t < tokens - first
    index = tl.minimum(t, tokens - 1 - first)
    s = source + tl.arange(0, SOURCES)
    present = s < rows
    row = graph * rows + source
    copied = tl.minimum(tl.arange(0, SOURCES), rows - 1 - source) * heads
    start = (graph * heads * tokens + first) * WIDTH
    copies = graphs.copies + row * heads * WIDTH
    inner, squares = products(
        graphs.vectors, copies, start, index, copied, tokens, heads,
        True, WIDE, WIDTH, CHANNELS,
    )  # fmt: skip
    length = tl.sqrt_rn(tl.sum(squares, 1))
    length = tl.where(length > 0, length, 1.0)
    here = graph * tokens + first + t
    tl.store(graphs.lengths + here, length, mask=inside & (source == 0))
    candidate = inside
    if graphs.barred is not None:
        candidate &= tl.load(graphs.barred + here, mask=inside, other=1) == 0
    reach = tl.load(graphs.reaches + graph * rows + s, mask=present, other=1.0)
    itself = (tl.load(graphs.chosen + graph * rows + s, mask=present, other=-1) - first).to(
        tl.int32
    )
    edge = tl.div_rn(inner, reach[:, None] * length[None, :])
    candidate = candidate[None, :] & (t[None, :] != itself[:, None])
    edge = tl.where(candidate, edge, -float("inf"))
    edge = clamped(tl.max(tl.reshape(edge, (SOURCES, EACH, SUBTILE)), 2), CLAMPED)
    here = (graph * rows + s) * blocks + block
    e = tl.arange(0, EACH)
    tl.store(graphs.maxima + here[:, None] * EACH + e[None, :], edge, mask=present[:, None])
    tl.store(graphs.highest + here, tl.max(edge, 1), mask=present)


@triton.jit
def keys(values, places, start, length, EACH: tl.constexpr, CHUNK: tl.constexpr):
    """Return unsigned keys that compare as the numbers do, the mask of valid ones, and indices.

    The numbers are those at some places, EACH consecutive ones at a place.
    """
    i = start + tl.arange(0, CHUNK)
    inside = i < length
    index = i
    if EACH > 1:
        index = tl.load(places + i // EACH, mask=inside, other=0) * EACH + i % EACH
    # plus zero, so that minus zero becomes zero
    bits = (tl.load(values + index, mask=inside, other=0.0) + 0.0).to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, ~bits, bits ^ -2147483648)
    return key.to(tl.uint32, bitcast=True), inside, index


@triton.jit
def ranked(values, places, length, rank, EACH: tl.constexpr, CHUNK: tl.constexpr):
    """Return the key of a rank from the top, by radix selection, and how many keys are larger."""
    found = tl.full((), 0, tl.uint32)
    need = tl.full((), 0, tl.int32) + rank
    bins = tl.arange(0, 256)
    for step in tl.static_range(4):
        shift = 24 - 8 * step
        count = tl.zeros([256], tl.int32)
        for start in range(0, length, CHUNK):
            key, match, _ = keys(values, places, start, length, EACH, CHUNK)
            if step > 0:
                match &= (key >> (shift + 8)) == found
            count += tl.histogram(((key >> shift) & 255).to(tl.int32), 256, mask=match)
        digit = tl.sum((tl.cumsum(count, 0, reverse=True) >= need).to(tl.int32), 0) - 1
        need -= tl.sum(tl.where(bins > digit, count, 0), 0)
        found = (found << 8) | digit.to(tl.uint32)
    return found, rank - need


@triton.jit
def list_best(
    values, places, length, several, listed, EACH: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Write the indices of the largest numbers in ascending order; ties take the lowest ones."""
    last, above = ranked(values, places, length, several, EACH, CHUNK)
    room = several - above
    before = tl.full((), 0, tl.int32)
    tied = tl.full((), 0, tl.int32)
    for start in range(0, length, CHUNK):
        key, inside, index = keys(values, places, start, length, EACH, CHUNK)
        equal = (key == last) & inside
        rank = tied + tl.cumsum(equal.to(tl.int32), 0)
        taken = ((key > last) & inside) | (equal & (rank <= room))
        slot = before + tl.cumsum(taken.to(tl.int32), 0) - 1
        tl.store(listed + slot, index, mask=taken)
        before += tl.sum(taken.to(tl.int32), 0)
        tied += tl.sum(equal.to(tl.int32), 0)
    # other threads of this program read the list
    tl.debug_barrier()


@triton.jit(do_not_specialize=["tokens", "rows", "blocks", "best_tiles", "best", "count"])
def neighbours_kernel(
    graphs, tokens, rows, heads, acting, tiles, picked, exact, reached, weights,
    blocks, best_tiles, best, count,
    CLAMPED: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
    SOURCES: tl.constexpr, BLOCK: tl.constexpr, SUBTILE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the neighbours of a source in the order of tokens, -1 for none, and their edges.

    A dropped tile or sub-tile cannot hold a neighbour: every listed one has an edge at least as
    strong as the strongest dropped edge, and before it where both are equal.
    """
    EACH: tl.constexpr = BLOCK // SUBTILE
    row = tl.program_id(0).to(tl.int64)
    graph, own = row // rows, (row % rows).to(tl.int32)
    tiles += row * best_tiles
    maxima = graphs.maxima + row * blocks * EACH
    reached += row * count
    list_best(graphs.highest + row * blocks, tiles, blocks, best_tiles, tiles, 1, CHUNK)
    picked += row * best
    exact += row * best * SUBTILE
    list_best(maxima, tiles, best_tiles * EACH, best, picked, EACH, CHUNK)
    source = own // SOURCES * SOURCES
    copies = graphs.copies + (graph * rows + source) * heads * WIDTH
    copied = tl.minimum(tl.arange(0, SOURCES), rows - 1 - source) * heads
    mine = (source + tl.arange(0, SOURCES) == own)[:, None]
    reach = tl.load(graphs.reaches + row)
    itself = tl.load(graphs.chosen + row)
    start = graph * heads * tokens * WIDTH
    for first in range(0, best * SUBTILE, BLOCK):
        i = first + tl.arange(0, BLOCK)
        there = i < best * SUBTILE
        t = tl.load(picked + i // SUBTILE, mask=there, other=0).to(tl.int64) * SUBTILE
        t += i % SUBTILE
        inside = t < tokens
        index = tl.minimum(t, tokens - 1)
        length = tl.load(graphs.lengths + graph * tokens + index)
        inner, _ = products(
            graphs.vectors, copies, start, index, copied, tokens, heads,
            False, WIDE, WIDTH, CHANNELS,
        )  # fmt: skip
        inner = tl.sum(tl.where(mine, inner, 0.0), 0)
        candidate = inside & (t != itself)
        if graphs.barred is not None:
            candidate &= tl.load(graphs.barred + graph * tokens + index) == 0
        edge = tl.where(candidate, tl.div_rn(inner, reach * length), -float("inf"))
        tl.store(exact + i, clamped(edge, CLAMPED), mask=there)
    tl.debug_barrier()
    list_best(exact, picked, best * SUBTILE, count, reached, 1, CHUNK)
    # a row beyond the number of sources of its graph reaches nothing
    acts = own < tl.load(acting + graph)
    for first in range(0, count, BLOCK):
        n = first + tl.arange(0, BLOCK)
        i = tl.load(reached + n, mask=n < count, other=0)
        edge = tl.load(exact + i, mask=n < count, other=0.0)
        i = tl.load(picked + i // SUBTILE, mask=n < count, other=0) * SUBTILE + i % SUBTILE
        tl.store(weights + row * count + n, edge, mask=n < count)
        i = tl.where(acts & (edge > -float("inf")), i, -1)
        # several threads hold the same place; all must have read it
        tl.debug_barrier()
        tl.store(reached + n, i, mask=n < count)


@triton.jit(do_not_specialize=["tokens", "total"])
def signal_kernel(
    reached, weights, scores, refined, strength, tokens, total,
    RULE: tl.constexpr, ROUNDS: tl.constexpr, BITS: tl.constexpr,
    SPAN: tl.constexpr, LISTED: tl.constexpr, HITS: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """Write the scores of a span of tokens after all sources and rounds."""
    spans = tl.cdiv(tokens, SPAN)
    graph = (tl.program_id(0) // spans).to(tl.int64)
    first = tl.program_id(0) % spans * SPAN
    reached += graph * total
    weights += graph * total
    own = first + tl.arange(0, SPAN)
    factor = tl.full([SPAN], 1.0, tl.float64)
    lost = tl.zeros([SPAN], tl.float64)
    last = tl.zeros([SPAN], tl.float32)
    struck = tl.zeros([SPAN], tl.int32)
    for start in range(0, total, LISTED):
        i = start + tl.arange(0, LISTED)
        token = tl.load(reached + i, mask=i < total, other=-1)
        end = tl.minimum(start + LISTED, total)
        mine = (token >= first) & (token < first + SPAN)
        hit = tl.min(tl.where(mine, i, end), 0)
        while hit < end:
            h = hit + tl.arange(0, HITS)
            to = tl.load(reached + h, mask=h < end, other=-1)
            edge = tl.load(weights + h, mask=h < end, other=0.0)
            reaches = own[:, None] == to[None, :]
            loss = tl.where(reaches, (strength * edge)[None, :], 0.0)
            if RULE == "product":
                kept = (1.0 - loss).to(tl.float64)
                for level in tl.static_range(LEVELS):
                    even, odd = tl.split(tl.reshape(kept, (SPAN, HITS >> (level + 1), 2)))
                    kept = even * odd
                factor *= tl.reshape(kept, (SPAN,))
            elif RULE == "sum":
                lost += tl.sum(loss.to(tl.float64), 1)
            elif RULE == "sequential":
                latest = tl.max(tl.where(reaches, h[None, :] + 1, 0), 1)
                alone = tl.where(h[None, :] + 1 == latest[:, None], loss, 0.0)
                last = tl.where(latest > 0, tl.sum(alone, 1), last)
            else:
                struck |= tl.max(reaches.to(tl.int32), 1)
            hit = tl.min(tl.where(mine & (i >= hit + HITS), i, end), 0)
    if RULE == "sum":
        factor = 1.0 - lost
    elif RULE == "sequential":
        factor = (1.0 - last).to(tl.float64)
    here = graph * tokens + own
    inside = own < tokens
    score = tl.load(scores + here, mask=inside, other=0.0)
    if RULE == "evict":
        tl.store(refined + here, tl.where(struck > 0, -float("inf"), score), mask=inside)
    else:
        scaled = score.to(tl.float64)
        for bit in tl.static_range(BITS):
            if (ROUNDS >> bit) % 2 == 1:
                scaled *= factor
            factor *= factor
        tl.store(refined + here, scaled.to(tl.float32), mask=inside)


@gradient_fallback(vector.graphkv_refine)
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
            group_mean(vectors, keys) if which == "q" else vectors
            for which, vectors in zip(kind, compared, strict=True)
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
            barred = barred.scatter(-1, padded_sources(chosen, acting), True)
        score = send_signal(
            score.contiguous(), start, end, chosen, acting, barred, count,
            rounds=rounds,
            strength=float(strength if signal == "decay" else -strength),
            rule="product" if signal == "enhance" else "evict" if signal == "evict" else rule,
            clamp=clamp,
        )  # fmt: skip
    if not per_head:
        score = score[..., None, :].expand(scores.shape)
    score = score.to(scores.dtype, copy=True).contiguous()
    if signal != "evict":
        checks.refuse_overflow("scores", score)
    return score


def shares(keep: int, fraction: float, taken: Tensor) -> Tensor:
    """Return the number of sources of each graph, whose window has `taken` tokens."""
    table = [source_count(keep, fraction, window) for window in range(keep + 1)]
    return torch.tensor(table, device=taken.device)[taken.clamp(max=keep)]


def padded_sources(chosen: Tensor, acting: Tensor) -> Tensor:
    """Return the sources, with ranks beyond the number of a graph replaced by its first source."""
    rank = torch.arange(chosen.shape[-1], device=chosen.device)
    return torch.where(rank < acting.view(*chosen.shape[:-1], 1), chosen, chosen[..., :1])


def send_signal(
    scores: Tensor, start: Tensor, end: Tensor, chosen: Tensor, acting: Tensor,
    barred: Tensor | None, count: int, *, rounds: int, strength: float, rule: str, clamp: bool,
) -> Tensor:  # fmt: skip
    """Launch the kernels, and return the scores of graphs after their signal."""
    start, end = start.contiguous(), end.contiguous()
    chosen, refined = chosen.contiguous(), torch.empty_like(scores)
    tokens, rows, width = scores.shape[-1], chosen.shape[-1], end.shape[-1]
    graphs = scores.numel() // tokens
    heads = end.numel() // (graphs * tokens * width)
    wide = start.dtype != end.dtype or end.dtype not in HALVES or triton.knobs.runtime.interpret
    channels = min(CHANNELS[wide], max(16, triton.next_power_of_2(width)))

    reaches = scores.new_empty((graphs, rows))
    copies = start.new_empty((graphs, rows, heads, width))
    sources_kernel[(graphs * rows,)](
        start, chosen, copies, reaches, tokens, rows, heads,
        WIDTH=width, CHUNK=chunk(heads * width),
    )  # fmt: skip

    across = triton.cdiv(rows, SOURCES)
    subtile = min(SUBTILE, max(BLOCK // 4, 1))
    blocks, subtiles = triton.cdiv(tokens, BLOCK), BLOCK // subtile
    lengths = scores.new_empty((graphs, tokens))
    highest = scores.new_empty((graphs, rows, blocks))
    maxima = scores.new_empty((graphs, rows, blocks * subtiles))
    graph = Graphs(
        end, copies, reaches, chosen, None if barred is None else barred.contiguous(),
        lengths, maxima, highest,
    )  # fmt: skip
    tile = dict(CLAMPED=clamp, WIDE=wide, WIDTH=width, CHANNELS=channels, SUBTILE=subtile)
    tile |= dict(BLOCK=BLOCK, num_warps=WARPS[wide])
    maxima_kernel[(graphs * blocks * across,)](graph, tokens, rows, heads, SOURCES=SOURCES, **tile)

    best_tiles, best = min(count, blocks), min(count, blocks * subtiles)
    tiles = chosen.new_empty((graphs, rows, best_tiles), dtype=torch.int32)
    picked = tiles.new_empty((graphs, rows, best))
    exact = scores.new_empty((graphs, rows, best * subtile))
    reached = tiles.new_empty((graphs, rows, count))
    weights = scores.new_empty((graphs, rows, count))
    neighbours_kernel[(graphs * rows,)](
        graph, tokens, rows, heads, acting, tiles, picked, exact, reached, weights,
        blocks, best_tiles, best, count,
        SOURCES=ALONE if wide else SOURCES, CHUNK=chunk(count * subtiles), **tile,
    )  # fmt: skip

    signal_kernel[(graphs * triton.cdiv(tokens, SPAN),)](
        reached, weights, scores, refined, strength, tokens, rows * count,
        RULE=rule, ROUNDS=rounds, BITS=rounds.bit_length(),
        SPAN=SPAN, LISTED=LISTED, HITS=HITS, LEVELS=HITS.bit_length() - 1,
    )  # fmt: skip
    return refined


def chunk(length: int) -> int:
    """Return how many of `length` numbers a program handles at a time, one of five sizes."""
    least, most = CHUNKS
    return min(most, max(least, triton.next_power_of_2(length)))
