"""Read a prompt and return its compressed cache, in one call."""

import warnings
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

import optimized
from optimized import DecodingConfig, GraphSettings, HexConfig, Scored, kept_count
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import attach
from optimized.models.attention import decoder_of, input_device
from optimized.models.decoding_cache import SCORES, DecodingTransformersCache
from optimized.models.eviction_cache import EvictionCache
from optimized.models.fastkvzip_gates import load_gates
from optimized.models.hex import HexTransformersCache
from optimized.models.layer import AttendingCache, count_full_attention_layers, is_latent
from optimized.models.prefill import Prefilled, prefill, read
from optimized.models.quantized import QUANTIZERS, QuantizedTransformersCache
from optimized.models.quantized_eviction import QuantizedEvictionCache, require_storable
from optimized.models.scorer import Scope, Scorer, Scores, lengths
from optimized.models.scorers import SCORERS, scorer
from optimized.models.selection import kept_entries
from optimized.models.systems import (
    System,
    compares_queries,
    hex_settings,
    reading_settings,
    refinement_name,
    refinement_settings,
    system_named,
)
from optimized.readings import READINGS
from optimized.vector.scorers._padding import protected_ends
from reference.contract.checks import must_be
from reference.contract.enforce import shown
from reference.contract.types import Positive
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
        The cache. A cache that evicts and stores no codes has read the whole prompt. Any other one
        cannot remove a token, so it has read all tokens but the last, which `generate` reads.

    Raises:
        TypeError: the system is neither a name nor a scorer nor settings.
        ValueError: there is no such system or setting, a budget is missing or not needed, the
            model does not take an input, or the model cannot be attached.
    """
    one, made, store = resolve_system(system, refined)
    if input_ids is None:
        raise TypeError(
            "input_ids must be given: `compressed(model, system, "
            "**tokenizer(text, return_tensors='pt'))`"
        )
    takes = SCORERS[one.scorer].takes if one.scorer in SCORERS else ()
    extra = find_extra_inputs(model, one.name, takes, others)
    checks.require_token_ids(input_ids, attention_mask)
    if not isinstance(kv, ModuleType):
        raise TypeError(f"kv must be the module `reference` or `optimized`, got {kv!r}")
    stores = one.store is not None or one.then is not None
    if stores:
        checks.reject_compression_interval(one.name, interval, "codes are not compressed again")
    must_be("interval", interval, Positive | None)
    keep = int(keep) if isinstance(keep, np.integer) else keep
    checks.require_budget(one, interval, ratio, keep)
    checks.one_of("reading", reading, READINGS)
    if compares_queries(one, reading) and not (one.evicts and interval is None):
        raise ValueError(
            f"refined.kind must be 'kk', 'kv' or 'vv' for {one.name!r}, got "
            f"{refinement_settings(one, reading).kind!r}: only a system that evicts once keeps the "
            "queries of all tokens"
        )
    if refined is not None and not (one.evicts or str(one.store).startswith("hex")):
        raise ValueError(
            f"refined must be None for {one.name!r}, which has no scores to refine, got {refined}"
        )
    if not isinstance(settings, Mapping | None):
        raise TypeError(
            f"settings must be a dictionary, such as {{'window': 16}}, got {shown(settings)}"
        )
    own = dict(settings or {})
    if made is not None or not one.evicts:
        checks.require_known_settings(one.name, own, ())
    attach(model)
    if one.evicts and interval is None:
        checks.require_one_device(one.name, decoder_of(model).layers.parameters())
    if stores or interval is not None:
        checks.reject_latent_attention(is_latent(model.config))
    for name, budget in (("ratio", ratio), ("keep", keep)):
        if not isinstance(budget, Sequence):
            continue
        checks.require_one_per_layer(name, budget, count_full_attention_layers(model.config))
        one = one._replace(scope="layer" if one.scope == "model" else one.scope)
    checks.require_same_device(model, input_ids)
    vocabulary = len(next(model.get_input_embeddings().parameters()))
    checks.require_ids_in_vocabulary(input_ids, vocabulary)
    checks.check_image_inputs(model, input_ids, extra, chunk)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    inputs = Inputs(input_ids, mask, extra)
    if interval is not None:
        checks.one_of("scorer of a system with an interval", one.scorer, SCORES)
        known = ("weights",) if SCORERS[str(one.scorer)].gated else ()
        checks.require_known_settings(f"{one.scorer} with an interval", own, known)
        if SCORERS[str(one.scorer)].negative and one.refinement is not None:
            checks.reject_compression_interval(
                one.name, interval, "negative scores are not refined"
            )
        checks.reject_chunking("with an interval", chunk)
        share: Any = ratio
        target: Any = keep or kept_of(int(mask.sum(-1).max()), 1, share, None)
        scope: Scope = "layer" if one.scope == "model" else one.scope
        refinement = refinement_settings(one, reading)
        if isinstance(refinement, GraphSettings):  # there is no document length to adapt to
            refinement = refinement._replace(adaptive=False)
        config = DecodingConfig(target, interval, scope, refinement)
        gates = with_gates(model, str(one.scorer), own).get("weights")
        cache = DecodingTransformersCache(model.config, config, str(one.scorer), gates, kv)
        return read_all_but_last(model, cache, inputs)
    if one.store in QUANTIZERS:
        checks.reject_chunking(f"for {one.name!r}", chunk)
        outliers = reading == "remedied"
        cache = QuantizedTransformersCache(model.config, one.store, outliers, kv)
        return read_all_but_last(model, cache, inputs)
    if one.store is not None:
        how = store or hex_settings(one, reading)
        return compress_to_hex(model, one, how, inputs, chunk, reading, kv)
    if not one.evicts:
        return prefill(model, input_ids, mask, chunk=chunk, **extra).cache
    if made is None:
        own = reading_settings(str(one.scorer), reading) | with_gates(model, str(one.scorer), own)
        made = scorer(str(one.scorer), model, kv, **own)
    if one.then is not None:  # codes cannot remove the last token
        alike = bool(mask.all()) and (len(mask) == 1 or not one.shares_budget)
        require_storable(one, model.config, alike, reading)
        inputs = inputs.without_last()
        if not inputs.ids.shape[1]:
            cache = EvictionCache(model.config)
            cache.open = True
            return cache
    prompt = prefill(
        model,
        inputs.ids,
        inputs.mask,
        chunk=chunk,
        watch=[made.watch],
        keep_queries=compares_queries(one, reading),
        **inputs.extra,
    )
    scores, kept = evict_by_scores(one, made, prompt, ratio, keep, reading, kv)
    if one.then is None:
        return prompt.cache
    paid = None
    if scores is not None:
        paid = [(some.scores, layer) for some, layer in zip(scores.scored, kept, strict=True)]
    return QuantizedEvictionCache(prompt.cache, paid, system_named(one.then), reading, kv)


OPTIONS = tuple(
    name
    for name, one in signature(compressed).parameters.items()
    if one.kind is Parameter.KEYWORD_ONLY
)


class Inputs(NamedTuple):
    """The inputs of a model for a prompt."""

    ids: Tensor
    mask: Tensor
    extra: dict[str, Any]
    """Inputs besides ids: `pixel_values` and the like."""

    def without_last(self) -> "Inputs":
        """Return the inputs of all ids but the last."""
        shape, extra = self.ids.shape, self.extra
        extra = {name: x[:, :-1] if x.shape == shape else x for name, x in extra.items()}
        return Inputs(self.ids[:, :-1], self.mask[:, :-1], extra)


def find_extra_inputs(
    model: Any, name: str, known: Sequence[str], others: dict[str, Any]
) -> dict[str, Any]:
    """Return the inputs of a model besides ids; refuse others, and say where each one belongs.

    Args:
        model: the model, whose `forward` may have a parameter for an input.
        name: the name of the system.
        known: the settings of its scorer.
        others: the inputs.
    """
    takes = signature(model.forward).parameters if isinstance(model, nn.Module) else {}
    extra = {}
    for one, value in others.items():
        if one in checks.TYPES:
            continue
        if one in known:
            says = f"settings of {name} go to settings={{{one!r}: ...}}"
        elif one in takes and one not in checks.TEXT:
            extra[one] = value
            continue
        elif one in checks.TEXT:
            says = "leave it out, since `compressed` reads ids and makes the rest itself"
        else:
            says = suggest_option(one)
        raise TypeError(
            f"inputs must be input_ids, attention_mask, other inputs of {type(model).__name__} or "
            f"options of `compressed`, got {one!r}: {says}"
        )
    types = {one: others[one] for one in checks.TYPES if extra and one in takes and one in others}
    return extra | types


def suggest_option(one: str) -> str:
    """Return the end of a message that suggests an option of `compressed`."""
    if one == "compression_ratio":
        return "the share that is removed is `ratio`"
    return checks.did_you_mean(one, OPTIONS)[2:] or f"options are {', '.join(OPTIONS)}"


def evict_by_scores(
    one: System,
    made: Scorer,
    prompt: Prefilled,
    ratio: Any,
    keep: Any,
    reading: str,
    kv: ModuleType,
) -> tuple[Scores | None, Tensor]:
    """Evict entries of a prompt; return its scores, if it needs any, and the mask of kept entries.

    A row whose budget is smaller than its number of protected entries keeps exactly these.
    """
    tightest = max(ratio) if isinstance(ratio, Sequence) else ratio
    fewest = min(keep) if isinstance(keep, Sequence) else keep
    layers, heads = prompt.cache.whole_layers(), prompt.cache.whole_layers()[0].whole[0].shape[1]
    valid = torch.ones_like(prompt.input_ids).bool() if prompt.valid is None else prompt.valid
    kept = valid[:, None].expand(len(layers), -1, heads, -1).clone()
    scores, rows = score_rows(made, prompt, tightest, fewest)
    if scores is None:  # nothing is evicted but padding, which codes cannot hold
        if one.then is not None:
            prompt.cache.evict(kept, kv)
        return None, kept
    if isinstance(ratio, Sequence) or isinstance(keep, Sequence):
        counts = lengths(prompt).tolist()
        pairs = [(x, None) for x in ratio] if keep is None else [(None, x) for x in keep]
        shares = [[kept_of(count, 1, *pair) for count in counts] for pair in pairs]
        scores = scores._replace(budgets=torch.tensor(shares, device=kept.device))
        tightest, fewest = None, max(counts)
    shielded = protected_of(one, valid, scores)
    found = {
        row: budget_shortfall(one, prompt, scores, shielded, row, tightest, fewest) for row in rows
    }
    short = {row: lack for row, lack in found.items() if lack is not None}
    for held, most in [*short.values()][:1]:
        warnings.warn(
            f"budget {held} of a {one.scope} is below its number of protected entries, {most}: "
            f"only those are kept, in {len(short)} of {len(valid)} rows",
            stacklevel=3,
        )
    chosen = [row for row in rows if row not in short]
    if chosen:
        given = one, prompt, scores, tightest, reading, kv, fewest
        some = None if len(chosen) == len(valid) else chosen
        kept[:, chosen] = kept_entries(*given, some)[:, chosen]
    kept[:, [*short]] &= shielded[:, [*short]]
    prompt.cache.evict(kept, kv)
    return scores, kept


def resolve_system(system: Any, refined: Any) -> tuple[System, Scorer | None, HexConfig | None]:
    """Return the system, the scorer if one was given, and the settings of HEX if given."""
    made, store = None, None
    if isinstance(system, str):
        one = system_named(system)
    elif isinstance(system, Scorer):
        one, made = System(system.name, system.name, None, system.scope), system.fresh_copy()
    elif not isinstance(system, HexConfig):
        checks.raise_not_a_system(system)
    else:
        checks.check_hex_settings(system)
        one, store = System("hex", "h2o", store="hex"), system
    if refined is not None:
        kind = refinement_name(refined)
        if one.refinement not in (None, kind):
            raise ValueError(
                f"refined must be settings of {one.refinement} for {one.name!r}, got settings of "
                f"{kind}"
            )
        one = one._replace(refinement=kind, settings=refined)
    return one, made, store


def with_gates(model: PreTrainedModel, name: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a scorer, with the FastKVzip gates from the model's folder."""
    if not SCORERS[name].gated or "weights" in own:
        return own
    folder, count = Path(str(model.name_or_path)), count_full_attention_layers(model.config)
    return own | {"weights": load_gates(folder, count, input_device(model))}


