"""16-bit scores as bit planes: bit `i` of 32 scores in one word, so that 32 are counted at once.

A thread holds a group of 32 consecutive scores. Score `4 k + b` of a group is bit `8 b + k` of its
planes.
"""

import torch
import triton
import triton.language as tl

GROUP = tl.constexpr(32)
PTX = torch.version.hip is None and not triton.knobs.runtime.interpret


@triton.jit
def apart(x):
    """Return the even and the odd columns of a matrix; vectors if there are two columns."""
    if x.shape[1] == 2:
        return tl.split(x)
    else:
        return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))


@triton.jit
def gathered(a, b, HIGH: tl.constexpr, PTX: tl.constexpr):
    """Return the low or the high bytes of the four 16-bit halves of two words, in order."""
    if PTX:
        if HIGH:
            return tl.inline_asm_elementwise(
                "prmt.b32 $0, $1, $2, 0x7531;", "=r,r,r", [a, b], tl.uint32, True, 1
            )
        else:
            return tl.inline_asm_elementwise(
                "prmt.b32 $0, $1, $2, 0x6420;", "=r,r,r", [a, b], tl.uint32, True, 1
            )
    elif HIGH:
        return ((a >> 8) & 0xFF) | ((a >> 16) & 0xFF00) | ((b << 8) & 0xFF0000) | (b & 0xFF000000)
    else:
        return (a & 0xFF) | ((a >> 8) & 0xFF00) | ((b << 16) & 0xFF0000) | ((b << 8) & 0xFF000000)


@triton.jit
def exchanged(x, BY: tl.constexpr, MASK: tl.constexpr):
    """Return pairs of words after exchanging the first's high fields with the second's low ones."""
    a, b = tl.split(x)
    return tl.join((a & MASK) | ((b & MASK) << BY), ((a >> BY) & MASK) | (b & (0xFFFFFFFF ^ MASK)))


@triton.jit
def first(count):
    """Return the plane that marks the first `count` scores of a group, up to 31."""
    k = count >> 2
    every = ((1 << k) - 1) * 0x01010101
    return every | ((((1 << ((count & 3) * 8)) - 1) & 0x01010101) << k)


@triton.jit
def ones(x, PTX: tl.constexpr):
    """Return the number of set bits of each word."""
    if PTX:
        return tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [x], tl.uint32, True, 1)
    x -= (x >> 1) & 0x55555555
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101) >> 24


@triton.jit
def words(scores, t, left, part: tl.constexpr, EVEN: tl.constexpr, PTX: tl.constexpr):
    """Return the bytes of eight scores of every group, as `[threads, fours, low or high]`."""
    at = t[:, None] * 32 + (part * 8 + tl.arange(0, 8))[None, :]
    x = tl.load(scores + at) if EVEN else tl.load(scores + at, mask=at < left, other=0)
    one, other = apart(x.to(tl.uint16, bitcast=True).to(tl.uint32))
    a, b = apart(one | (other << 16))
    return tl.join(gathered(a, b, False, PTX), gathered(a, b, True, PTX))


