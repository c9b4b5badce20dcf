"""Read a prompt and return its compressed cache, in one call."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

import optimized
from optimized import DecodingConfig, GraphSettings, HexConfig, Scored, kept_count
from optimized.models import argument_checks as checks
from optimized.models._typing import PreTrainedModel
from optimized.models.attach import attach
from optimized.models.attention import input_device
from optimized.models.decoding_cache import SCORES, DecodingTransformersCache
from optimized.models.fastkvzip_gates import load_gates
from optimized.models.hex import HexTransformersCache
from optimized.models.layer import AttendingCache, count_full_attention_layers, is_latent
from optimized.models.prefill import Prefilled, prefill, read
from optimized.models.quantized import QUANTIZERS, QuantizedTransformersCache
from optimized.models.quantized_eviction import QuantizedEvictionCache
from optimized.models.scorer import Scope, Scorer, Scores, lengths
from optimized.models.scorers import SCORERS, scorer
from optimized.models.selection import kept_entries
from optimized.models.systems import (
    System,
    hex_settings,
    refinement_name,
    refinement_settings,
    settings_of,
    system_named,
)
from optimized.readings import READINGS
from optimized.vector.scorers._padding import protected_ends
from reference._validation.checks import must_be
from reference._validation.types import Positive
from reference.refinement import Refinement


def compressed(
    model: PreTrainedModel,
    system: str | Scorer | HexConfig = "kvzip+hubkv",
    input_ids: Int[Tensor, "batch tokens"] | None = None,
    attention_mask: Tensor | None = None,
    *,
    ratio: float | Sequence[float] | None = None,
    keep: int | Sequence[int] | None = None,
    interval: int | None = None,
    refined: Refinement | None = None,
    settings: Mapping[str, Any] | None = None,
    chunk: int | None = None,
    reading: str = "letter",
    kv: ModuleType = optimized,
    **others: Any,
) -> AttendingCache:
    """Read a prompt, compress its KV cache, and return the cache for `model.generate`.

    The model is attached if it is not yet; over every other cache it computes the same attention as
    before. Where a row's budget is smaller than its number of protected entries, the row keeps
    exactly the protected entries, with a warning. The observation window is cut to the budget.

    Args:
        model: a causal language model of `transformers`, in evaluation mode.
        system: a name, as `python -m optimized` takes it: `full`; a scorer with or without
            `+hubkv`, `+graphkv` or `+nms` and `@head`, `@layer` or `@model`; `hex-3` or `hex-4`,
            with or without `+hubkv` or `+graphkv`; `kcvt-3`, `kcvt-4`, `kivi-2`, `kivi-4` or
            `gear`; a scorer, `>` and a store for the entries left. Or a scorer that `scorer`
            returned, or settings of HEX.
        input_ids: prompts, padded on the left.
        attention_mask: 1 at tokens, 0 at padding.
        ratio: removed share of the entries, at least 0 and below 1, of a system that evicts.
        keep: mean number of entries that a head keeps, in place of a ratio; a shorter row stays
            whole. `ratio` and `keep` may be lists, with one number for each layer that sees the
            whole text: the heads of a layer then share its budget, and layers share none.
        interval: compress again after every `interval` new tokens, to the number of entries kept of
            the prompt (in a padded batch, of its longest row). The scorer must be able to score a
            token on arrival, and entries of different layers do not compete.
        refined: settings of a refinement, in place of the papers'.
        settings: settings of the scorer, as `scorer` takes them.
        chunk: how many tokens to read at a time, by default all.
        reading: `"letter"`, or `"remedied"` with the corrections that the errata propose.
        kv: `reference` or `optimized`.
        others: other inputs of the model besides ids: `pixel_values` and the like. Token types are
            used only together with those.

    Returns:
        The cache. A cache that evicts, and stores nothing in codes, has read the whole prompt. The
        others have read all of it but the last token, which `generate` reads, since they cannot
        remove a token.

    Raises:
        TypeError: the system is neither a name nor a scorer nor settings.
        ValueError: there is no such system or setting, a budget is missing or superfluous, an
            input is none of a decoder's, or the model cannot be attached.
    """
    one, made, store = resolve_system(system, refined)
    if input_ids is None:
        raise TypeError(
            "input_ids must be given: `compressed(model, system, "
            "**tokenizer(text, return_tensors='pt'))`"
        )
    takes = SCORERS[one.scorer].takes if one.scorer in SCORERS else ()
    looked = checks.inputs(model, one.name, takes, others)
    checks.token_ids(input_ids, attention_mask)
    checks.require_implementation_module(kv)
    if one.store is not None or one.then is not None:
        checks.not_again(one.name, interval, "codes are not compressed again")
    must_be("interval", interval, Positive | None)
    keep = int(keep) if isinstance(keep, np.integer) else keep
    checks.budgeted(one.name, one.evicts or interval is not None, ratio, keep)
    layered = isinstance(ratio, Sequence) or isinstance(keep, Sequence)
    checks.reject_per_layer_budgets(one, SCORERS, layered, interval)
    checks.one_of("reading", reading, READINGS)
    if refined is not None and not (one.evicts or str(one.store).startswith("hex")):
        raise ValueError(
            f"refined must be None for {one.name!r}, which has no scores to refine, got {refined}"
        )
    checks.no_settings(settings)
    own = dict(settings or {})
    if made is not None or not one.evicts:
        checks.settings(one.name, own, ())
    attach(model)
    if one.then is not None or one.store is not None or interval is not None:
        checks.latent(is_latent(model.config))
    if layered:
        name = "keep" if ratio is None else "ratio"
        checks.one_a_layer(name, pairs(ratio, keep), count_full_attention_layers(model.config))
        one = one._replace(scope="layer" if one.scope == "model" else one.scope)
    checks.elsewhere(model, input_ids)
    checks.in_vocabulary(input_ids, len(next(model.get_input_embeddings().parameters())))
    checks.check_image_inputs(model, input_ids, looked, chunk)
    tightest = max(ratio) if isinstance(ratio, Sequence) else ratio
    fewest = min(keep) if isinstance(keep, Sequence) else keep
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    if one.then is not None and input_ids.shape[1] > 1:  # codes cannot remove the last token
        looked = but_last(looked, input_ids)
        input_ids, mask = input_ids[:, :-1], mask[:, :-1]
    if interval is not None:
        checks.one_of("scorer of a system with an interval", one.scorer, SCORES)
        known = ("weights",) if SCORERS[str(one.scorer)].gated else ()
        checks.settings(f"{one.scorer} with an interval", own, known)
        if SCORERS[str(one.scorer)].negative and one.refinement is not None:
            checks.not_again(one.name, interval, "negative scores are not refined")
        checks.in_one_call("with an interval", chunk)
        target: Any = keep or kept_of(int(mask.sum(-1).max()), 1, tightest, None)
        scope: Scope = "layer" if one.scope == "model" else one.scope
        config = DecodingConfig(
            target, interval, scope, fix_neighbours(refinement_settings(one, reading))
        )
        gates = with_gates(model, str(one.scorer), own).get("weights")
        cache = DecodingTransformersCache(model.config, config, str(one.scorer), gates, kv)
        return read_prompt(model, cache, input_ids, mask, looked)
    if one.store in QUANTIZERS:
        checks.in_one_call(f"for {one.name!r}", chunk)
        outliers = reading == "remedied"
        cache = QuantizedTransformersCache(model.config, one.store, outliers, kv)
        return read_prompt(model, cache, input_ids, mask, looked)
    if one.store is not None:
        how = store or hex_settings(one, reading)
        return compress_to_hex(model, one, how, input_ids, mask, chunk, reading, kv, looked)
    if not one.evicts:
        return prefill(model, input_ids, mask, chunk=chunk, **looked).cache
    if made is None:
        own = settings_of(str(one.scorer), reading) | with_gates(model, str(one.scorer), own)
        made = scorer(str(one.scorer), model, kv, **own)
    prompt = prefill(model, input_ids, mask, chunk=chunk, watch=[made.watch], **looked)
    scores, rows = score_rows(made, prompt, tightest, fewest)
    if layered and scores is not None:
        counts = lengths(prompt).tolist()
        shares = [[kept_of(count, 1, *pair) for count in counts] for pair in pairs(ratio, keep)]
        scores = scores._replace(budgets=torch.tensor(shares, device=input_ids.device))
        tightest, fewest = None, max(counts)
    kept = torch.empty(0)
    if scores is not None:
        shielded = protected_of(one, prompt, scores)
        found = {
            row: budget_shortfall(one, prompt, scores, shielded, row, tightest, fewest)
            for row in rows
        }
        short = {row: lack for row, lack in found.items() if lack is not None}
        for held, most in [*short.values()][:1]:
            warnings.warn(
                f"budget {held} of a {one.scope} is below its number of protected entries, {most}: "
                f"those alone are kept, in {len(short)} of {len(input_ids)} rows",
                stacklevel=2,
            )
        chosen = [row for row in rows if row not in short]
        kept = mask.bool()[:, None].expand(shielded.shape).clone()
        if chosen:
            given = one, prompt, scores, tightest, reading, kv, fewest
            every = len(chosen) == len(input_ids)
            kept[:, chosen] = kept_entries(*given, None if every else chosen)[:, chosen]
        kept[:, [*short]] &= shielded[:, [*short]]
        prompt.cache.evict(kept, kv)
    if one.then is None:
        return prompt.cache
    paid = None
    if scores is None:  # nothing is evicted except padding
        heads = prompt.cache.whole_layers()[0].whole[0].shape[1]
        there = mask.bool()[:, None].expand(-1, heads, -1)
        prompt.cache.evict([there] * len(prompt.cache.evictable()), kv)
    else:
        paid = [(some.scores, layer) for some, layer in zip(scores.scored, kept, strict=True)]
    return QuantizedEvictionCache(prompt.cache, paid, system_named(one.then), reading, kv)


def pairs(ratio: Any, keep: Any) -> list[tuple[float | None, int | None]]:
    """Return the ratio or the budget of each layer."""
    return [(one, None) for one in ratio] if keep is None else [(None, one) for one in keep]


def resolve_system(system: Any, refined: Any) -> tuple[System, Scorer | None, HexConfig | None]:
    """Return the system, the scorer if one was given, and the settings of HEX if given."""
    made, store = None, None
    if isinstance(system, str):
        one = system_named(system)
    elif isinstance(system, Scorer):
        one, made = System(system.name, system.name, None, system.scope), system.fresh_copy()
    elif not isinstance(system, HexConfig):
        checks.no_system(system)
    else:
        checks.hex_settings(system)
        one, store = System("hex", "h2o", store="hex"), system
    if refined is not None:
        kind = refinement_name(refined)
        checks.other_refinement(one.name, one.refinement, kind)
        one = one._replace(refinement=kind, settings=refined)
    return one, made, store


def fix_neighbours(refinement: Any) -> Any:
    """Return a refinement whose graph has a fixed number of neighbours, for decoding.

    While the model decodes, there is no document length to adapt the number to.
    """
    if isinstance(refinement, GraphSettings):
        return refinement._replace(adaptive=False)
    return refinement


def with_gates(model: PreTrainedModel, name: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a scorer, with the FastKVzip gates from the model's folder."""
    if not SCORERS[name].gated or "weights" in own:
        return own
    folder, count = Path(str(model.name_or_path)), count_full_attention_layers(model.config)
    return own | {"weights": load_gates(folder, count, input_device(model))}


