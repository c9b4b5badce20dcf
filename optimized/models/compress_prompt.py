"""Read a prompt and return its compressed cache, in one call or in every `generate`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from inspect import Parameter, signature
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

import optimized
from optimized import HexConfig
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import attach, attachment, detach, require_language_model
from optimized.models.attention import CHECKING, decoder_of
from optimized.models.cache import AttendingCache
from optimized.models.layer import count_full_attention_layers
from optimized.models.read_prompt import Inputs, reader_of
from optimized.models.scorer import Scorer
from optimized.models.scorers import SCORERS
from optimized.models.systems import (
    System,
    compares_queries,
    refinement_name,
    refinement_settings,
    system_named,
    with_store_settings,
)
from optimized.models.tensor_parallel import ALL_RANKS, group_of, require_same_call
from optimized.readings import READINGS
from reference.contract.checks import must_be, one_of, shaped
from reference.contract.enforce import shown
from reference.contract.types import Positive
from reference.refinement import Refinement


def compressed(
    model: PreTrainedModel,
    system: str | Scorer | HexConfig = "kvzip+hubkv",
    input_ids: Int[Tensor, "batch tokens"] | None = None,
    attention_mask: Tensor | None = None,
    *,
    ratio: float | Sequence[float] | Sequence[Sequence[float]] | None = None,
    keep: int | Sequence[int] | Sequence[Sequence[int]] | None = None,
    interval: int | None = None,
    protected: Bool[Tensor, "batch tokens"] | slice | None = None,
    exact_layers: Sequence[int] = (),
    refined: Refinement | None = None,
    settings: Mapping[str, Any] | None = None,
    chunk: int | None = None,
    reading: str = "letter",
    kv: ModuleType = optimized,
    **others: Any,
) -> AttendingCache:
    """Read a prompt, compress its KV cache, and return the cache for `model.generate`.

    The model is attached if it is not yet; over every other cache it computes the same attention as
    before. Where a budget of a row is smaller than its number of protected entries, the row (of a
    list, the layer or head) keeps exactly these, with a warning. The observation window is cut to
    the budget.

    Args:
        model: a causal language model of `transformers`, in evaluation mode.
        system: a name, as `python -m optimized` takes it: `full`; a scorer with or without
            `+hubkv`, `+graphkv` or `+nms` and `@head`, `@layer` or `@model`; `hex-3`, `hex-4` or
            `hex-8`, with or without `+hubkv` or `+graphkv`; `kcvt-`, `kivi-` with their bits, or
            `gear`; a scorer, `>` and a store for the entries left. Or a scorer that `scorer`
            returned, or settings of HEX.
        input_ids: prompts, padded on the left.
        attention_mask: 1 at tokens, 0 at padding.
        ratio: removed share of the entries, at least 0 and below 1, of a system that evicts.
        keep: mean number of entries that a head keeps, in place of a ratio; a shorter row stays
            whole. `ratio` and `keep` may be lists, with one number for each layer that sees the
            whole text: the heads of a layer then share its budget, and layers share none. Or with a
            list for each of these layers, of one number for each key head: nothing is shared then.
        interval: compress again after every `interval` new tokens, to the number of entries kept of
            the prompt (in a padded batch, of its longest row). The scorer must be able to score a
            token on arrival, and entries of different layers do not compete.
        protected: tokens that a system that evicts keeps in every head, besides those that its
            scorer protects: a mask like `input_ids`, or a slice of each row's tokens without
            padding, such as `slice(0, 40)` for a system prompt. They count towards the budget.
        exact_layers: indices, among the layers that see the whole text, of those that keep every
            token exactly; negative ones count from the end. A budget is that of the other layers.
        refined: settings of a refinement, in place of the papers'.
        settings: settings of the scorer, as `scorer` takes them, and of the store: those of
            `HexConfig`, `kivi_prefill` or `gear_prefill`. Behind `>`, a name that the scorer has,
            too, is the scorer's.
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
            model does not take an input or cannot be attached, or its ranks cannot share it.
    """
    group = group_of(model)
    require_same_call(group, locals() | dict.fromkeys(("model", "group", "kv")))
    chosen, made, hex_config = resolve_system(system, refined)
    if input_ids is None:
        raise TypeError(
            "input_ids must be given: `compressed(model, system, "
            "**tokenizer(text, return_tensors='pt'))`"
        )
    extra = find_extra_inputs(model, chosen, others)
    checks.require_token_ids(input_ids, attention_mask)
    if not isinstance(kv, ModuleType):
        raise TypeError(f"kv must be the module `reference` or `optimized`, got {kv!r}")
    keep = int(keep) if isinstance(keep, np.integer) else keep
    one_of("reading", reading, READINGS)
    require_budget(chosen, interval, ratio, keep)
    require_refinable(chosen, interval, refined, reading)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    span = protected_span(chosen, interval, protected, mask.bool())
    if not isinstance(settings, Mapping | None):
        raise TypeError(
            f"settings must be a dictionary, such as {{'window': 16}}, got {shown(settings)}"
        )
    of_scorer = dict(settings or {})
    if (chosen.store or chosen.then) and hex_config is None:
        takes = SCORERS[str(chosen.scorer)].takes if chosen.evicts else ()
        of_store = {name: of_scorer.pop(name) for name in {*of_scorer} - {*takes}}
        chosen = with_store_settings(chosen, of_store)
    elif made is not None or not chosen.evicts:
        checks.require_known_settings(chosen.name, of_scorer, ())
    attach(model)
    if group is not None:
        require_separate_heads(chosen, made, interval)
    layers = count_full_attention_layers(model.config)
    exact = checks.layers_by_index("exact_layers", exact_layers, layers)
    name, budgets = ("keep", keep) if ratio is None else ("ratio", ratio)
    if isinstance(budgets, Sequence):
        checks.require_one_per_layer(name, budgets, layers)
        chosen = chosen._replace(scope="layer" if chosen.scope == "model" else chosen.scope)
        by_head = [budget for budget in budgets if isinstance(budget, Sequence)]
        if by_head:
            checks.require_one_per_head(name, by_head, model.config)
            chosen = chosen._replace(scope="head")
    checks.require_same_device(model, input_ids)
    checks.require_ids_in_vocabulary(model, input_ids)
    checks.check_image_inputs(model, input_ids, extra, chunk)
    context = copy_context()
    context.run(ALL_RANKS.set, True)
    reader = reader_of(chosen, interval)(
        model=model,
        system=chosen,
        scorer=made,
        hex_config=hex_config,
        inputs=Inputs(input_ids, mask, extra),
        protected=span,
        exact=exact,
        ratio=ratio,
        keep=keep,
        interval=interval,
        settings=of_scorer,
        chunk=chunk,
        reading=reading,
        kv=kv,
        group=group,
    )
    return context.run(reader.read)


OPTIONS = tuple(
    name
    for name, parameter in signature(compressed).parameters.items()
    if parameter.kind is Parameter.KEYWORD_ONLY
)


def resolve_system(system: Any, refined: Any) -> tuple[System, Scorer | None, HexConfig | None]:
    """Return the system, the scorer if one was given, and the settings of HEX if given."""
    made, hex_config = None, None
    if isinstance(system, str):
        chosen = system_named(system)
    elif isinstance(system, Scorer):
        checks.require_known_name("system.name, a key of models.SCORERS,", system.name, SCORERS)
        made = system.fresh_copy()
        chosen = System(system.name, system.name, None, system.scope)
    elif isinstance(system, HexConfig):
        must_be("settings", system, HexConfig)
        chosen, hex_config = System("hex", "h2o", store="hex"), system
    else:
        got, says = shown(system), ": a class of yours goes to `models.SCORERS[name]`"
        if isinstance(system, Tensor):
            says = ": pass ids after it, `compressed(model, 'kvzip+hubkv', ids, ratio=0.75)`"
        elif isinstance(system, Mapping):
            got = type(system).__name__
            call = "compressed(model, 'kvzip+hubkv', **inputs, ratio=0.75)"
            says = f": pass inputs after it, `{call}`"
        elif isinstance(system, nn.Module):
            got, says = type(system).__name__, ": pass the model before it"
        raise TypeError(f"system must be a name, a Scorer or a HexConfig, got {got}{says}")
    if refined is not None:
        kind = refinement_name(refined)
        if chosen.refinement not in (None, kind):
            raise ValueError(
                f"refined must be settings of {chosen.refinement} for {chosen.name!r}, got "
                f"settings of {kind}"
            )
        chosen = chosen._replace(refinement=kind, settings=refined)
    return chosen, made, hex_config


def find_extra_inputs(model: Any, system: System, others: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a model besides ids; refuse others, and say where each one belongs.

    Args:
        model: the model, whose `forward` may have a parameter for an input.
        system: the system, whose scorer has settings.
        others: the inputs.
    """
    takes = signature(model.forward).parameters if isinstance(model, nn.Module) else {}
    settings = SCORERS[system.scorer].takes if system.scorer in SCORERS else ()
    extra: dict[str, Any] = {}
    for name, value in others.items():
        if name in checks.TYPES:
            continue
        if name in settings:
            says = f"settings of {system.name} go to settings={{{name!r}: ...}}"
        elif name in checks.TEXT:
            says = "leave it out, since `compressed` reads ids and makes the rest itself"
        elif name in takes:
            extra[name] = value
            continue
        else:
            says = suggest_option(name)
        raise TypeError(
            f"inputs must be input_ids, attention_mask, other inputs of {type(model).__name__} or "
            f"options of `compressed`, got {name!r}: {says}"
        )
    types = {name: others[name] for name in checks.TYPES if name in takes and name in others}
    return extra | types if extra else {}


