"""What the plug-in refuses: the argument, its value, what is admissible."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NoReturn, get_args

import torch
from torch import Tensor

from optimized import DecodingConfig, HexConfig, HubSettings, Scored
from reference import errors
from reference.contract import compiled
from reference.kinds import Positive, Ratio, Scope
from reference.refinement import refinable
from reference.rules import false_on_the_left

SCOPES: tuple[Scope, ...] = get_args(Scope)
OF_ONE_LAYER: tuple[Scope, ...] = SCOPES[:2]


def held_to(kind: type) -> Callable[[Any], None]:
    """Return what refuses settings that are no `kind`, or outside the ranges of its fields."""
    check = compiled("settings", kind)
    assert check is not None
    return lambda given: check(given, {})


hex_settings, decoding_settings = held_to(HexConfig), held_to(DecodingConfig)


def decoder_alone(config: Any) -> None:
    """Refuse a model that encodes first."""
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"model must be a decoder alone, got {config.model_type!r}, an encoder-decoder"
        )


def known_layers(kinds: Sequence[type], known: Sequence[type]) -> None:
    """Refuse layers that hold something else than keys and values of the text, or of a window."""
    others = sorted({kind.__name__ for kind in kinds if kind not in known})
    if others:
        raise ValueError(
            "model must have layers that see the whole text or a window of it, got "
            f"{', '.join(others)}"
        )


def windowed(config: Any, seen: Sequence[int | None]) -> None:
    """Refuse a model none of whose layers sees the whole text."""
    if None not in seen:
        raise ValueError(
            "model must have a layer that sees the whole text, got "
            f"{config.model_type!r} with a window of {seen[0]} tokens in every layer, which holds "
            "no more than that; sliding_window=None in its configuration lifts the window"
        )


def self_attention(found: Sequence[Any]) -> None:
    """Refuse a decoder that is no list of layers with attention to themselves."""
    if not found or not all(isinstance(getattr(one, "layer_idx", None), int) for one in found):
        raise ValueError(
            "model must be a decoder whose `layers` have a `self_attn` that knows its `layer_idx`, "
            f"got {found.count(None)} of {len(found)} layers without"
        )


def interface(config: Any, name: str) -> None:
    """Refuse a model that does not let its attention be chosen."""
    if config._attn_implementation != name:
        raise ValueError(
            "model must attend through the attention interface of transformers, got "
            f"{config.model_type!r}, which keeps {config._attn_implementation!r}"
        )


def eager(function: Any) -> None:
    """Refuse a model whose file does not say what its attention is."""
    if function is None:
        raise ValueError(
            "model must have an `eager_attention_forward` in the file of its attention, got none"
        )


def cached(by_name: bool) -> None:
    """Refuse attention that takes its cache otherwise."""
    if not by_name:
        raise ValueError("model must hand `past_key_values` to its attention by name")


def unseen(each: bool) -> None:
    """Refuse a model that leaves layers out."""
    if not each:
        raise ValueError("model must call the attention of every layer once")


def projected(there: bool) -> None:
    """Refuse queries before a rotary embedding where a module has no projection of them alone."""
    if not there:
        raise ValueError("step must be of a layer that projects its queries by themselves")


def uncomputable(config: Any, error: Exception) -> NoReturn:
    """Refuse a model that does not run with our caches."""
    raise ValueError(
        f"model must run with caches of this package, got {config.model_type!r}, which ends in "
        f"{type(error).__name__}: {error}"
    ) from error


def unmoved(config: Any, moved: float, allowed: float) -> None:
    """Refuse a model that computes something else through us than by itself."""
    if not moved <= allowed:
        raise ValueError(
            "model must compute through this package what it computes by itself, got "
            f"{config.model_type!r}, whose attention moves by {moved:.2g} of its size on a random "
            f"prompt, {allowed:.2g} being allowed"
        )


def rotating(whole: bool, kind: str) -> None:
    """Refuse expected attention where queries are no projections that are rotated as a whole."""
    if not whole:
        raise ValueError(
            "model must rotate its projected queries as a whole, half beside half, for expected "
            f"attention, got {kind!r}, which does otherwise; every other scorer takes it"
        )


def attached(found: str | None) -> None:
    """Refuse a model that does not attend through our function."""
    if found is not None:
        raise ValueError(
            f"model must be prepared by `attach(model)`, got attn_implementation {found!r}"
        )


def prepared(by_attach: bool) -> None:
    """Refuse a model that was told to attend through our function, and no more."""
    if not by_attach:
        raise ValueError("model must be prepared by `attach(model)`, got the name alone")


def model(given: Any) -> None:
    """Refuse what is no language model."""
    if not hasattr(given, "get_decoder"):
        raise TypeError(f"model must be a causal language model of transformers, got {given!r}")


def learned_prompt(model: Any) -> None:
    """Refuse an adapter whose trained entries take the place of a cache that is given."""
    adapter = getattr(model, "active_peft_config", None)
    if adapter is not None and adapter.is_prompt_learning:
        raise ValueError(
            "model must have no adapter that learns a prompt, since it replaces the cache it is "
            f"given, got {adapter.peft_type}"
        )


def unvaried(dropout: float, variants: dict[str, Any]) -> None:
    """Refuse what changes attention beyond softmax over the prefix."""
    if dropout:
        raise ValueError(f"dropout must be 0, got {dropout}: call `model.eval()`")
    for name in ("sliding_window", "position_bias", "cache"):
        if variants.get(name) is not None:
            raise ValueError(f"{name} must be None, got {type(variants[name]).__name__}")
    if variants.get("is_causal") is False:
        raise ValueError("is_causal must be True, got False")


def mask(valid: Any, batch: int, tokens: int) -> None:
    """Refuse an attention mask that is not one flag for each token seen so far."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.shape != (batch, tokens)):
        got = tuple(valid.shape) if isinstance(valid, Tensor) else type(valid).__name__
        raise ValueError(
            "attention_mask must have a flag for every token seen so far and every new one, shape "
            f"{(batch, tokens)}, got {got}; `generate` takes all tokens, those in the cache first"
        )


