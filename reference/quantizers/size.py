"""What the quantised caches weigh, part by part."""

from typing import NamedTuple

import torch

from reference.contract.enforce import requires
from reference.contract.types import Bits, Positive, Ratio, Whole
from reference.hex.kcvt import scale_dtype
from reference.hex.packing import word_count
from reference.hex.size import CacheDtype
from reference.quantizers.gear import place_dtype
from reference.quantizers.gear_cache import GearCache
from reference.quantizers.kivi import KiviCache, dividing
from reference.quantizers.outliers import outliers_per_end


class QuantizerBytes(NamedTuple):
    """Bytes by part.

    Source:
        HEX-KIVI, HEX-GEAR.
    """

    codes: int
    scales: int
    outliers: int
    factors: int
    residual: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self)


def quantizer_bytes(cache: KiviCache | GearCache) -> QuantizerBytes:
    r"""Count the bytes of every tensor a cache holds.

    $$\mathrm{bytes} = \sum_{\text{tensors stored}} \text{elements} \times \text{element size}$$

    Args:
        cache: the cache.

    Returns:
        Bytes by part: code planes; steps and minima; outliers and their places; factors of the
        low-rank corrections; tokens in full precision. Their sum, `total`, is what `stored_bytes`
        finds.

    Source:
        HEX-KIVI, HEX-GEAR. Ours: the paper prints sizes and does not say what they count (E-H20,
        E-H44).

    Reading:
        E-H20, E-H44: everything stored is counted, the places of outliers included.
    """
    residual = cache.residual_keys.nbytes + cache.residual_values.nbytes
    if isinstance(cache, KiviCache):
        codes = cache.key_words.nbytes + cache.value_words.nbytes
        stored = cache.key_steps, cache.key_minima, cache.value_steps, cache.value_minima
        return QuantizerBytes(codes, sum(scale.nbytes for scale in stored), 0, 0, residual)
    codes = scales = outliers = factors = 0
    for block in (*cache.key_blocks, *cache.value_blocks):
        codes += block.words.nbytes
        scales += block.steps.nbytes + block.minima.nbytes
        outliers += block.outliers.nbytes + block.places.nbytes
        factors += block.left.nbytes + block.right.nbytes
    return QuantizerBytes(codes, scales, outliers, factors, residual)


@requires(dividing)
def kivi_size(
    tokens: Whole,
    bits: Bits = 2,
    group: Positive = 32,
    residual: Positive = 32,
    kv_heads: Positive = 8,
    width: Positive = 128,
    dtype: CacheDtype = torch.float16,
    value_bits: Bits | None = None,
) -> QuantizerBytes:
    r"""Say beforehand what a prompt weighs in KIVI's cache.

    $$4 d \frac{n_K}{R} \Bigl\lceil \frac{bR}{32} \Bigr\rceil
      + 4 H n_V \Bigl\lceil \frac{b' w}{32} \Bigr\rceil
      + \frac{2 e_s\, d}{g} (n_K + n_V) + e\, d\, (2n - n_K - n_V)$$

    Code planes, scales and tokens in full precision, with $d = H w$ channels. A number has $e$
    bytes, a scale $e_s$.

    Args:
        tokens: length $n$ of the prompt.
        bits: code width $b$.
        group: members $g$ of a group, a divisor of the width.
        residual: tokens $R$ in full precision, a multiple of `group`.
        kv_heads: number of kv heads $H$.
        width: channels $w$ of a head.
        dtype: type of the cache.
        value_bits: code width $b'$ of values, by default $b$.

    Returns:
        Bytes by part, for one sequence and one layer: what `quantizer_bytes` counts.

    Source:
        HEX-KIVI. Ours: the paper prints sizes and does not say what they count (E-H20).
    """
    keys, values = tokens // residual * residual, max(0, tokens - residual)
    channels, element, scale = kv_heads * width, dtype.itemsize, scale_dtype(dtype, None)
    key_codes = 4 * channels * (keys // residual) * word_count(residual, bits)
    value_codes = 4 * kv_heads * values * word_count(width, value_bits or bits)
    return QuantizerBytes(
        codes=key_codes + value_codes,
        scales=2 * scale.itemsize * channels // group * (keys + values),
        outliers=0,
        factors=0,
        residual=element * channels * (2 * tokens - keys - values),
    )


def gear_size(
    tokens: Whole,
    bits: Bits = 4,
    outliers: Ratio = 0.02,
    rank: Whole = 4,
    kv_heads: Positive = 8,
    width: Positive = 128,
    dtype: CacheDtype = torch.float16,
    value_bits: Bits | None = None,
) -> QuantizerBytes:
    r"""Say beforehand what a prompt weighs in GEAR's cache.

    $$4 d \Bigl\lceil \frac{bn}{32} \Bigr\rceil + 4 n \Bigl\lceil \frac{b'd}{32} \Bigr\rceil
      + 2 e_s\, (d + n) + 2 (e + 2) \Bigl(d \Bigl\lfloor \frac{sn}{2} \Bigr\rfloor
      + n \Bigl\lfloor \frac{sd}{2} \Bigr\rfloor\Bigr) + 2 e H r\, (n + w)$$

    Code planes, scales, outliers with places of two bytes, and factors, with $d = H w$ channels. A
    number has $e$ bytes, a scale $e_s$. A prompt without tokens has no scales.

    Args:
        tokens: length $n$ of the prompt.
        bits: code width $b$.
        outliers: share $s$ of each row that is stored exactly.
        rank: rank $r$ of the corrections; no more than tokens or channels count.
        kv_heads: number of kv heads $H$.
        width: channels $w$ of a head.
        dtype: type of the cache.
        value_bits: code width $b'$ of values, by default $b$.

    Returns:
        Bytes by part, for one sequence and one layer: what `quantizer_bytes` counts. A row of
        more than 32 768 members needs places of four bytes.

    Source:
        HEX-GEAR. Ours: the paper prints sizes and does not say what they count (E-H20, E-H44).

    Reading:
        E-H44.
    """
    channels, element, scale = kv_heads * width, dtype.itemsize, scale_dtype(dtype, None)
    columns = min(rank, tokens, width)
    # a channel's row has a member a token, a token's row one a channel; no token, no block
    both = (channels, tokens, bits), (tokens, channels, value_bits or bits)
    rows = both if tokens else ()
    apart = 0
    for count, members, _ in rows:
        bytes_of_outlier = element + place_dtype(members).itemsize
        apart += 2 * bytes_of_outlier * count * outliers_per_end(members, outliers)
    return QuantizerBytes(
        codes=sum(4 * count * word_count(members, code) for count, members, code in rows),
        scales=2 * scale.itemsize * sum(count for count, *_ in rows),
        outliers=apart,
        factors=2 * element * kv_heads * columns * (tokens + width),
        residual=0,
    )