def suggest_option(name: str) -> str:
    """Return the end of a message that suggests an option of `compressed`."""
    if name == "compression_ratio":
        return "the share that is removed is `ratio`"
    return checks.did_you_mean(name, OPTIONS)[2:] or f"options are {', '.join(OPTIONS)}"


def require_budget(system: System, interval: Any, ratio: Any, keep: Any) -> None:
    """Refuse a budget or an interval that does not suit a system, or is outside its range."""
    if interval is not None and (system.store is not None or system.then is not None):
        raise ValueError(
            f"interval must be None for {system.name!r}, got {interval}: codes are not compressed "
            "again"
        )
    must_be("interval", interval, Positive | None)
    evicts = system.evicts or interval is not None
    if (ratio is not None) + (keep is not None) != evicts:
        wanted = "one of ratio and keep" if evicts else "neither ratio nor keep"
        why = "" if evicts else ": it evicts nothing"
        raise ValueError(
            f"{system.name!r} must be given {wanted}, got ratio={ratio} and keep={keep}{why}"
        )
    budget: Any = keep if ratio is None else ratio
    layered = isinstance(budget, Sequence) and not isinstance(budget, str)
    numbers: Sequence[Any] = budget if layered else [budget]
    by_head = layered and any(isinstance(x, Sequence) for x in budget)
    if by_head and system.refinement == "graphkv":
        raise ValueError(
            f"ratio and keep must be one number per layer for {system.name!r}, which keeps equally "
            "many tokens in all heads, got one per head"
        )
    if by_head and not all(isinstance(x, Sequence) and not isinstance(x, str) for x in budget):
        raise TypeError(
            "ratio and keep must have a number for each layer, or a list for each, got both"
        )
    for number in [x for part in numbers for x in part] if by_head else numbers:
        if ratio is not None:
            must_be("ratio", number, float | None)
            if number is not None and not 0 <= float(number) < 1:
                raise ValueError(
                    f"ratio must be at least 0 and below 1, got {number}: it is the share that is "
                    "removed"
                )
        elif isinstance(number, float):
            raise TypeError(
                f"keep must be an integer, the number of entries a head keeps, got {number}: the "
                "share that is removed is `ratio`"
            )
        else:
            must_be("keep", number, Positive | None)
    if layered and interval is not None:
        raise ValueError("ratio and keep must be one number with an interval, got one per layer")
    if layered and system.shares_budget:
        raise ValueError(
            f"ratio and keep must be one number for {system.scorer!r}, which shares the "
            "budget among layers itself, got one per layer"
        )