def flags(valid: Any) -> None:
    """Refuse an attention mask of queries × tokens."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.ndim != 2):
        got = tuple(valid.shape) if isinstance(valid, Tensor) else type(valid).__name__
        raise ValueError(
            f"attention_mask must be of shape (batch, tokens), got {got}: a mask of queries × "
            "tokens, as models of text and images make it, is not supported"
        )


def overlaid(by_more: bool) -> None:
    """Refuse a mask that takes away or adds more than causality."""
    if by_more:
        raise ValueError(
            "position_ids must count on in every row, got some that start again: sequences that "
            "are packed into one row are not supported; batch them with an attention_mask"
        )


def nothing_new(seen: int) -> NoReturn:
    """Refuse tokens that a cache has seen, all of them."""
    raise ValueError(
        f"input_ids must hold a new token behind the {seen} that the cache has seen, got those "
        "alone: append the token that the last logits name"
    )


def some_new(new: Tensor, seen: int) -> None:
    """Refuse a call without tokens."""
    if not new.shape[1]:
        raise ValueError(
            f"input_ids must hold the {seen} tokens that the cache has seen, and new ones behind "
            "them, got fewer; a model called without `generate` takes the new ones alone"
        )


def remembered(flags: Tensor, known: Tensor | None) -> None:
    """Refuse a mask that tells of the tokens seen what it did not tell before."""
    if not bool((flags if known is None else flags == known).all()):
        raise ValueError(
            "attention_mask must be what it was for the tokens that the cache has seen, got another"
        )


def going_on(places: Tensor, expected: Tensor, flags: Tensor) -> None:
    """Refuse positions that do not count on in every row."""
    wrong = (places != expected) & flags
    if bool(wrong.any()):
        raise ValueError(
            f"position_ids must count on in every row from what the cache has seen, at "
            f"{expected[wrong][0].item()}, got {places[wrong][0].item()}: input_ids must be the "
            "tokens seen and new ones behind them, and sequences that are packed into one row are "
            "not supported"
        )


def interrupted(broken: bool) -> None:
    """Refuse a cache that some layers went on with and others did not."""
    if broken:
        raise ValueError(
            "past_key_values must hold what a whole call of an attached model left, got entries "
            "that were put there by `update` (as prefix tuning does) or by a call that failed: "
            "make a new cache"
        )


def growing(rotary: Any, before: int, after: int) -> None:
    """Refuse a length beyond which a rotary embedding turns by other angles."""
    kind = getattr(rotary, "rope_type", "default")
    if not isinstance(kind, str):  # one a kind of layer
        kind = next((one for one in kind.values() if "dynamic" in one), "default")
    if kind == "longrope":
        limit = rotary.config.rope_parameters["original_max_position_embeddings"]
        changed = before <= limit < after
    elif "dynamic" in kind:
        limit = rotary.original_max_seq_len
        changed = limit < after
    else:
        return
    if changed:
        raise ValueError(
            f"model must turn all keys by the same angles, got a rotary embedding {kind!r} whose "
            f"angles change beyond {limit} tokens, with {before} in the cache and {after} after "
            "this call"
        )


def unread(read: bool) -> None:
    """Refuse to fill a cache that only `prefill` fills."""
    if not read:
        raise ValueError(
            "past_key_values must hold a prompt that `prefill` read, got an empty EvictionCache, "
            "of which nothing would be evicted: call `prefill`, then `compress` or `evict`; "
            "HexTransformersCache and DecodingTransformersCache need neither"
        )


def same_batch(new: Tensor, batch: int) -> None:
    """Refuse tokens of another batch than the cache's."""
    if new.shape[0] != batch:
        raise ValueError(
            f"input_ids must have the cache's batch size {batch}, got {new.shape[0]}: "
            "beams and num_return_sequences > 1 over a filled cache are not supported"
        )