def read_prompt(
    model: PreTrainedModel,
    cache: AttendingCache,
    ids: Tensor,
    mask: Tensor,
    looked: dict[str, Any],
) -> AttendingCache:
    """Read a prompt without its last token into a cache, in one call, and return the cache."""
    if ids.shape[1] > 1:
        read(model, cache, ids[:, :-1], mask[:, :-1], None, but_last(looked, ids))
    return cache


def compress_to_hex(
    model: PreTrainedModel,
    one: System,
    store: HexConfig,
    ids: Tensor,
    mask: Tensor,
    chunk: int | None,
    reading: str,
    kv: ModuleType,
    looked: dict[str, Any],
) -> AttendingCache:
    """Return a HEX cache of a prompt without its last token."""
    try:
        cache = HexTransformersCache(model.config, store, kv)
    except ValueError as error:
        if not str(error).startswith("density"):
            raise
        checks.raise_hex_density_error(one.name, error)
    if ids.shape[1] == 1:
        return cache
    mass = scorer("h2o", model, kv)
    watch = [] if one.scorer is None else [mass.watch]
    seen = but_last(looked, ids)
    prompt = prefill(model, ids[:, :-1], mask[:, :-1], chunk=chunk, watch=watch, **seen)
    keys = [layer.whole[0][..., 0].float() for layer in prompt.cache.whole_layers()]
    paid = [mass.memory.get(place, torch.zeros_like(one)) for place, one in enumerate(keys)]
    heavy = [Scored(each, torch.zeros_like(each, dtype=torch.bool)) for each in paid]
    refined = refinement_settings(one, reading)
    return HexTransformersCache.of_prompt(prompt, heavy, kv.compress, store, kv, refinement=refined)


