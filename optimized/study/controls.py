"""Controls: a method without the property to which its paper attributes the effect.

They are settings of the part `control` of a system: `snapkv+graphkv:control.keys=dealt`.
"""

from collections.abc import Callable
from math import floor
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from optimized import HexBlock, HexCache, HexConfig
from optimized.models.scorer import Scores
from optimized.models.systems import HEXES, System
from optimized.study.measurements import Trial
from reference.hex.kcvt import bits_of_both


class Control(NamedTuple):
    """Which properties a system lacks; the defaults change nothing."""

    keys: Literal["own", "dealt", "positions"] = "own"
    """The keys of GraphKV's graph: each token's own, those of other tokens, or a sinusoidal code of
    the position, which is alike for tokens that are near in the text."""
    mask: Literal["expander", "random", "extremes"] = "expander"
    """The values that HEX's static mask keeps: the expander's, as many at random, or as many of the
    largest and smallest in each channel of the keys and each token of the values."""
    budgets: Literal["mean", "waterfill", "entropy", "selectivity", "hybrid"] = "mean"
    """Budgets of a layer's heads: the same, or by a rule of `head_budgets`."""


def applies(system: System, setting: str) -> bool:
    """Return whether a setting of `Control` changes a system."""
    if setting == "keys":
        return system.refinement == "graphkv" and system.store is None
    if setting == "mask":
        return system.store in HEXES
    return system.evicts and system.refinement is None and not system.shares_budget


def control_of(system: System) -> Control:
    """Return the controls of a system."""
    return Control(**system.changes_of("control"))


class ChangedKeys:
    """An implementation whose GraphKV compares other keys than those of the cache."""

    def __init__(self, kv: ModuleType, change: Callable[[Tensor], Tensor]) -> None:
        self.kv, self.change = kv, change

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.kv, name)
        if name not in ("select", "graphkv_select"):
            return function
        return lambda keys, *others, **how: function(self.change(keys), *others, **how)


def with_keys(kv: ModuleType, kind: str, seed: int) -> Any:
    """Return an implementation whose GraphKV compares keys of a kind."""
    change = {"dealt": lambda keys: dealt(keys, seed), "positions": positions}.get(kind)
    return kv if change is None else ChangedKeys(kv, change)


def dealt(keys: Tensor, seed: int) -> Tensor:
    """Return the keys, each at a random other place."""
    order = torch.randperm(keys.shape[-2], generator=torch.Generator().manual_seed(seed))
    return keys[..., order.to(keys.device), :]


def positions(keys: Tensor) -> Tensor:
    """Return a sinusoidal code of each token's position in place of its key."""
    tokens, width = keys.shape[-2:]
    pairs = torch.arange(width - width // 2, device=keys.device)
    slow = 0.25 * 10_000.0 ** (-2 * pairs / width)  # so that far tokens are not alike again
    angles = torch.arange(tokens, device=keys.device)[:, None] * slow
    code = torch.cat([angles.cos(), angles.sin()[:, : width // 2]], 1)
    return code.to(keys.dtype).expand_as(keys)


def kept_by_budgets(scores: Scores, rule: Any, trial: Trial, kv: ModuleType) -> Tensor:
    """Return a mask of the kept entries, layers first, where a rule gives each head its budget."""
    kept = []
    for raw, protected in scores.scored:
        shifted = kv.shift_scores(raw) if bool((raw < 0).any()) else raw
        budgets = kv.head_budgets(shifted, trial.kept_of(raw.shape[-1]), rule, protected)
        kept.append(kv.retain(raw, protected, keep=budgets))
    return torch.stack(kept)


def stored_with_mask(
    held: HexCache, keys: Tensor, values: Tensor, kind: str, seed: int, kv: ModuleType
) -> tuple[tuple[Tensor, Tensor], int]:
    """Return what is restored from HEX with another static mask, and the bytes of its cache.

    Args:
        held: the cache with the expander's mask.
        keys: the keys that it was made of.
        values: their values.
        kind: `"random"` or `"extremes"`. The places of extremes take 16 bits each.
        seed: seed of the random places.
        kv: `reference` or `optimized`.
    """
    if not held.blocks:
        return kv.hex_read(held), kv.stored_bytes(held)
    (block,), config = held.blocks, held.config
    widths = bits_of_both(block.bits)
    span, nbytes, restored = block.dynamic.shape[-1], kv.stored_bytes(held._replace(blocks=())), []
    for row, dynamic in enumerate(block.dynamic):
        both = keys[row, :, :span], values[row, :, :span]
        masks = static_masks(*both, dynamic, kind, config, seed, kv)
        stored = [
            kv.hex_compress(*both, mask, dynamic, bits, config.value_group, config.scales)
            for mask, bits in zip(masks, widths, strict=True)
        ]
        restored.append(
            [kv.hex_reconstruct(*one)[k] for k, one in enumerate(zip(stored, masks, strict=True))]
        )
        nbytes += kv.stored_bytes(joined(*stored))
        if kind == "extremes":
            nbytes += sum(2 * int(mask[~dynamic].sum()) for mask in masks)
    spans = [torch.stack(parts) for parts in zip(*restored, strict=True)]
    rest = held.residual_keys, held.residual_values
    read = [torch.cat(parts, 2) for parts in zip(spans, rest, strict=True)]
    return (read[0], read[1]), nbytes


def joined(for_keys: HexBlock, for_values: HexBlock) -> HexBlock:
    """Return a block with the keys of one block and the values of another."""
    names = [name for name in HexBlock._fields if "value" in name]
    return for_keys._replace(**{name: getattr(for_values, name) for name in names})


def static_masks(
    keys: Tensor,
    values: Tensor,
    dynamic: Tensor,
    kind: str,
    config: HexConfig,
    seed: int,
    kv: ModuleType,
) -> tuple[Tensor, Tensor]:
    """Return the masks of keys and of values over tokens and channels, heads one after another."""
    flat = [x.transpose(0, 1).flatten(1) for x in (keys, values)]
    tokens, channels = flat[0].shape
    if kind == "random":
        drawn = torch.randperm(tokens * channels, generator=torch.Generator().manual_seed(seed))
        count = floor(config.density * tokens * channels)
        mask = (drawn < count).view(tokens, channels).to(keys.device)
        return mask, mask
    masks = [torch.zeros_like(x, dtype=torch.bool) for x in flat]
    coded = [x[~dynamic] for x in flat]
    masks[0][~dynamic] = kv.outlier_mask(coded[0].T.contiguous(), config.density).T
    masks[1][~dynamic] = kv.outlier_mask(coded[1], config.density)
    return masks[0], masks[1]