def read_all_but_last(
    model: PreTrainedModel, cache: AttendingCache, inputs: Inputs
) -> AttendingCache:
    """Read a prompt without its last token into a cache, in one call, and return the cache."""
    if inputs.ids.shape[1] > 1:
        some = inputs.without_last()
        read(model, cache, some.ids, some.mask, None, some.extra)
    return cache


def compress_to_hex(
    model: PreTrainedModel,
    one: System,
    store: HexConfig,
    inputs: Inputs,
    chunk: int | None,
    reading: str,
    kv: ModuleType,
) -> AttendingCache:
    """Return a HEX cache of a prompt without its last token."""
    try:
        cache = HexTransformersCache(model.config, store, kv)
    except ValueError as error:
        if not str(error).startswith("density") or not one.name.startswith("hex-"):
            raise
        preset = f"optimized.hex_preset({one.name[:5].upper()!r})._replace(near=True)"
        raise ValueError(
            f"{error}: use `{preset}` in place of {one.name!r} for the nearest density"
        ) from error
    if inputs.ids.shape[1] == 1:
        return cache
    ids, mask, extra = inputs.without_last()
    mass = scorer("h2o", model, kv)
    watch = [] if one.scorer is None else [mass.watch]
    prompt = prefill(model, ids, mask, chunk=chunk, watch=watch, **extra)
    keys = [layer.whole[0][..., 0].float() for layer in prompt.cache.whole_layers()]
    paid = [mass.memory.get(place, torch.zeros_like(one)) for place, one in enumerate(keys)]
    heavy = [Scored(each, torch.zeros_like(each, dtype=torch.bool)) for each in paid]
    refined = refinement_settings(one, reading)
    return HexTransformersCache.of_prompt(prompt, heavy, kv.compress, store, kv, refinement=refined)


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


def protected_of(system: System, valid: Tensor, scores: Scores) -> Tensor:
    """Return a mask of the entries that a system keeps whatever their score, layers first."""
    protected = torch.stack([one.protected for one in scores.scored])
    if system.refinement != "hubkv":
        return protected
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