@triton.jit
def split_columns(x, COUNT: tl.constexpr):
    """Return the columns of a matrix."""
    if COUNT == 2:
        return tl.split(x)
    else:
        even, odd = apart(x)
        one, other = split_columns(even, COUNT // 2), split_columns(odd, COUNT // 2)
        found = ()
        for i in tl.static_range(COUNT // 2):
            found += (one[i], other[i])
        return found


@triton.jit
def planes(scores, t, left, EVEN: tl.constexpr, PTX: tl.constexpr):
    """Return the planes of keys, the lowest bit first, that order and tie as scores do.

    `scores` points to group 0; `left` scores follow from there.
    """
    one = tl.join(words(scores, t, left, 0, EVEN, PTX), words(scores, t, left, 1, EVEN, PTX))
    two = tl.join(words(scores, t, left, 2, EVEN, PTX), words(scores, t, left, 3, EVEN, PTX))
    # a bit transposition: each exchange swaps one of the axes of words for one of bits
    x = exchanged(tl.join(one, two), 4, 0x0F0F0F0F)
    x = exchanged(tl.permute(x, (0, 1, 2, 4, 3)), 2, 0x33333333)
    x = exchanged(tl.permute(x, (0, 2, 3, 4, 1)), 1, 0x55555555)
    p = split_columns(tl.reshape(x, (t.shape[0], 16)), 16)
    # minus zero is zero: it is negative only where another bit is set
    some = p[0]
    for i in tl.static_range(1, 15):
        some |= p[i]
    below = p[15] & some
    found = ()
    for i in tl.static_range(15):
        found += (p[i] ^ below,)
    found += (below ^ 0xFFFFFFFF,)
    return found


@triton.jit
def leading(x, count, PTX: tl.constexpr):
    """Return the first `count` of the marked scores of a group that has more of them."""
    before = count * 0
    for step in tl.static_range(5):
        longer = before + (16 >> step)
        before = tl.where(ones(x & first(longer), PTX) <= count, longer, before)
    return x & first(before)


@triton.jit
def present(left):
    """Return the plane that marks the first `left` scores of a group; all if 32 or more."""
    left = tl.minimum(tl.maximum(left, 0), 32).to(tl.uint32)
    return tl.where(left == 32, 0xFFFFFFFF, first(left & 31))


@triton.jit
def equals(plane, prefix, i: tl.constexpr):
    """Return the plane of keys whose bit equals bit `i` of `prefix`."""
    return plane ^ (((prefix >> i) & 1).to(tl.uint32) - 1)


@triton.jit
def marks(flags, t, left, EVEN: tl.constexpr):
    """Return the plane of bytes that are 0 or 1."""
    found = tl.zeros([t.shape[0]], tl.uint32)
    for part in tl.static_range(2):
        at = t[:, None] * 32 + (part * 16 + tl.arange(0, 16))[None, :]
        x = tl.load(flags + at) if EVEN else tl.load(flags + at, mask=at < left, other=0)
        one, other = apart(x.to(tl.uint32))
        a, b = apart(one)
        c, d = apart(other)
        # four bytes of a word, in the order of memory
        word = a | (c << 8) | (b << 16) | (d << 24)
        k = part * 4 + tl.arange(0, 4)
        found |= tl.sum(word << k.to(tl.uint32)[None, :], 1)
    return found


@triton.jit
def store_marks(flags, plane, t, left, EVEN: tl.constexpr):
    """Write a plane as bytes that are 0 or 1."""
    for part in tl.static_range(2):
        i = part * 16 + tl.arange(0, 16)
        at = t[:, None] * 32 + i[None, :]
        x = (plane[:, None] >> (i % 4 * 8 + i // 4).to(tl.uint32)[None, :]) & 1
        if EVEN:
            tl.store(flags + at, x.to(tl.uint8))
        else:
            tl.store(flags + at, x.to(tl.uint8), mask=at < left)


@triton.jit
def join_columns(x, COUNT: tl.constexpr):
    """Return the matrix of some columns."""
    if COUNT == 2:
        return tl.join(x[0], x[1])
    else:
        even, odd = (), ()
        for i in tl.static_range(COUNT // 2):
            even += (x[2 * i],)
            odd += (x[2 * i + 1],)
        both = tl.join(join_columns(even, COUNT // 2), join_columns(odd, COUNT // 2))
        return tl.reshape(both, (both.shape[0], COUNT))


@triton.jit
def digit_histogram(p, match, BITS: tl.constexpr, PTX: tl.constexpr):
    """Return the histogram of the matching keys over some planes, two counts in a word."""
    bins = (match,)
    for step in tl.static_range(BITS):
        plane = p[BITS - 1 - step]
        other = plane ^ 0xFFFFFFFF
        more = ()
        for i in tl.static_range(2**step):
            more += (bins[i] & other, bins[i] & plane)
        bins = more
    one, other = apart(ones(join_columns(bins, 2**BITS), PTX))
    return one | (other << 16)