def protected_span(system: System, interval: Any, protected: Any, real: Tensor) -> Tensor | None:
    """Return the mask of protected tokens, if any, from that of real ones."""
    if protected is None:
        return None
    if not system.evicts or interval is not None:
        why = "it evicts nothing" if interval is None else "with an interval"
        raise ValueError(f"protected must be None for {system.name!r}, got {protected}: {why}")
    if isinstance(protected, slice):
        marked = torch.zeros_like(real)
        for row, flags in zip(marked, real, strict=True):
            row[flags.nonzero()[:, 0][protected]] = True
        missed = real[~marked.any(-1)]
        if len(missed) and range(2**31)[protected]:  # not an empty slice
            raise ValueError(
                f"protected must mark one of the {int(missed[0].sum())} tokens of a row, without "
                f"padding, got {protected}"
            )
        return marked
    must_be("protected", protected, Bool[Tensor, "batch tokens"])
    shaped("protected", protected, real.shape)
    return protected.to(real.device) & real


def require_refinable(system: System, interval: Any, refined: Any, reading: str) -> None:
    """Refuse settings of a refinement for which a system has no scores or no queries."""
    if compares_queries(system, reading) and not (system.evicts and interval is None):
        raise ValueError(
            f"refined.kind must be 'kk', 'kv' or 'vv' for {system.name!r}, got "
            f"{refinement_settings(system, reading).kind!r}: only a system that evicts once keeps "
            "the queries of all tokens"
        )
    if refined is not None and not (system.evicts or str(system.store).startswith("hex")):
        raise ValueError(
            f"refined must be None for {system.name!r}, which has no scores to refine, got "
            f"{refined}"
        )