def padding(valid: Tensor, known: Tensor | None) -> None:
    """Refuse to count padding among the tokens."""
    if known is not None and bool((valid & ~known).any()):
        raise ValueError("valid must be False at the padding that was read, got True")


def masks(kept: Sequence[Tensor], shapes: list[tuple[int, ...]], valid: Tensor | None) -> None:
    """Refuse kept masks that do not fit the cache, or keep padding."""
    one_a_layer("kept", kept, len(shapes))
    for index, (one, shape) in enumerate(zip(kept, shapes, strict=True)):
        errors.boolean(f"kept[{index}]", one, shape)
        if valid is not None and bool((one & ~valid[:, None]).any()):
            raise ValueError(f"kept[{index}] must be False at padding, got True")


def unsupported(what: str, instead: str) -> NoReturn:
    """Refuse an operation on one of our caches."""
    raise NotImplementedError(f"{what} is not supported on a compressed cache; {instead}")


one_of = errors.one_of


def token_ids(ids: Tensor, valid: Tensor | None) -> None:
    """Refuse what is not a batch of token ids with a mask of its shape."""
    if not isinstance(ids, Tensor) or ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
        got = f"{tuple(ids.shape)}, {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(
            f"input_ids must be integers of shape (batch, tokens), not empty, got {got}"
        )
    if valid is not None:
        errors.shaped("attention_mask", valid, ids.shape)
        false_on_the_left("attention_mask", valid.to(torch.bool))


def watchers(watch: Any) -> None:
    """Refuse what is no list of functions."""
    if not isinstance(watch, Sequence) or not all(map(callable, watch)):
        raise TypeError(f"watch must be a list of functions, got {watch!r}")


def unwatched(watched: bool, name: str) -> None:
    """Refuse to score a prompt that the scorer did not watch."""
    if not watched:
        raise ValueError(
            f"prompt must be one that {name} watched, got another: "
            "`prefill(model, ids, watch=[scorer.watch])`"
        )


def settings(name: str, given: dict[str, Any], known: Sequence[str]) -> None:
    """Refuse settings that a scorer does not have."""
    if given and not known:
        raise ValueError(f"settings of {name} must be left out, got {', '.join(given)}")
    for setting in given:
        errors.one_of(f"settings of {name}", setting, tuple(sorted(known)))


def chunk(size: int | None) -> None:
    """Refuse a chunk without tokens."""
    if size is not None:
        errors.must_be("chunk", size, Positive)


