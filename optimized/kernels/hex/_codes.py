"""Products with the codes of a tile, as they lie in `optimized.hex_packed_layout`.

The steps of the keys scale the queries, and their minima add one number per column. The steps and
minima of the values scale the weights. Codes become numbers of half precision by their bits alone;
queries and weights are sums of two numbers of half precision.
"""

import triton
import triton.language as tl

from optimized.kernels._numerics import widened

ASKED = tl.constexpr(14 << 23)
"""An exponent of 14 in the bits of a float: a query's largest product is scaled to about 2^14."""


@triton.jit
def halves(words, MASK: tl.constexpr, ONE: tl.constexpr):
    """Return the masked codes of the low and the high half of words, joined along the last axis.

    In half precision, the bits of 1024 with a code times ONE as low bits are the number 1024 plus
    the code times ONE.
    """
    words = (words & MASK) | 0x64006400
    low = (words & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    high = ((words >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    both = tl.join(low, high)
    return tl.reshape(both, (both.shape[0], 2 * both.shape[1])) * (1.0 / ONE) - 1024.0 / ONE


@triton.jit
def field(words, i: tl.constexpr, BITS: tl.constexpr):
    """Return the i-th codes of each half.

    A number of half precision has ten bits of mantissa. Codes in higher bits are shifted into them,
    as many at once as fit.
    """
    FIT: tl.constexpr = 10 // BITS
    ONE: tl.constexpr = 2 ** (BITS * (i % FIT))
    ONES: tl.constexpr = (2**BITS - 1) * 0x00010001
    return halves(words >> (BITS * (i // FIT * FIT)), ONES * ONE, ONE)


@triton.jit
def load_planes(pointers, BITS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the words at some places of a tile, from each of its planes."""
    if BITS == 3:
        return tl.load(pointers), tl.load(pointers + 3 * WIDTH), tl.load(pointers + 6 * WIDTH)
    else:
        return (tl.load(pointers),)


@triton.jit
def codes_of(planes, u: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of group u; of three bits, the last one lies in spare bits of the planes."""
    if BITS != 3:
        return field(planes[0], u, BITS)
    elif u < 15:
        return field(planes[u // 5], u % 5, 3)
    else:
        words = (planes[0] >> 15 & 0x00010001) | (planes[1] >> 14 & 0x00020002)
        return halves(words | (planes[2] >> 13 & 0x00040004), 0x00070007, 1)


@triton.jit
def tokens_of(part: tl.constexpr, BITS: tl.constexpr):
    """Return the tokens of a part of a tile; of three bits, two parts share words."""
    if BITS == 3:
        return part % 2 * 48 + part // 2 * 16 + tl.arange(0, 16)
    else:
        return part * 32 + tl.arange(0, 32)


@triton.jit
def spread(x, C: tl.constexpr):
    """Return numbers with columns of zeros appended, up to C columns."""
    if x.shape[-1] < C:
        both = tl.join(x, tl.zeros_like(x))
        if len(x.shape) == 1:
            both = tl.reshape(tl.permute(both, (1, 0)), (2 * x.shape[0],))
        else:
            both = tl.reshape(tl.permute(both, (0, 2, 1)), (x.shape[0], 2 * x.shape[1]))
        return spread(both, C)
    else:
        return x


@triton.jit
def split_float(x):
    """Return numbers of float32 as a sum of two of half precision."""
    near = x.to(tl.float16)
    return near, (x - near.to(tl.float32)).to(tl.float16)


@triton.jit
def scaled_queries(
    queries, columns, steps, minima, ACROSS: tl.constexpr, DOWN: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Return queries times steps, as pairs of halves, their scale, and what the minima add.

    Each column is scaled by a power of two, which is exact. The scale is an exponent in the bits of
    a float. Columns are ACROSS apart in memory and channels DOWN. Those from `columns` on are 0.
    """
    c, h = tl.arange(0, GROUP), tl.arange(0, HELD)
    real = (h < columns)[None, :]
    below, most = tl.zeros([GROUP, HELD], tl.float32), tl.zeros([GROUP, HELD], tl.float32)
    scaled = ()
    for i in tl.static_range(WIDTH // GROUP):
        channel = i * GROUP + c
        pointers = queries + h[None, :] * ACROSS + channel[:, None] * DOWN
        q = widened(tl.load(pointers, mask=real, other=0.0))
        below += q * widened(tl.load(minima + channel))[:, None]
        q *= widened(tl.load(steps + channel))[:, None]
        most = tl.maximum(most, tl.abs(q))
        scaled += (q,)
    most = tl.max(most, 0)
    top = tl.where(most > 0, most, 1.0).to(tl.int32, bitcast=True) & 0x7F800000
    fit = (0x7F000000 - top + ASKED).to(tl.float32, bitcast=True)
    pairs = ()
    for i in tl.static_range(WIDTH // GROUP):
        near, rest = split_float(scaled[i] * fit[None, :])
        pairs += (spread(near, C), spread(rest, C))
    return pairs, spread(top, C), spread(tl.sum(below, 0), C)


@triton.jit
def tile_logits(
    words, pairs, bias, top, BITS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
    C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Return the products of scaled queries with the keys of a tile, part by part."""
    ROWS: tl.constexpr = 16 if BITS == 3 else 32
    EVERY: tl.constexpr = 2 if BITS == 3 else 1  # parts that share words
    GROUPS: tl.constexpr = WIDTH // GROUP
    g, t, j = tl.arange(0, C), tl.arange(0, ROWS), tl.arange(0, GROUP // 2)
    found = ()
    for part in tl.static_range(96 // ROWS):
        if part % EVERY == 0:
            row = part // EVERY * ROWS + t
            planes = load_planes(words + row[:, None] * (GROUP // 2) + j[None, :], BITS, WIDTH)
        if bias is not None:
            # the accumulator starts from the bias, so that it has the layout of products
            pointers = bias + tokens_of(part, BITS)[:, None] * HELD + g[None, :]
            x = tl.load(pointers, mask=(g < HELD)[None, :], other=0.0)
            x *= (0x7F000000 - top + ASKED).to(tl.float32, bitcast=True)[None, :]
        else:
            x = tl.zeros([ROWS, C], tl.float32)
        for i in tl.static_range(GROUPS):
            codes = codes_of(planes, part % EVERY * GROUPS + i, BITS)
            x = tl.dot(codes, pairs[2 * i + 1], tl.dot(codes, pairs[2 * i], x))
        found += (x,)
    return found


@triton.jit
def add_values_of_codes(
    o, minima, fade, weights, words, steps, lows, inverse, BITS: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Return the sums of codes and of minima of values, faded, with those of a tile added."""
    ROWS: tl.constexpr = 16 if BITS == 3 else 32
    EVERY: tl.constexpr = 2 if BITS == 3 else 1
    GROUPS: tl.constexpr = WIDTH // GROUP
    channel, r = tl.arange(0, GROUP), tl.arange(0, ROWS // 2)
    faded = ()
    for i in tl.static_range(GROUPS):
        faded += (o[i] * fade[None, :],)
    o = faded
    minima *= fade
    for part in tl.static_range(96 // ROWS):
        if part % EVERY == 0:
            row = part // EVERY * (ROWS // 2) + r
            planes = load_planes(words + row[None, :] * GROUP + channel[:, None], BITS, WIDTH)
        token = tokens_of(part, BITS)
        step, low = widened(tl.load(steps + token)), widened(tl.load(lows + token))
        minima += tl.sum(weights[part] * low[:, None], 0)
        near, rest = split_float(weights[part] * (step * inverse)[:, None])
        mixed = ()
        for i in tl.static_range(GROUPS):
            codes = codes_of(planes, part % EVERY * GROUPS + i, BITS)
            mixed += (tl.dot(codes, rest, tl.dot(codes, near, o[i])),)
        o = mixed
    return o, minima