def require_separate_heads(system: System, made: Scorer | None, interval: int | None) -> None:
    """Refuse a system for which a rank needs more of the others' heads than their scores."""
    scorer = SCORERS.get(str(system.scorer), Scorer) if made is None else made
    store, why = system.then or system.store or "kivi", None
    if not store.startswith("kivi"):
        why = f"{store} quantises values of all heads together"
    elif system.refinement == "graphkv":
        why = "edges of GraphKV compare keys"
    elif not scorer.by_head:
        why = f"{scorer.name} has no scores or budgets of a head by itself"
    elif interval and (system.scope != "head" or system.refinement == "hubkv" or scorer.gated):
        why = "with an interval each rank compresses alone: take '@head', without HubKV or gates"
    if why is not None:
        raise ValueError(f"system must suit ranks that share heads, got {system.name!r}: {why}")


class Compressing:
    """A replacement of `generate` that compresses the prompt first."""

    def __init__(
        self,
        model: PreTrainedModel,
        own: Callable[..., Any],
        system: Any,
        options: Mapping[str, Any],
    ) -> None:
        self.model, self.own, self.system, self.options = model, own, system, options
        self.running: list[None] = []
        """An entry for each generation that runs, in any thread."""

    def __call__(self, inputs: Tensor | None = None, *args: Any, **options: Any) -> Any:
        """Generate from the compressed cache of the prompt."""
        ids = options.pop("input_ids", inputs)
        self.running.append(None)
        try:
            return self.own(ids, *args, **self.with_cache(ids, options))
        finally:
            self.running.pop()

    def with_cache(self, ids: Tensor | None, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of `generate`, with a compressed cache where none is given."""
        cache = options.get("past_key_values")
        if isinstance(cache, AttendingCache) or (cache and cache.get_seq_length()):
            return options
        if cache is not None:
            raise ValueError(
                "past_key_values must be left out within `compressing`, or hold a prompt, got an "
                f"empty {type(cache).__name__}"
            )
        config = options.get("generation_config") or self.model.generation_config
        if options.get("use_cache", config.use_cache) is False:
            raise ValueError(
                "use_cache must be True within `compressing`, which puts a compressed cache in "
                "place of the model's, got False"
            )
        takes = set(signature(self.model.forward).parameters) - {*checks.TEXT, "attention_mask"}
        extra: dict[str, Any] = {
            name: x for name, x in options.items() if name in takes and isinstance(x, Tensor)
        }
        mask = options.get("attention_mask")
        mask = padding_of(self.model, ids) if mask is None else mask
        cache = compressed(self.model, self.system, ids, mask, **self.options, **extra)
        return options | {"attention_mask": mask, "past_key_values": cache}


@contextmanager
def compressing(
    model: PreTrainedModel, system: Any = "kvzip+hubkv", **options: Any
) -> Iterator[PreTrainedModel]:
    """Compress the prompt of every `model.generate` within the context.

    Use it for `pipeline`, and for harnesses that call `generate` themselves. A call with a filled
    cache keeps that cache. A call of the model itself, or of its decoder, that reads several tokens
    without one is refused, since nothing would be compressed; that is how harnesses compute
    log-likelihoods. The model is the same object for all threads. When the context ends, `generate`
    is restored; while another thread still generates, the model stays attached.

    Args:
        model: a causal language model of `transformers`, in evaluation mode.
        system: the system that compresses each prompt, as `compressed` takes it.
        options: the other options of `compressed`: `ratio`, `keep`, `interval`, `protected`,
            `exact_layers`, `refined`, `settings`, `chunk`, `reading`, `kv`.

    Yields:
        The model.

    Raises:
        TypeError: there is no such option, or the model is not a language model.
        ValueError: the model is in another `compressing`, or `compressed` raises it in a call.
    """
    for name in options:
        if name not in OPTIONS:
            says = suggest_option(name)
            raise TypeError(f"options must be those of `compressed`, got {name!r}: {says}")
    require_language_model(model)
    attached = attachment(model) is not None
    chosen = resolve_system(system, options.get("refined"))[0]
    require_budget(chosen, *(options.get(name) for name in ("interval", "ratio", "keep")))
    before: Any = vars(model).get("generate")
    own: Any = model.generate
    if isinstance(before, Compressing):
        raise ValueError("model must be in one `compressing` at a time, got one within another")
    within = Compressing(model, own, system, options)
    vars(model)["generate"] = within
    hooked = model, decoder_of(model)
    refusing = [x.register_forward_pre_hook(refuse_uncached, with_kwargs=True) for x in hooked]
    try:
        yield model
    finally:
        for hook in refusing:
            hook.remove()
        if before is None:
            del vars(model)["generate"]
        else:
            vars(model)["generate"] = before
        if not attached and not within.running:  # a generation of another thread goes on
            detach(model)


def refuse_uncached(model: nn.Module, args: Any, inputs: dict[str, Any] | None = None) -> None:
    """Refuse several tokens without a filled cache: a forward pre-hook within `compressing`."""
    named = dict(zip(signature(model.forward).parameters, args, strict=False)) | (inputs or {})
    cache, ids = named.get("past_key_values"), named.get("input_ids")
    ids = named.get("inputs_embeds") if ids is None else ids
    filled = isinstance(cache, AttendingCache) or (cache and cache.get_seq_length())
    if not filled and ids is not None and ids.shape[1] > 1 and CHECKING.get() is None:
        raise ValueError(
            "model must be called through `generate` within `compressing`, or with a cache that "
            f"holds a prompt, got {ids.shape[1]} tokens without one: compress the context with "
            "`compressed`, then call the model with that cache and the tokens to score"
        )


def padding_of(model: PreTrainedModel, ids: Any) -> Tensor | None:
    """Return the mask that `generate` derives from padding, unless its id is an end token."""
    config = model.generation_config
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if not isinstance(ids, Tensor) or config.pad_token_id in (None, *ends):
        return None
    return (ids != config.pad_token_id).long()
