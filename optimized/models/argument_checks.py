"""Checks of arguments; a message names the argument, its value and what is admissible."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from inspect import signature
from types import ModuleType
from typing import Any, NoReturn, get_args

import torch
from huggingface_hub.errors import StrictDataclassError
from jaxtyping import Bool
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache

from optimized import DecodingConfig, HexConfig, HubSettings, Scored
from reference._validation import checks
from reference._validation.contract import compiled, shown
from reference._validation.types import Finite, Positive, Scope
from reference.refinement import refinable

SCOPES: tuple[Scope, ...] = get_args(Scope)
OF_ONE_LAYER: tuple[Scope, ...] = SCOPES[:2]


def settings_check(kind: type) -> Callable[[Any], None]:
    """Return a check that settings are a `kind`, with every field inside its range."""
    check = compiled("settings", kind)
    return lambda given: check(given, {})


hex_settings, decoding_settings = settings_check(HexConfig), settings_check(DecodingConfig)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name, if one is near."""
    near = get_close_matches(given, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def kind_of(config: Any) -> str:
    """Return the type of a model, quoted, for messages."""
    return repr(getattr(config, "model_type", type(config).__name__))


def form_of(given: Any) -> Any:
    """Return the shape of a tensor, or the type of any other object."""
    return tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__


def known_name(what: str, given: Any, known: Iterable[str]) -> None:
    """Refuse an unknown name, and suggest the nearest known one."""
    names = list(known)
    if not isinstance(given, str) or given not in names:
        near = did_you_mean(given, names) if isinstance(given, str) else ""
        got = type(given).__name__ if isinstance(given, nn.Module) else shown(given)
        raise ValueError(f"{what} must be one of {', '.join(names)}, got {got}{near}")


WHOLE = ("DynamicLayer", "LinearAttentionAndFullAttentionLayer")
KNOWN = (
    *WHOLE,
    "DynamicSlidingWindowLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
    "DummyLayer",
)


def known_layers(config: Any, layers: Sequence[object]) -> None:
    """Refuse layers of an unknown kind, and models without a layer that sees the whole text."""
    kinds, named = [type(layer).__name__ for layer in layers], kind_of(config)
    others = sorted(set(kinds) - set(KNOWN))
    if others:
        raise ValueError(
            "model must have layers with keys and values of the whole text or of a window, or a "
            f"state, got {named} with {', '.join(others)}"
        )
    if any("Linear" in kind for kind in kinds) and not hasattr(Cache, "get_conv_state"):
        raise ValueError(
            "model must have attention alone with this version of transformers, got "
            f"{named} with states besides: transformers 5.23 or later serves it"
        )
    if not set(WHOLE) & set(kinds):
        windows = [
            vars(layer)["sliding_window"] for layer in layers if "Window" in str(type(layer))
        ]
        window = f"a window of {min(windows)} tokens" if windows else "a state and no keys"
        lifts = ""
        if windows and lifted(config):
            lifts = "; sliding_window=None in its configuration lifts the window"
        raise ValueError(
            "model must have a layer that sees the whole text, got "
            f"{named} with {window} in every layer, which holds no more than that{lifts}"
        )


def raise_unknown_layer_kinds(named: str, error: Exception) -> NoReturn:
    """Refuse a configuration from which `transformers` cannot make a cache."""
    raise ValueError(
        "model must say in its configuration what each of its layers caches, got "
        f"{named!r}: {error}"
    ) from error


def lifted(config: Any) -> bool:
    """Return whether `sliding_window=None` is allowed and makes layers see the whole text."""
    free = deepcopy(config)
    try:
        free.get_text_config(decoder=True).sliding_window = None
        layers = DynamicCache(config=free).layers
    except (TypeError, ValueError, StrictDataclassError):
        return False
    return any(type(layer).__name__ in WHOLE for layer in layers)


def sharing(config: Any, layers: Sequence[Any]) -> None:
    """Refuse a model whose layers reuse another layer's keys, where the cache cannot share."""
    modes = getattr(config.get_text_config(decoder=True), "kv_sharing_modes", None) or ()
    ours = next(layer for layer in layers if hasattr(layer, "shares"))
    if "reuse" in modes and not ours.shares:
        raise ValueError(
            "model must have keys in every layer for a system that stores codes, or that "
            f"compresses again, got {config.model_type!r}, some of whose layers attend to the keys "
            "of another: take a system that evicts once"
        )


def latent(rows: bool) -> None:
    """Refuse multi-head latent attention in a cache that stores keys and values of heads."""
    if rows:
        raise ValueError(
            "model must cache keys and values of its heads to store them in codes or to evict "
            "while decoding, got multi-head latent attention, which caches one row for all heads: "
            "a scorer with or without a refinement is admissible, without `interval` and `>`"
        )


def require_cached_prompt(seen: int) -> None:
    """Refuse a model that cached nothing of the prompt it read."""
    if not seen:
        raise ValueError(
            "model must cache what it reads, got one that cached nothing: call `model.eval()`, or "
            "switch gradient checkpointing off"
        )


def all_again(again: bool, seen: int) -> None:
    """Refuse ids that repeat those in the cache, in a call without `generate`."""
    if again:
        raise ValueError(
            f"input_ids must be the new ids alone, got the {seen} in the cache once more in front "
            "of them: give `input_ids[:, cache.get_seq_length():]`; `generate` takes all"
        )


def compressing_uncached(use_cache: Any) -> None:
    """Refuse `use_cache=False` within `compressing`."""
    if use_cache is False:
        raise ValueError(
            "use_cache must be True within `compressing`, which puts a compressed cache in place "
            "of the model's, got False"
        )


def other_refinement(system: str, named: str | None, given: str) -> None:
    """Refuse settings of a refinement that differs from the one in the system's name."""
    if named not in (None, given):
        raise ValueError(
            f"refined must be settings of {named} for {system!r}, got settings of {given}"
        )


def unexpanded(missing: bool) -> None:
    """Refuse latent rows without the model's function that expands them."""
    if missing:
        raise ValueError(
            "model must expand the latent rows of its cache in `expand_kv` of its attention, got "
            "one that does not, or that `attach` did not prepare"
        )


def check_recurrent_calls(carries: bool, count: int, real: Tensor | None, seen: int) -> None:
    """Refuse calls for which a model with recurrent states would compute wrong outputs."""
    if seen and count > 1 and not carries:
        raise ValueError(
            "model must carry its states from call to call, got one whose states begin anew where "
            f"it reads {count} tokens behind {seen}: let it read the prompt at once, and "
            "then one token at a time"
        )
    if count == 1 and real is not None and not bool(real.all()):
        raise ValueError(
            "attention_mask must be 1 in a call of one token, got 0: a model with states takes "
            "any single token for text"
        )


def no_model(model: Any) -> None:
    """Refuse an object that is not a causal language model."""
    decodes = hasattr(model, "get_decoder") and not isinstance(model, type)
    if not decodes or model.get_output_embeddings() is None:
        named = type(model).__name__ if isinstance(model, nn.Module) else repr(model)
        says = "load it with `AutoModelForCausalLM.from_pretrained`"
        if isinstance(model, nn.DataParallel):
            says = "give the model within, `model.module`"
        raise TypeError(
            f"model must be a causal language model of transformers, got {named}: {says}"
        )


def no_system(given: Any) -> NoReturn:
    """Raise an error for an object that is no system, and name the argument it may belong to."""
    got, says = shown(given), ""
    if isinstance(given, Tensor):
        says = ": ids come after it, `compressed(model, 'kvzip+hubkv', ids, ratio=0.75)`"
    elif isinstance(given, Mapping):
        got = type(given).__name__
        says = ": inputs come after it, `compressed(model, 'kvzip+hubkv', **inputs, ratio=0.75)`"
    elif isinstance(given, nn.Module):
        got, says = type(given).__name__, ": the model comes before it"
    raise TypeError(f"system must be a name, a Scorer or a HexConfig, got {got}{says}")


def unfound(named: str, lost: int) -> None:
    """Refuse a model with attention modules that were not found."""
    if lost:
        raise ValueError(
            f"model must attend in `self_attn` of each block, got {named!r} with {lost} whose "
            "attention is elsewhere"
        )


def require_equal_widths(named: str, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Refuse a model whose values have another width than its keys."""
    for keys, values in layers:
        if keys.shape != values.shape:
            raise ValueError(
                f"model must have values as wide as its keys, got {named!r} with keys of "
                f"{keys.shape[-1]} and values of {values.shape[-1]} channels"
            )


def reject_additive_bias(named: str, mask: Tensor) -> None:
    """Refuse an additive mask with numbers other than 0 and the lowest ones of a dtype."""
    if bool(((mask > torch.finfo(torch.float16).min) & (mask != 0)).any()):
        raise ValueError(
            "model must weigh tokens by their keys, and mask some, got one whose "
            f"{named} adds numbers of its own to the products"
        )


def masks_by_kind(named: str, mask: Any) -> None:
    """Refuse attention that takes a dictionary of masks."""
    if isinstance(mask, dict):
        raise ValueError(
            "model must hand one mask to the attention of a layer, got one whose "
            f"{named} takes {', '.join(map(str, mask))}"
        )


LATENT = "kv_a_proj_with_mqa"


def unlike_llama(decoder: Any, layers: int, found: Sequence[nn.Module]) -> None:
    """Refuse a decoder without Llama's module names, or whose latent rows are not cached."""
    named = kind_of(decoder.config)
    if not found:
        raise ValueError(
            "model must be a decoder with blocks in `layers` that attend in `self_attn`, as "
            f"Llama's are named, got {named} with {layers} `layers`"
        )
    if any(hasattr(one, LATENT) and not hasattr(one, "expand_kv") for one in found):
        raise ValueError(
            "model must cache the latent rows of its multi-head latent attention, got "
            f"{named} of a version of transformers that does not: 5.23 or later does"
        )


def both_ways(unfollowed: bool) -> None:
    """Refuse a mask under which tokens attend to later ones."""
    if unfollowed:
        raise ValueError(
            "model must attend to earlier tokens alone, got a mask by which the tokens of an image "
            "see each other: prompts with images are not served for this model, and text is where "
            "the model makes no such mask for it"
        )


def packed(unfollowed: bool) -> None:
    """Refuse a mask that hides some of the tokens before a query."""
    if unfollowed:
        raise ValueError(
            "position_ids must continue in every row, got some that start again: sequences that "
            "are packed into one row are not supported; batch them with an attention_mask"
        )


def unvaried(dropout: float, variants: dict[str, Any]) -> None:
    """Refuse options that make attention other than a causal softmax, such as dropout."""
    if dropout:
        raise ValueError(f"dropout must be 0, got {dropout}: call `model.eval()`")
    for name in ("sliding_window", "position_bias", "cache"):
        if variants.get(name) is not None:
            raise ValueError(f"{name} must be None, got {type(variants[name]).__name__}")
    if variants.get("is_causal") is False:
        raise ValueError("is_causal must be True, got False")


def mask(valid: Any, batch: int, tokens: int) -> None:
    """Refuse an attention mask without exactly one flag for each token so far."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.shape != (batch, tokens)):
        raise ValueError(
            "attention_mask must have a flag for every token seen so far and every new one, shape "
            f"{(batch, tokens)}, got {form_of(valid)}; `generate` takes all tokens, those in the "
            "cache first"
        )


def require_batch_token_mask(valid: Any) -> None:
    """Refuse an attention mask that is not of shape (batch, tokens)."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.ndim != 2):
        raise ValueError(
            f"attention_mask must be of shape (batch, tokens), got {form_of(valid)}: a mask of "
            "queries × tokens, as models of text and images make it, is not supported"
        )


def nothing_new(seen: int) -> NoReturn:
    """Raise an error for a call without any token that the cache has not seen."""
    raise ValueError(
        f"input_ids must hold a new token behind the {seen} that the cache has seen, got none: "
        "append the token that the last logits predict"
    )


def some_new(new: Tensor, seen: int) -> None:
    """Refuse a call without tokens."""
    if not new.shape[1]:
        raise ValueError(
            f"input_ids must hold the {seen} tokens that the cache has seen and new ones behind "
            "them, got no new one; a model called without `generate` takes only new ones"
        )


def count_hidden_tail(flags: Tensor, known: Tensor | None, ends: bool) -> Tensor:
    """Return how many tokens at the end of each row a mask hides; refuse any other change.

    Args:
        flags: the call's mask of the tokens seen.
        known: the mask of the same tokens so far; None where no token was padding.
        ends: whether the cache can hide tokens at the end of a row.
    """
    before = torch.ones_like(flags) if known is None else known
    gone = before & ~flags
    counts = gone.sum(-1)
    last = gone.flip(-1).cumprod(-1).sum(-1)
    if bool((flags & ~before).any()) or bool((counts != last).any()):
        missing = known is None and bool((flags != before)[:, 0].any())
        why = ": give `compressed` the mask, too" if missing else ""
        raise ValueError(
            "attention_mask must be what it was for the tokens that the cache has seen, got "
            f"another{why}"
        )
    if not ends and bool(gone.any()):
        raise ValueError(
            "attention_mask must be 1 at tokens that this cache has stored, got 0 at the end of a "
            "row: only a system that evicts can hide what a row generated after its end"
        )
    return counts


def require_continuing_positions(
    places: Tensor, expected: Tensor, flags: Tensor, padding: list[int]
) -> None:
    """Refuse positions that do not continue in every row, and suggest the likely cause.

    Args:
        places: the given positions of new tokens.
        expected: the positions that the cache counts.
        flags: which new tokens are not padding.
        padding: the number of padding tokens in each row so far.
    """
    wrong = (places != expected) & flags
    if not bool(wrong.any()):
        return
    row = int(wrong.any(-1).nonzero()[0])
    got, meant = places[row][flags[row]], expected[row][flags[row]]
    first = int((got != meant).nonzero()[0])
    ahead = int(got[0] - meant[0])
    if not bool((got.diff() == 1).all()):
        says = "sequences that are packed into one row are not supported: batch them"
    elif ahead == padding[row]:
        says = "they count the padding that the cache has read: give the attention_mask, too"
    elif int(got[0]) == 0:
        says = "leave position_ids out, or continue from the tokens that the cache has seen"
    else:
        says = "tokens are left out; a model called without `generate` takes only new ones"
    raise ValueError(
        "position_ids must continue in every row what the cache has seen, at "
        f"{int(meant[first])}, got {int(got[first])}: {says}"
    )


def require_all_seen_ids(seen: int, count: int) -> None:
    """Refuse fewer ids than a cache has seen."""
    if count < seen:
        raise ValueError(
            f"input_ids must begin with the {seen} tokens that the cache has seen, got {count} in "
            "all: give `generate` every token so far, and new ones behind them; several questions "
            "of one prompt are asked within `cache.undone()`"
        )


def require_left_padding(name: str, mask: Tensor) -> None:
    """Refuse padding after a token of its row."""
    behind = (mask[..., :-1] & ~mask[..., 1:]).nonzero()
    if len(behind):
        raise ValueError(
            f"{name} must have its padding, 0, on the left of each row, got 0 after 1 at position "
            f"{int(behind[0, -1]) + 1}: set `tokenizer.padding_side = 'left'`"
        )


def ends_in_text(mask: Any) -> None:
    """Refuse a prompt that ends in padding."""
    if isinstance(mask, Tensor) and mask.ndim == 2 and not bool(mask[:, -1].all()):
        raise ValueError(
            "attention_mask must be 1 at the last token of each row, got 0: put the "
            "padding of questions of unlike lengths before them, behind the prompt"
        )


def interrupted(broken: bool) -> None:
    """Refuse a cache in which only some layers were updated."""
    if broken:
        raise ValueError(
            "past_key_values must hold what a whole call of an attached model left, got entries "
            "that were put there by `update` (as prefix tuning does) or by a call that failed: "
            "make a new cache"
        )


def another_model(other: bool, held: int, layers: int) -> None:
    """Refuse a cache that another model filled, or with another number of layers."""
    if held != layers:
        raise ValueError(f"past_key_values must have {layers} layers, as the model has, got {held}")
    if other:
        raise ValueError(
            "past_key_values must be a cache that this model filled, got one of another model"
        )


def weights(asked: Any) -> None:
    """Refuse `output_attentions`, since evicted entries have no weights."""
    if asked:
        raise ValueError(
            "output_attentions must be False over a cache of this package, got True: evicted "
            "entries have no weights; ask for them in a call without the cache"
        )


def uncached(use: Any) -> None:
    """Refuse `use_cache=False` together with a cache."""
    if use is False:
        raise ValueError(
            "use_cache must be True with a cache in past_key_values, got False: leave one of the "
            "two out"
        )


NUMBERS = [
    compiled(name, Finite[Tensor, "rows heads tokens width"])
    for name in ("queries", "keys", "values")
]


def require_finite_states(*new: Tensor) -> None:
    """Refuse queries, keys and values of new tokens that are not finite."""
    for check, one in zip(NUMBERS, new, strict=True):
        check(one, {})


def narrowed(new: torch.dtype, held: torch.dtype) -> None:
    """Refuse a model with a narrower dtype than the one its cache was filled in."""
    if torch.promote_types(new, held) != new and torch.finfo(new).bits < torch.finfo(held).bits:
        raise ValueError(
            f"model must compute in the type of the cache, {held}, got {new}: make the cache after "
            "the model is converted"
        )


def require_seen_prefix(other: bool) -> None:
    """Refuse ids that do not begin with those that a cache has seen."""
    if other:
        raise ValueError(
            "input_ids must begin with the tokens that the cache has seen, got others: append new "
            "ids to the old ones, since a text that is encoded again may have other ids; other "
            "questions of one prompt are asked within `cache.undone()`"
        )


def growing(rotary: Any, before: int, places: Tensor) -> None:
    """Refuse positions at which a dynamic rotary embedding changes its angles."""
    kind = getattr(rotary, "rope_type", "default")
    if not isinstance(kind, str):  # one for each kind of layer
        kind = next((one for one in kind.values() if "dynamic" in one), "default")
    if kind != "longrope" and "dynamic" not in kind:
        return
    after = int(places.max()) + 1
    if kind == "longrope":
        limit = rotary.config.rope_parameters["original_max_position_embeddings"]
        changed = before <= limit < after
    else:
        limit = rotary.original_max_seq_len
        changed = limit < after
    if changed:
        raise ValueError(
            f"model must rotate all keys by the same angles, got a rotary embedding {kind!r} whose "
            f"angles change beyond {limit} tokens, with {before} in the cache and {after} after "
            "this call"
        )


def learned(decoder: Any, places: Tensor) -> None:
    """Refuse more tokens than a model has learned position embeddings."""
    table = getattr(decoder, "embed_positions", None)
    count = getattr(table, "num_embeddings", None)
    if not isinstance(count, int):
        return
    after = int(places.max()) + 1
    if after > count - getattr(table, "offset", 0):
        raise ValueError(
            "input_ids must have no more tokens than the model has learned positions for, "
            f"{count - getattr(table, 'offset', 0)}, got {after}; what KVzip repeats counts, too"
        )


def same_batch(new: Tensor, batch: int) -> None:
    """Refuse tokens with another batch size than the cache's."""
    if new.shape[0] != batch:
        raise ValueError(
            f"input_ids must have the cache's batch size {batch}, got {new.shape[0]}: "
            "`cache.batch_repeat_interleave` and `batch_select_indices` give a cache other rows"
        )


def padding(valid: Tensor, known: Tensor | None) -> None:
    """Refuse a mask that marks padding of the prompt as tokens."""
    if known is not None and bool((valid & ~known).any()):
        raise ValueError("valid must be False at the padding that was read, got True")


def masks(kept: Sequence[Tensor], shapes: list[tuple[int, ...]], valid: Tensor | None) -> None:
    """Refuse kept masks that do not fit the cache, or keep padding."""
    one_a_layer("kept", kept, len(shapes))
    for index, (one, shape) in enumerate(zip(kept, shapes, strict=True)):
        checks.must_be(f"kept[{index}]", one, Bool[Tensor, "*axes"])
        checks.shaped(f"kept[{index}]", one, shape)
        if valid is not None and bool((one & ~valid[:, None]).any()):
            raise ValueError(f"kept[{index}] must be False at padding, got True")


def unsupported(what: str, instead: str) -> NoReturn:
    """Raise an error for an operation that compressed caches do not support."""
    raise NotImplementedError(f"{what} is not supported on a compressed cache; {instead}")


def in_vocabulary(ids: Tensor, size: int) -> None:
    """Refuse ids that a model has no embedding for."""
    lowest, highest = ids.aminmax()
    if lowest < 0 or highest >= size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"input_ids must be in the model's vocabulary, 0 to {size - 1}, got {wrong}: is the "
            "tokenizer this model's?"
        )


def require_implementation_module(kv: Any) -> None:
    """Refuse an implementation that is not a module."""
    if not isinstance(kv, ModuleType):
        raise TypeError(f"kv must be the module `reference` or `optimized`, got {kv!r}")


def gates(weights: Any, layers: int) -> None:
    """Refuse to score without a FastKVzip gate for each layer."""
    if not weights:
        raise ValueError(
            "fastkvzip must have gates that were trained for the model, got none: train them with "
            "`optimized.models.fastkvzip_gates.learn_gates(model, prompts)`, and pass them as "
            "settings={'weights': gates} or write them into the model's folder with `save_gates`"
        )
    one_a_layer("weights", weights, layers)


def require_scope_within_layer(settings: DecodingConfig) -> None:
    """Refuse the scope `"model"` for a cache that is compressed while the model decodes."""
    if settings.scope not in OF_ONE_LAYER:
        raise ValueError(
            "settings.scope must be 'head' or 'layer', since a layer shrinks before the next one "
            f"has read the same tokens, got {settings.scope!r}, the default of a DecodingConfig"
        )


def reject_row_selection(evicts: bool) -> None:
    """Refuse to select batch rows of a cache that stores rows together."""
    if not evicts:
        unsupported(
            "rearranging rows (beams, several sequences)",
            "repeat the prompts before they are compressed, or take a system that evicts",
        )


one_of = checks.one_of


def token_ids(ids: Tensor, valid: Tensor | None) -> None:
    """Refuse ids that are not a batch of integers, and a mask of another shape."""
    if isinstance(ids, Tensor) and ids.is_meta:
        raise ValueError(
            "input_ids must be on a device that holds data, got meta: `input_ids.to(model.device)`"
        )
    held = isinstance(ids, Tensor)
    whole = held and not ids.is_floating_point() and ids.dtype != torch.bool
    if not whole or ids.ndim != 2 or not ids.numel():
        got = f"{tuple(ids.shape)}, {ids.dtype}" if held else type(ids).__name__
        says = "`tokenizer(text, return_tensors='pt')` returns such"
        if isinstance(ids, Mapping):
            says = "unpack what a tokenizer returns, `compressed(model, system, **inputs)`"
        elif whole and ids.ndim == 1:
            says = "`input_ids[None]` is a batch of one prompt"
        raise ValueError(
            f"input_ids must be integers of shape (batch, tokens), not empty, got {got}: {says}"
        )
    if valid is not None:
        if not isinstance(valid, Tensor):
            says = ": a budget is named, `ratio=0.75`" if isinstance(valid, float | int) else ""
            raise TypeError(f"attention_mask must be a tensor, got {type(valid).__name__}{says}")
        checks.shaped("attention_mask", valid, ids.shape)
        require_left_padding("attention_mask", valid.to(torch.bool))


def elsewhere(model: Any, ids: Tensor) -> None:
    """Refuse ids on another device than the model, unless `accelerate` moves them."""
    embedding = model.get_input_embeddings()
    home = next(embedding.parameters()).device
    if ids.device != home and not any(hasattr(one, "_hf_hook") for one in (model, embedding)):
        raise ValueError(
            f"input_ids must be on the device of the model, {home}, got {ids.device}: "
            "`input_ids.to(model.device)`"
        )


def no_settings(given: Any) -> None:
    """Refuse settings that are not a dictionary."""
    if not isinstance(given, Mapping | None):
        raise TypeError(
            f"settings must be a dictionary, such as {{'window': 16}}, got {shown(given)}"
        )


def settings(name: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse settings that a scorer does not have."""
    if given and not known:
        raise ValueError(f"settings of {name} must be left out, got {', '.join(given)}")
    for setting in given:
        known_name(f"settings of {name}", setting, sorted(known))


def one_a_layer(name: str, values: Sequence[object] | Tensor, count: int) -> None:
    """Refuse a list without exactly one entry for each layer."""
    if len(values) != count:
        raise ValueError(
            f"{name} must have one entry for each of {count} layers, got {len(values)}"
        )


def scope(
    compressor: Callable[..., Any], name: str | None, budgets: Tensor | None
) -> dict[str, str]:
    """Return the compressor's argument for a scope; refuse a scope that it does not have."""
    known = signature(compressor).parameters.get("scope")
    if known is not None:
        name = known.default if name is None else name
        checks.one_of("scope", name, SCOPES)
        if name == "model" and budgets is not None:
            raise ValueError("scope must be 'head' or 'layer' with budgets, got 'model'")
        return {"scope": str(name)}
    if name not in (None, "head"):
        raise ValueError(f"scope must be 'head' for {compressor.__name__}, got {name!r}")
    return {}


def require_refinable_scores(
    compressor: Callable[..., Any], refinement: Any, scores: Sequence[Scored], valid: Tensor | None
) -> None:
    """Refuse scores that cannot be refined, before any layer is compressed."""
    usual: Any = signature(compressor).parameters.get("refinement")
    chosen = refinement or (usual.default if usual else HubSettings())
    if chosen is None:
        return
    try:
        for one in scores:
            refinable(one, chosen, valid)
    except ValueError as error:
        helps = "`shift_scores`, or `scorer('knorm', model, shift=True)`"
        raise ValueError(f"{error}; what lifts scores below 0 is {helps}") from error


def inputs(model: Any, name: str, known: Sequence[str], others: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a model besides ids; refuse others, and say where each one belongs.

    Args:
        model: the model, whose `forward` may have a parameter for an input.
        name: the name of the system.
        known: the settings of its scorer.
        others: the inputs.
    """
    takes = signature(model.forward).parameters if isinstance(model, nn.Module) else {}
    looked = {}
    for one, value in others.items():
        if one in TYPES:
            continue
        if one in known:
            says = f"settings of {name} go to settings={{{one!r}: ...}}"
        elif one in takes and one not in TEXT:
            looked[one] = value
            continue
        elif one in TEXT:
            says = "leave it out, since `compressed` reads ids and makes the rest itself"
        else:
            says = unknown_option(one)
        raise TypeError(
            f"inputs must be input_ids and attention_mask, what {type(model).__name__} takes "
            f"beside them, or an option of `compressed`, got {one!r}: {says}"
        )
    types = {one: others[one] for one in TYPES if looked and one in takes and one in others}
    return looked | types


def check_kvzip_request(settings: Mapping[str, Any]) -> None:
    """Refuse KVzip settings with both `tokenizer` and `prompt`, or an invalid tokenizer."""
    if not callable(settings.get("tokenizer", callable)):
        raise TypeError(
            "settings of kvzip must have the model's tokenizer itself as tokenizer, got "
            f"{settings['tokenizer']!r}"
        )
    if settings.get("tokenizer") is not None and "prompt" in settings:
        raise ValueError("settings of kvzip must have tokenizer or prompt, got both")


def reject_kvzip_with_images(looked: Sequence[str]) -> None:
    """Refuse KVzip for a prompt with images or other inputs besides text."""
    if looked:
        raise ValueError(
            f"scorer must be another than kvzip with {', '.join(looked)}, got kvzip, which makes "
            "the model repeat its prompt: take 'snapkv', 'h2o' or another"
        )


TYPES = ("token_type_ids", "mm_token_type_ids")
"""Inputs that hold the type of each token."""
TEXT = ("position_ids", "past_key_values", "inputs_embeds", "labels", "use_cache")
TEXT += ("logits_to_keep", "cache_position")


def require_compress_options(given: Mapping[str, Any]) -> None:
    """Refuse options that `compressed` does not have."""
    for one in given:
        if one not in OPTIONS:
            says = unknown_option(one)
            raise TypeError(f"options must be those of `compressed`, got {one!r}: {says}")


def unknown_option(one: str) -> str:
    """Return the end of a message that suggests an option of `compressed`."""
    if one == "compression_ratio":
        return "the share that is removed is `ratio`"
    return did_you_mean(one, OPTIONS)[2:] or f"options are {', '.join(OPTIONS)}"


def nested(within: bool) -> None:
    """Refuse `compressing` within another `compressing` of the same model."""
    if within:
        raise ValueError("model must be in one `compressing` at a time, got one within another")


OPTIONS = ("ratio", "keep", "interval", "refined", "settings", "chunk", "reading", "kv")
PLACES = ("image", "video", "audio", "boi", "eoi", "vision_start", "vision_end")


def check_image_inputs(model: Any, ids: Tensor, looked: dict[str, Any], chunk: int | None) -> None:
    """Refuse image ids without the images, images in chunks, and inputs of another type."""
    taken = signature(model.forward).parameters
    for name, one in looked.items():
        if name not in taken or not isinstance(one, Tensor):
            raise TypeError(
                f"inputs must be tensors that {type(model).__name__} takes, got {name!r}: "
                f"{type(one).__name__}"
            )
    if looked:
        in_one_call(f"with {', '.join(looked)}", chunk)
    else:
        text_alone(model.config, ids)


def text_alone(config: Any, ids: Tensor) -> None:
    """Refuse placeholder ids of images, videos or sound."""
    for kind in PLACES:
        for name in (f"{kind}_token_id", f"{kind}_token_index"):
            place = getattr(config, name, None)
            if isinstance(place, int) and bool((ids == place).any()):
                raise ValueError(
                    f"input_ids must be text, got the model's {name} {place}: give what the "
                    "processor returned for it, too (`pixel_values` and the like)"
                )


def budgeted(name: str, evicts: bool, ratio: Any, keep: Any) -> None:
    """Refuse a system that evicts without one budget, and a budget for one that does not evict."""
    given = [one for one in (ratio, keep) if one is not None]
    if len(given) != evicts:
        wanted = "one of ratio and keep" if evicts else "neither ratio nor keep"
        why = "" if evicts else ": it evicts nothing"
        raise ValueError(f"{name!r} must be given {wanted}, got ratio={ratio} and keep={keep}{why}")
    for one in each(ratio):
        removed_share(one)
    for one in each(keep):
        if isinstance(one, float):
            raise TypeError(
                f"keep must be an integer, the number of entries a head keeps, got {one}: the "
                "share that is removed is `ratio`"
            )
        checks.must_be("keep", one, Positive | None)


def each(given: Any) -> Sequence[Any]:
    """Return a list as it is, and any other value as a list of one."""
    return given if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def removed_share(ratio: Any) -> None:
    """Refuse a ratio that is not a number of at least 0 and below 1."""
    checks.must_be("ratio", ratio, float | None)
    if ratio is not None and not 0 <= ratio < 1:
        raise ValueError(
            f"ratio must be at least 0 and below 1, got {ratio}: it is the share that is removed"
        )


def not_again(name: str, interval: int | None, why: str) -> None:
    """Refuse `interval` for a system that cannot be compressed repeatedly."""
    if interval is not None:
        raise ValueError(f"interval must be None for {name!r}, got {interval}: {why}")


def raise_hex_density_error(name: str, error: ValueError) -> NoReturn:
    """Raise an error for a HEX density that the model's shape does not allow.

    The message names the settings with the nearest density.
    """
    if not name.startswith("hex-"):
        raise error
    preset = f"optimized.hex_preset({name[:5].upper()!r})._replace(near=True)"
    raise ValueError(f"{error}: `{preset}` in place of {name!r} takes the nearest") from error


def in_one_call(what: str, chunk: int | None) -> None:
    """Refuse `chunk` where the prompt must be read in one call."""
    if chunk is not None:
        raise ValueError(f"chunk must be None {what}, got {chunk}: the prompt is read in one call")


def reject_per_layer_budgets(
    system: Any, scorers: Mapping[str, Any], by_layer: bool, interval: Any
) -> None:
    """Refuse one number for each layer with an interval, or where the scorer shares budgets."""
    if by_layer and interval is not None:
        raise ValueError("ratio and keep must be one number with an interval, got one per layer")
    if by_layer and scorers[system.scorer].sharing:
        raise ValueError(
            f"ratio and keep must be one number for {system.scorer!r}, which itself shares the "
            "budget among layers, got one per layer"
        )