def but_last(looked: dict[str, Any], ids: Tensor) -> dict[str, Any]:
    """Return the other inputs of the model for all ids but the last."""
    return {name: x[:, :-1] if x.shape == ids.shape else x for name, x in looked.items()}


def score_rows(
    one: Scorer, prompt: Prefilled, ratio: float | None, keep: int | None
) -> tuple[Scores | None, list[int]]:
    """Return the scores, each row by its own budget, and the rows with entries to evict."""
    counts = lengths(prompt).tolist()
    budgets = [kept_of(count, 1, ratio, keep) for count in counts]
    depends = one.budgeted or one.observing is not None
    asked = one.settings.get("window")
    found: Scores | None = None
    rows: list[int] = []
    for budget in sorted(set(budgets) if depends else {max(budgets)}):
        some = [row for row, each in enumerate(budgets) if each == budget or not depends]
        some = [row for row in some if budgets[row] < counts[row]]
        window = 0
        if one.observing is not None:
            window = min(asked or one.window_for(budget), max(one.least, budget))
            some = [row for row in some if counts[row] > window]
            one.settings["window"] = window
        if some:
            said = one.finish(prompt, max(budget, window))
            found = said if found is None else merge_rows(found, said, some)
            rows += some
    if asked is None:
        one.settings.pop("window", None)
    else:
        one.settings["window"] = asked
    return found, sorted(rows)


