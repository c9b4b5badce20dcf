"""A span of the cache, compressed: some entries in full precision, the rest in codes."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import divides, keys_have_heads_and_channels, same_dtype
from reference.contract.types import Bits, BothBits, Finite, Positive, Scales, ValueGroup
from reference.hex.kcvt import (
    bits_of_both,
    code,
    dequantise,
    group_values,
    transposed,
    ungroup_values,
)
from reference.hex.packing import pack_bits, unpack_bits
from reference.precision import widest


class HexBlock(NamedTuple):
    """What is stored of a span; the static mask is not, since its seed gives it back.

    Source:
        HEX-3.5a.
    """

    bits: BothBits
    key_words: Int32[Tensor, "*batch kv_heads width words"]
    key_steps: Float[Tensor, "*batch kv_heads width"]
    key_minima: Float[Tensor, "*batch kv_heads width"]
    value_words: Int32[Tensor, "*batch kv_heads width value_words"]
    value_steps: Float[Tensor, "*batch tokens"] | Float[Tensor, "*batch kv_heads tokens"]
    value_minima: Float[Tensor, "*batch tokens"] | Float[Tensor, "*batch kv_heads tokens"]
    kept_keys: Float[Tensor, " entries"]
    kept_values: Float[Tensor, " entries"]
    dynamic: Bool[Tensor, "*batch tokens"]


def divided(channels: int, kv_heads: int) -> None:
    """Refuse heads that cannot share the channels."""
    divides("kv_heads", kv_heads, "channels", channels)


def joined(expander: Tensor, tokens: int, kv_heads: int, width: int) -> None:
    """Refuse a static mask of other channels than those of all heads together."""
    checks.shaped("expander", expander, (tokens, kv_heads * width))


def filling(block: HexBlock, expander: Tensor) -> None:
    """Refuse a static mask that keeps another number of entries than are stored."""
    if not may_read_values(expander):
        return
    stored, channels = block.kept_keys.numel(), expander.shape[1]
    count = int(torch.where(block.dynamic, channels, expander.sum(1)).sum())
    if count != stored:
        raise ValueError(f"expander must keep the {stored} entries stored, got {count}")


@requires(divided)
def hex_mask(
    expander: Bool[Tensor, "tokens channels"],
    dynamic: Bool[Tensor, "*batch tokens"],
    kv_heads: Positive,
) -> Bool[Tensor, "*batch kv_heads tokens width"]:
    r"""Join the static and the dynamic mask: what either marks is kept in full precision.

    $$\mathrm{Mask}_{t,c} = \mathrm{Mask}_{\exp}(t, c) \vee \mathrm{Mask}_{H_2O}(t)$$

    Args:
        expander: the static mask over tokens and channels, heads one after the other.
        dynamic: the tokens that `h2o_mask` marks.
        kv_heads: number of heads that share the channels.

    Returns:
        The joint mask in the layout of the cache, a copy.

    Source:
        HEX-3.5a. In words (§3.5): "The masks $Mask_{\text{exp}}$ and $Mask_{H_2O}$ are combined
        using a logical OR."
    """
    width = expander.shape[1] // kv_heads
    kept = dynamic.new_zeros(*dynamic.shape[:-1], kv_heads, dynamic.shape[-1], width)
    for head in range(kv_heads):
        static = expander[:, head * width : (head + 1) * width]
        kept[..., head, :, :] = static | dynamic[..., None]
    return kept


@requires(keys_have_heads_and_channels, same_dtype, joined)
def hex_compress(
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    expander: Bool[Tensor, "tokens channels"],
    dynamic: Bool[Tensor, "*batch tokens"],
    bits: Bits = 3,
    value_group: ValueGroup = "token",
    scales: Scales = None,
) -> HexBlock:
    r"""Compress a span: keep what the joint mask marks, quantise the remaining entries.

    $$\mathcal{C} : (K, V) \mapsto (\widehat K, \widehat V), \qquad
      \widehat X_{t,c} = \begin{cases} X_{t,c} & \mathrm{Mask}_{t,c} = 1 \\
      \tilde X_{t,c} & \text{otherwise} \end{cases}$$

    Args:
        keys: keys $K$.
        values: values $V$.
        expander: the static mask over tokens and channels, heads one after the other.
        dynamic: the tokens that `h2o_mask` marks.
        bits: code width $b$.
        value_group: `"token"` or `"head"`, as in `kcvt`.
        scales: precision of the stored steps and minima, as in `quantise`.

    Returns:
        The stored parts. Nothing in them shares memory with the input.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-3.1c, HEX-3.5a. In words (§3.5): "Entries indicated by the combined mask are stored in
        full precision, while all remaining entries are quantized using coarse-grained KCVT with
        asymmetric min-max scaling." $\mathcal{C}$ is that of §3.1.

    Reading:
        E-H13, E-H24, E-H25: statistics over the remaining entries; the code planes are dense, the
        codes of a channel in token order, with code 0 under kept entries.
    """
    kept = hex_mask(expander, dynamic, keys.shape[-3])
    by_channel = code("keys", transposed(keys), bits, transposed(kept), scales)
    by_token = code(
        "values", group_values(values, value_group), bits, group_values(kept, value_group), scales
    )
    value_codes = transposed(ungroup_values(by_token.codes, value_group, values.shape[-1]))
    return HexBlock(
        bits,
        pack_bits(by_channel.codes, bits),
        by_channel.steps,
        by_channel.minima,
        pack_bits(value_codes, bits),
        by_token.steps,
        by_token.minima,
        keys[kept],
        values[kept],
        dynamic.clone(),
    )


@requires(joined, filling)
def hex_reconstruct(
    block: HexBlock, expander: Bool[Tensor, "tokens channels"]
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    r"""Restore keys and values from what `hex_compress` stored.

    $$\widehat X_{t,c} = \begin{cases} X_{t,c} & \mathrm{Mask}_{t,c} = 1 \\
      c_{t,c}\, \Delta_g + \min_g X & \text{otherwise} \end{cases}$$

    Args:
        block: the stored parts.
        expander: the static mask the span was compressed with.

    Returns:
        The keys $\widehat K$ and values $\widehat V$, rounded to the type of the kept entries.

    Source:
        HEX-3.1c, HEX-3.5a. In words (§3.5): "Entries indicated by the combined mask are stored in
        full precision, while all remaining entries are quantized". The step $\Delta_g$ is that of
        `quantise` (E-H1).

    Reading:
        E-H73: attention reads them before they are rounded.
    """
    keys, values = restored(block, expander)
    return keys.to(block.kept_keys.dtype), values.to(block.kept_values.dtype)


def restored(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys and values of a block in float32, or float64: nothing is rounded to half."""
    kv_heads, width = block.key_steps.shape[-2:]
    tokens = block.dynamic.shape[-1]
    kept = hex_mask(expander, block.dynamic, kv_heads)
    value_group = "head" if block.value_steps.ndim == block.key_steps.ndim else "token"
    key_bits, value_bits = bits_of_both(block.bits)
    key_codes = unpack_bits(block.key_words, key_bits, tokens)
    by_channel = dequantise(key_codes, block.key_steps, block.key_minima)
    value_codes = transposed(unpack_bits(block.value_words, value_bits, tokens))
    rows = group_values(value_codes, value_group)
    by_token = ungroup_values(
        dequantise(rows, block.value_steps, block.value_minima), value_group, width
    )
    keys = transposed(by_channel).to(widest(block.key_steps, block.kept_keys))
    values = by_token.to(widest(block.value_steps, block.kept_values))
    keys[kept], values[kept] = block.kept_keys.to(keys.dtype), block.kept_values.to(values.dtype)
    return keys, values
