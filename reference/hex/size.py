"""What a compressed cache weighs, part by part."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch

from reference.contract.enforce import requires
from reference.contract.types import OneOf, Positive, Whole
from reference.hex.cache import HexCache, carried_tokens, compressible_length
from reference.hex.kcvt import bits_of_both, joint_bits, scale_dtype
from reference.hex.packing import word_count
from reference.hex.presets import HexConfig, hex_preset

PROMPTS = (900, 1304, 1021)
"""Lengths of the prompts behind the sizes printed for KIVI and GEAR."""


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

CacheDtype = Annotated[torch.dtype, OneOf(FLOATS)]
"""Type of the numbers of a cache."""


class HexBytes(NamedTuple):
    """Bytes by part.

    Source:
        HEX-4.2a.
    """

    codes: int
    scales: int
    expander: int
    tokens: int
    marks: int
    residual: int
    mass: int
    originals: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self)


class PaperSize(NamedTuple):
    """One printed cache size beside ours, in percent of fp16.

    Source:
        HEX-4.2a.
    """

    table: str
    method: str
    paper: float
    ours: float


def hex_bytes(cache: HexCache) -> HexBytes:
    r"""Count the bytes of every tensor a cache holds.

    $$\mathrm{bytes} = \sum_{\text{tensors stored}} \text{elements} \times \text{element size}$$

    Args:
        cache: the cache.

    Returns:
        Bytes by part: code planes; steps and minima; kept entries of the expander mask outside
        kept tokens; kept tokens; the mark of each token; the residual buffer; attention mass;
        originals, in oracle mode. Their sum, `total`, is what `stored_bytes` finds.

    Source:
        HEX-4.2a. Ours: the paper prints sizes and does not say what they count (E-H20).

    Reading:
        E-H20: the paper does not say what its sizes count; this counts all that is stored. The
        static mask is not: its seed gives it back, and all layers share it.
    """
    codes = scales = expander = tokens = marks = 0
    for block in cache.blocks:
        codes += block.key_words.nbytes + block.value_words.nbytes
        stored = block.key_steps, block.key_minima, block.value_steps, block.value_minima
        scales += sum(scale.nbytes for scale in stored)
        channels = block.key_steps.shape[-2:].numel()
        for kept in (block.kept_keys, block.kept_values):
            rows = int(block.dynamic.sum()) * channels * kept.element_size()
            tokens += rows
            expander += kept.nbytes - rows
        marks += block.dynamic.nbytes
    return HexBytes(
        codes,
        scales,
        expander,
        tokens,
        marks,
        cache.residual_keys.nbytes + cache.residual_values.nbytes,
        cache.residual_mass.nbytes + cache.mass.nbytes,
        cache.original_keys.nbytes + cache.original_values.nbytes,
    )


def hex_size(
    config: HexConfig,
    tokens: Whole,
    kv_heads: Positive = 8,
    width: Positive = 128,
    dtype: CacheDtype = torch.float16,
) -> HexBytes:
    r"""Say beforehand what a compressed prompt weighs, if no heavy hitter is a recent token.

    $$8 d \Bigl\lceil \frac{b n}{32} \Bigr\rceil + 2 e_s\, (d + g n)
      + 2 e\, \rho d\, (n - k - r) + 2 e\, d\, (k + r) + n + 2 e\, d R + e_m\, (R + m)
      + 2 e\, d\, o$$

    Code planes, scales, expander, kept tokens, marks, residual buffer, mass, originals. A number
    has $e$ bytes, a scale $e_s$, a sum of attention $e_m$; a token has $g$ value groups, 1 or one
    for each kv head; $m$ is $n$ but in append mode, $o$ is $n$ in oracle mode, else both are 0. A
    prompt shorter than a block has no scales. Half of the code planes are of values, which may have
    bits of their own.

    Args:
        config: settings, see `HexConfig`.
        tokens: length $L = n + R$ of the prompt.
        kv_heads: number of kv heads.
        width: channels of a head.
        dtype: type of the cache.

    Returns:
        Bytes by part, for one sequence and one layer: what `hex_bytes` counts, or more where a
        heavy hitter is a recent token too.

    Source:
        HEX-4.2a. Ours: the paper prints sizes and does not say what they count (E-H20).

    Reading:
        E-H20.
    """
    span = compressible_length(config, tokens)
    channels, element, scale = kv_heads * width, dtype.itemsize, scale_dtype(dtype, config.scales)
    heavy, recent = Fraction(str(config.heavy)) * span // 1, config.recent - carried_tokens(config)
    kept = min(span, heavy + min(span, recent))
    per_token = round(Fraction(str(config.density)) * channels)
    value_groups = span * (kv_heads if config.value_group == "head" else 1)
    mass_element = 8 if dtype == torch.float64 else 4
    both = bits_of_both(joint_bits(config.bits, config.value_bits))
    remembered = 0 if config.mode == "append" else span
    return HexBytes(
        codes=4 * channels * sum(word_count(span, bits) for bits in both),
        scales=2 * scale.itemsize * ((channels if span else 0) + value_groups),
        expander=2 * element * per_token * (span - kept),
        tokens=2 * element * channels * kept,
        marks=span,
        residual=2 * element * channels * (tokens - span),
        mass=mass_element * (tokens - span + remembered),
        originals=2 * element * channels * (span if config.mode == "oracle" else 0),
    )


def check_some_prompts(prompts: Sequence[int]) -> None:
    """Refuse no prompts at all."""
    if not prompts:
        raise ValueError(f"prompts must have at least 1 length, got {prompts!r}")


@requires(check_some_prompts)
def paper_size(
    prompts: Sequence[Positive] = PROMPTS, kv_heads: Positive = 8, width: Positive = 128
) -> tuple[PaperSize, ...]:
    r"""Compare the cache sizes of Tables 1 to 3 with what our layout stores.

    $$\frac{1}{m} \sum_{i=1}^{m} 100 \cdot \frac{\mathrm{bytes}(L_i)}{2 \cdot 2 \cdot d\, L_i}$$

    Args:
        prompts: lengths $L_i$ of the prompts, at least 1; at least one of them. By default 900,
            1304 and 1021.
        kv_heads: number of kv heads.
        width: channels of a head.

    Returns:
        A row for each size the paper prints of its own method, in percent of fp16.

    Source:
        HEX-4.2a. In words (Table 1): "the average cache size relative to FP16". The prompts and
        what is counted are ours (E-H20).

    Reading:
        E-H20, E-H14: neither the prompts nor what is counted are stated, so that the prompts are
        those behind the sizes of KIVI and GEAR; the sizes do not tell how values are grouped, and
        ours has one group a token.
    """
    rows = []
    for table, method, paper in PRINTED:
        weigh = partial(hex_size, hex_preset(method), kv_heads=kv_heads, width=width)
        ours = mean_percent(weigh, prompts, kv_heads * width)
        rows.append(PaperSize(table, method, paper, ours))
    return tuple(rows)


def mean_percent(weigh: Callable[[int], Any], prompts: Sequence[int], channels: int) -> float:
    """Return the mean of what prompts weigh, in percent of fp16."""
    shares = [100 * weigh(tokens).total / (2 * 2 * channels * tokens) for tokens in prompts]
    return sum(shares) / len(shares)


PRINTED = (
    ("Table 1", "KCVT-3", 20.75),
    ("Table 1", "HEX-3", 25.35),
    ("Table 1", "HEX-4", 31.50),
    ("Table 2", "KCVT-3", 20.75),
    ("Table 2", "HEX-3", 25.35),
    ("Table 2", "HEX-4", 31.50),
    ("Table 3", "LongBench-3", 26.45),
    ("Table 3", "LongBench-4", 32.70),
    ("Table 3", "LongBench-4-full", 32.70),
)
