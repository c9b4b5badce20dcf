"""Select the entries of a prompt that a system keeps."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from optimized import GraphSettings, Scored, kept_count
from optimized.models.eviction_cache import pool_budgets
from optimized.models.prefill import Prefilled
from optimized.models.scorer import Scores, lengths
from optimized.models.systems import System, selection_call
from optimized.vector.scorers._padding import protected_ends


def kept_entries(
    system: System,
    prompt: Prefilled,
    scores: Scores,
    ratio: float | None,
    reading: str,
    kv: ModuleType,
    keep: int | None = None,
    rows: list[int] | None = None,
) -> tuple[Tensor, dict[int, tuple[int, int]]]:
    """Select the entries that a system keeps by their scores.

    A row with a budget smaller than its number of protected entries keeps exactly these. In a list
    of budgets a pool with such a budget does, and the others keep their own.

    Args:
        system: a system that evicts.
        prompt: the result of `prefill`, before any eviction.
        scores: the scores of the prompt.
        ratio: removed share of the entries, where the scorer does not share the budget.
        reading: `"letter"` or `"remedied"`.
        kv: `reference` or `optimized`.
        keep: mean number of entries that a head keeps, in place of a ratio.
        rows: the batch rows to select in, and to return; by default all.

    Returns:
        A mask, layers first; and for each row with too small a budget, this budget and the number
        of protected entries.
    """
    protected = torch.stack([scored.protected for scored in scores.scored])
    everything = torch.ones_like(prompt.input_ids, dtype=torch.bool)
    valid = everything if prompt.valid is None else prompt.valid
    if system.refinement == "hubkv":
        protected = protected | protected_ends(valid, protected.shape[2], 4, None)
    kept = protected & valid[:, None]
    wanted = range(len(valid)) if rows is None else rows
    short = short_budgets(system, prompt, scores, protected, ratio, keep, wanted)
    listed = scores.budgets is not None and not system.shares_budget
    chosen = [row for row in wanted if listed or row not in short]
    if chosen:
        how = ratio, reading, kv, keep, chosen if len(chosen) < len(valid) else None
        kept[:, chosen] = select_rows(system, prompt, scores, kept.sum(-1), *how)
    return kept[:, wanted] if rows is not None else kept, short


def short_budgets(
    system: System,
    prompt: Prefilled,
    scores: Scores,
    protected: Tensor,
    ratio: float | None,
    keep: int | None,
    rows: Iterable[int],
) -> dict[int, tuple[int, int]]:
    """Return the rows with a pool whose budget is below its number of protected entries.

    Returns:
        The budget and the number of protected entries, by row.
    """
    layers, _, heads, _ = protected.shape
    size = {"head": 1, "layer": heads, "model": heads * layers}[system.scope]
    counts = lengths(prompt).tolist()
    spent = protected.sum(-1).movedim(1, 0).reshape(len(counts), -1, size).sum(-1)
    limits = torch.tensor([[budget_of(n, size, ratio, keep)] for n in counts]).to(spent)
    limits = limits.expand_as(spent)
    if scores.budgets is not None:
        shares = size * scores.budgets.movedim(0, 1).flatten(1)
        shares = shares.repeat_interleave(spent.shape[1] // shares.shape[1], 1)
        over = spent.sum(1, keepdim=True) > limits.sum(1, keepdim=True)
        limits = torch.where(over, limits, shares)
    pools = (spent - limits).argmax(-1).tolist()
    return {
        row: (int(limits[row, pools[row]]), int(spent[row, pools[row]]))
        for row in rows
        if spent[row, pools[row]] > limits[row, pools[row]]
    }


def warn_of_short_budgets(system: System, short: Mapping[int, tuple[int, int]], rows: int) -> None:
    """Warn if some of `rows` rows, or pools in them, keep their protected entries alone."""
    if short:
        budget, most = short[min(short)]
        warnings.warn(
            f"budget {budget} of a {system.scope} is below its number of protected "
            f"entries, {most}: only those are kept there, in {len(short)} of {rows} rows",
            stacklevel=5,
        )


def budget_of(tokens: int, heads: int, ratio: float | None, keep: int | None) -> int:
    """Return how many entries a pool of `heads` heads keeps under a ratio or a budget."""
    if ratio is not None:
        return kept_count(tokens * heads, ratio)
    assert keep is not None
    return min(keep, tokens) * heads


def select_rows(
    system: System,
    prompt: Prefilled,
    scores: Scores,
    least: Tensor,
    ratio: float | None,
    reading: str,
    kv: ModuleType,
    keep: int | None,
    rows: list[int] | None,
) -> Tensor:
    """Return a mask of the entries that rows keep, of heads at `least` so many, layers first."""
    name, settings = selection_call(system, reading)
    select = getattr(kv, name)
    settings["valid"] = prompt.valid if rows is None or prompt.valid is None else prompt.valid[rows]
    layers = {index: layer.whole for index, layer in prompt.layers().items()}
    heads = scores.scored[0].scores.shape[1]
    places = slice(None) if rows is None else rows

    def sets() -> Iterator[tuple[Tensor, Tensor, Scored]]:
        """Yield the selected rows layer by layer: they are copies, so only one layer is held."""
        for (index, (keys, values)), scored in zip(layers.items(), scores.scored, strict=True):
            raw = scored.scores[places]
            if not isinstance(settings["refinement"], GraphSettings):  # no key or value is read
                keys = values = raw.new_zeros(1).expand(*scored.scores.shape, 1)
            if settings["refinement"] is not None and bool((raw < 0).any()):
                raw = kv.shift_scores(raw)
            if index in prompt.queries:
                settings["queries"] = prompt.queries[index][places].to(raw.device)
            keys, values = keys[places].to(raw.device), values[places].to(raw.device)
            yield keys, values, Scored(raw, scored.protected[places])

    pools = {"model": heads * len(layers), "layer": heads}.get(settings.get("scope", "head"), 1)
    budget: dict[str, Any] = dict(ratio=ratio) if keep is None else dict(keep=keep * pools)
    if settings.get("scope") == "model":
        keys, values, scored = zip(*sets(), strict=True)
        every = Scored(*map(torch.stack, zip(*scored, strict=True)))
        if prompt.queries:
            settings["queries"] = torch.stack([prompt.queries[index][places] for index in layers])
        return select(torch.stack(keys), torch.stack(values), every, **settings, **budget)
    kept: list[Tensor] = []
    for index, layer in enumerate(sets()):
        if scores.budgets is not None:
            scope = settings.get("scope")
            own, enough = scores.budgets[index, places], least[index, places]
            if scope != "head":  # without a scope heads keep equally many
                enough = enough.sum(-1) if scope == "layer" else enough.amax(-1)
            budget = dict(keep=pool_budgets(own, heads, scope).maximum(enough))
        kept.append(select(*layer, **settings, **budget))
    return torch.stack(kept)