def one_a_layer(name: str, values: Sequence[object] | Tensor, count: int) -> None:
    """Refuse what is not one thing for each layer."""
    if len(values) != count:
        raise ValueError(
            f"{name} must have one entry for each of {count} layers, got {len(values)}"
        )


def rotary(embedding: Any) -> None:
    """Refuse rotary embeddings that turn by other than fixed angles."""
    scaling = getattr(embedding, "attention_scaling", 1.0)
    kind = getattr(embedding, "rope_type", "default")
    if scaling != 1.0 or kind not in ("default", "linear", "llama3"):
        raise ValueError(
            "model must have a rotary embedding of type 'default', 'linear' or 'llama3' for "
            f"expected attention, got {kind!r} with attention scaling {scaling}"
        )


def scope(
    compressor: Callable[..., Any], name: str | None, budgets: Tensor | None
) -> dict[str, str]:
    """Refuse a scope that a compressor does not have; return what it is to be told."""
    known = signature(compressor).parameters.get("scope")
    if known is not None:
        name = known.default if name is None else name
        errors.one_of("scope", name, SCOPES)
        if name == "model" and budgets is not None:
            raise ValueError("scope must be 'head' or 'layer' with budgets, got 'model'")
        return {"scope": str(name)}
    if name not in (None, "head"):
        raise ValueError(f"scope must be 'head' for {compressor.__name__}, got {name!r}")
    return {}


def refined(
    compressor: Callable[..., Any], refinement: Any, scores: Sequence[Scored], valid: Tensor | None
) -> None:
    """Refuse scores that cannot be refined, before any layer is, and say what helps."""
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


def unrefined(name: str, refinement: Any, score: str) -> None:
    """Refuse to refine scores that are negative by definition."""
    if refinement is not None:
        raise ValueError(
            f"{name} must be None with score {score!r}, whose scores are negative, got {refinement}"
        )


def no_new_padding(real: Tensor) -> None:
    """Refuse padding after the prompt."""
    if not bool(real.all()):
        raise ValueError("attention_mask must be 1 at every token after the prompt, got a 0")


def system(given: Any) -> None:
    """Refuse what is neither a name nor a scorer nor settings."""
    if not isinstance(given, HexConfig):
        raise TypeError(f"system must be a name, a Scorer or a HexConfig, got {given!r}")


def refinement(given: Any, kinds: tuple[type, ...]) -> None:
    """Refuse settings of no refinement."""
    if not isinstance(given, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"refined must be one of {names}, got {given!r}")


def unranked(name: str, refined: Any, ranks: bool) -> None:
    """Refuse a refinement of a system that ranks nothing."""
    if refined is not None and not ranks:
        raise ValueError(f"refined must be None for {name!r}, which ranks nothing, got {refined}")


def inputs(ids: Any, others: dict[str, Any]) -> None:
    """Refuse inputs that say more than ids and a mask do."""
    if ids is None:
        raise TypeError("input_ids must be given: `compressed(model, system, **tokenizer(text))`")
    for name in others:
        if name != "token_type_ids":
            raise TypeError(
                "inputs must be input_ids and attention_mask, or an option of `compressed`, got "
                f"{name!r}; settings of a scorer go to settings={{{name!r}: ...}}"
            )


def budgeted(name: str, evicts: bool, ratio: float | None, keep: int | None) -> None:
    """Refuse a system that evicts without a budget, and a budget for one that does not."""
    given = [one for one in (ratio, keep) if one is not None]
    if len(given) != evicts:
        wanted = "one of ratio and keep" if evicts else "neither ratio nor keep"
        raise ValueError(f"{name!r} must be given {wanted}, got ratio={ratio} and keep={keep}")
    if ratio is not None:
        errors.must_be("ratio", ratio, Ratio)
    if keep is not None:
        errors.must_be("keep", keep, Positive)


def at_once(name: str, chunk: int | None) -> None:
    """Refuse to read a prompt in pieces into a cache that takes later ones for new tokens."""
    if chunk is not None:
        raise ValueError(f"chunk must be None for a {name}, whose first call is the prompt")
