"""Select the entries of a prompt that a system keeps."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from optimized import Scored
from optimized.models.eviction_cache import pool_budgets
from optimized.models.prefill import Prefilled
from optimized.models.scorer import Scores
from optimized.models.systems import System, selection_call


def kept_entries(
    system: System,
    prompt: Prefilled,
    scores: Scores,
    ratio: float | None,
    reading: str,
    kv: ModuleType,
    keep: int | None = None,
    rows: list[int] | None = None,
) -> Tensor:
    """Return a mask of the entries that a system keeps by their scores, layers first.

    Args:
        system: a system that evicts.
        prompt: the result of `prefill`, before any eviction.
        scores: the scores of the prompt.
        ratio: removed share of the entries, where the scorer does not share the budget.
        reading: `"letter"` or `"remedied"`.
        kv: `reference` or `optimized`.
        keep: mean number of entries that a head keeps, in place of a ratio.
        rows: the batch rows to select in, and to return; by default all.
    """
    name, settings = selection_call(system, reading)
    select = getattr(kv, name)
    settings["valid"] = prompt.valid if rows is None or prompt.valid is None else prompt.valid[rows]
    layers = [layer.whole for layer in prompt.cache.whole_layers()]
    heads = layers[0][0].shape[1]
    places = slice(None) if rows is None else rows

    def sets() -> Iterator[tuple[Tensor, Tensor, Scored]]:
        """Yield the selected rows layer by layer: they are copies, so only one layer is held."""
        for index, ((keys, values), scored) in enumerate(zip(layers, scores.scored, strict=True)):
            raw = scored.scores[places]
            if settings["refinement"] is not None and bool((raw < 0).any()):
                raw = kv.shift_scores(raw)
            if index in prompt.queries:
                settings["queries"] = prompt.queries[index][places]
            yield keys[places], values[places], Scored(raw, scored.protected[places])

    pools = {"model": heads * len(layers), "layer": heads}.get(settings.get("scope", "head"), 1)
    budget: dict[str, Any] = dict(ratio=ratio) if keep is None else dict(keep=keep * pools)
    if settings.get("scope") == "model":
        keys, values, scored = zip(*sets(), strict=True)
        every = Scored(*map(torch.stack, zip(*scored, strict=True)))
        if prompt.queries:
            settings["queries"] = torch.stack([x[places] for x in prompt.queries.values()])
        return select(torch.stack(keys), torch.stack(values), every, **settings, **budget)
    kept: list[Tensor] = []
    for index, layer in enumerate(sets()):
        if scores.budgets is not None:
            shared = scores.budgets[index, places]
            budget = dict(keep=pool_budgets(shared, heads, settings.get("scope")))
        kept.append(select(*layer, **settings, **budget))
    return torch.stack(kept)