def merge_rows(scores: Scores, other: Scores, rows: list[int]) -> Scores:
    """Return scores in which some rows are replaced by those of `other`, of another budget."""

    def put(into: Tensor, of: Tensor, at: Any) -> Tensor:
        out = into.clone()
        out[at] = of[at]
        return out

    both = zip(scores.scored, other.scored, strict=True)
    one = (Scored(*(put(a, b, rows) for a, b in zip(*pair, strict=True))) for pair in both)
    shared = None
    if scores.budgets is not None and other.budgets is not None:
        shared = put(scores.budgets, other.budgets, (slice(None), rows))
    return Scores(tuple(one), shared)


def protected_of(system: System, prompt: Prefilled, scores: Scores) -> Tensor:
    """Return a mask of the entries that a system keeps whatever their score, layers first."""
    protected = torch.stack([one.protected for one in scores.scored])
    if system.refinement != "hubkv":
        return protected
    valid = torch.ones_like(prompt.input_ids, dtype=torch.bool)
    valid = valid if prompt.valid is None else prompt.valid
    return protected | protected_ends(valid, protected.shape[2], 4, None)


def budget_shortfall(
    system: System,
    prompt: Prefilled,
    scores: Scores,
    protected: Tensor,
    row: int,
    ratio: float | None,
    keep: int | None,
) -> tuple[int, int] | None:
    """Return a pool's budget and its number of protected entries, where the budget is smaller.

    The pool is the worst one of a row. Returns None where every budget suffices.
    """
    count, (layers, _, heads, _) = int(lengths(prompt)[row]), protected.shape
    size = {"head": 1, "layer": heads, "model": heads * layers}[system.scope]
    spent = protected[:, row].sum(-1).view(-1, size).sum(-1)
    if scores.budgets is None:
        budgets = torch.full_like(spent, kept_of(count, size, ratio, keep))
    else:
        budgets = (size * scores.budgets[:, row]).repeat_interleave(heads // size)
    mean = kept_of(count, size, ratio, keep)
    if int(spent.sum()) > mean * len(spent):
        return mean, int(spent.max())
    worst = int((spent - budgets).argmax())
    short = bool(spent[worst] > budgets[worst])
    return (int(budgets[worst]), int(spent[worst])) if short else None


def kept_of(tokens: int, heads: int, ratio: float | None, keep: int | None) -> int:
    """Return how many entries a pool of `heads` heads keeps under a ratio or a budget."""
    if ratio is not None:
        return kept_count(tokens * heads, ratio)
    assert keep is not None
    return min(keep, tokens) * heads
