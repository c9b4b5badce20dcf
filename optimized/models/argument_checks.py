"""Checks of arguments; a message names the argument, its value and the admissible values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from inspect import signature
from typing import Any, NoReturn, get_args

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache

from optimized import DecodingConfig, HexConfig, HubSettings, Scored
from reference.contract import checks
from reference.contract.enforce import compiled, shown
from reference.contract.types import Finite, Positive, Scope
from reference.refinement import require_finite_scores

SCOPES: tuple[Scope, ...] = get_args(Scope)
OF_ONE_LAYER: tuple[Scope, ...] = SCOPES[:2]


def compile_settings_check(kind: type) -> Callable[[Any], None]:
    """Return a check that settings are a `kind`, with every field inside its range."""
    check = compiled("settings", kind)
    return lambda given: check(given, {})


check_hex_settings, check_decoding_settings = (
    compile_settings_check(HexConfig),
    compile_settings_check(DecodingConfig),
)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the closest known name, if one is close."""
    near = get_close_matches(given, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def quoted_type(config: Any) -> str:
    """Return the type of a model, quoted, for messages."""
    return repr(getattr(config, "model_type", type(config).__name__))


def shape_or_type(given: Any) -> Any:
    """Return the shape of a tensor, or the type of any other object."""
    return tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__


def require_known_name(what: str, given: Any, known: Iterable[str]) -> None:
    """Refuse an unknown name, and suggest the closest known one."""
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


def require_known_layers(config: Any, layers: Sequence[object]) -> None:
    """Refuse layers of an unknown kind, and models without a layer that sees the whole text."""
    kinds, named = [type(layer).__name__ for layer in layers], quoted_type(config)
    others = sorted(set(kinds) - set(KNOWN))
    if others:
        raise ValueError(
            "model must have layers that cache keys and values, of all tokens or a window, or a "
            f"state, got {named} with {', '.join(others)}"
        )
    if any("Linear" in kind for kind in kinds) and not hasattr(Cache, "get_conv_state"):
        raise ValueError(
            "model must have only attention layers with this version of transformers, got "
            f"{named} with recurrent states: update transformers to 5.23 or later"
        )
    if not set(WHOLE) & set(kinds):
        windows = [
            vars(layer)["sliding_window"] for layer in layers if "Window" in str(type(layer))
        ]
        window = f"a window of {min(windows)} tokens" if windows else "a state and no keys"
        lifts = ""
        if windows and can_lift_window(config):
            lifts = "; sliding_window=None in its configuration lifts the window"
        raise ValueError(
            "model must have a layer that sees the whole text, got "
            f"{named} with {window} in every layer, which keeps no other tokens{lifts}"
        )


def can_lift_window(config: Any) -> bool:
    """Return whether `sliding_window=None` is allowed and makes layers see the whole text."""
    free = deepcopy(config)
    try:
        free.get_text_config(decoder=True).sliding_window = None
        layers = DynamicCache(config=free).layers
    except (TypeError, ValueError, StrictDataclassError):
        return False
    return any(type(layer).__name__ in WHOLE for layer in layers)


def reject_shared_keys(config: Any, layers: Sequence[Any]) -> None:
    """Refuse a model whose layers reuse another layer's keys, where the cache cannot share."""
    modes = getattr(config.get_text_config(decoder=True), "kv_sharing_modes", None) or ()
    ours = next(layer for layer in layers if hasattr(layer, "shares"))
    if "reuse" in modes and not ours.shares:
        raise ValueError(
            "model must have keys in every layer for a system that stores codes, or that "
            f"compresses again, got {config.model_type!r}, some of whose layers attend to the keys "
            "of another: use a system that evicts once"
        )


def reject_latent_attention(rows: bool) -> None:
    """Refuse multi-head latent attention in a cache that stores keys and values of heads."""
    if rows:
        raise ValueError(
            "model must cache keys and values of its heads to store them in codes or to evict "
            "while decoding, got multi-head latent attention, which caches one row for all heads: "
            "a scorer with or without a refinement is admissible, without `interval` and `>`"
        )


def require_language_model(model: Any) -> None:
    """Refuse an object that is not a causal language model."""
    decodes = hasattr(model, "get_decoder") and not isinstance(model, type)
    if not decodes or model.get_output_embeddings() is None:
        named = type(model).__name__ if isinstance(model, nn.Module) else repr(model)
        says = "load it with `AutoModelForCausalLM.from_pretrained`"
        if isinstance(model, nn.DataParallel):
            says = "pass the model inside it, `model.module`"
        raise TypeError(
            f"model must be a causal language model of transformers, got {named}: {says}"
        )
    shards = any(hasattr(x, "device_mesh") for x in model.parameters())  # of DTensor
    if shards or (getattr(model, "_tp_size", None) or 1) > 1:
        raise ValueError(
            "model must be whole in one process, got weights that are sharded over ranks (tensor "
            "parallelism): load it without `tp_plan`"
        )


def raise_not_a_system(given: Any) -> NoReturn:
    """Raise an error for an object that is not a system, and name the argument it may belong to."""
    got, says = shown(given), ""
    if isinstance(given, Tensor):
        says = ": pass ids after it, `compressed(model, 'kvzip+hubkv', ids, ratio=0.75)`"
    elif isinstance(given, Mapping):
        got = type(given).__name__
        says = ": pass inputs after it, `compressed(model, 'kvzip+hubkv', **inputs, ratio=0.75)`"
    elif isinstance(given, nn.Module):
        got, says = type(given).__name__, ": pass the model before it"
    raise TypeError(f"system must be a name, a Scorer or a HexConfig, got {got}{says}")


LATENT = "kv_a_proj_with_mqa"


def require_names_of_llama(decoder: Any, layers: int, found: Sequence[nn.Module]) -> None:
    """Refuse a decoder without Llama's module names, or whose latent rows are not cached."""
    named = quoted_type(decoder.config)
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


def require_mask_of_all_tokens(valid: Any, batch: int, tokens: int) -> None:
    """Refuse an attention mask without exactly one flag for each token so far."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.shape != (batch, tokens)):
        raise ValueError(
            "attention_mask must have a flag for every token seen so far and every new one, shape "
            f"{(batch, tokens)}, got {shape_or_type(valid)}; `generate` takes all tokens, those in "
            "the cache first"
        )


def require_flags_of_ids(flags: Tensor, ids: Tensor, seen: int) -> None:
    """Refuse a mask, or its positions, of another length than the ids with or without the seen."""
    if flags.shape[-1] not in (ids.shape[1], seen + ids.shape[1]):
        raise ValueError(
            f"attention_mask must have a flag for each of the {ids.shape[1]} ids, got "
            f"{flags.shape[-1]}"
        )


def require_batch_token_mask(valid: Any) -> None:
    """Refuse an attention mask that is not of shape (batch, tokens)."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.ndim != 2):
        raise ValueError(
            f"attention_mask must be of shape (batch, tokens), got {shape_or_type(valid)}: a mask "
            "of queries × tokens, as models of text and images make it, is not supported"
        )


def require_flags(mask: Tensor, whole: bool) -> None:
    """Refuse values but 0 and 1, a `whole` mask of zeros, and a row of zeros in floats."""
    floats = mask.is_floating_point()
    blank = (whole and not bool(mask.any())) or (floats and not bool(mask.any(-1).all()))
    if blank or not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(
            "attention_mask must be 1 at tokens, which each row has, and 0 at padding, got values "
            f"of {mask.min().item()} to {mask.max().item()} in {mask.dtype}: it is not added"
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
        why = ": pass the mask to `compressed`, too" if missing else ""
        raise ValueError(
            "attention_mask must not change for the tokens that the cache has seen, padding "
            f"included, got another{why}"
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
        says = "they count the padding that the cache has read: pass the attention_mask, too"
    elif int(got[0]) == 0:
        says = "leave position_ids out, or continue from the tokens that the cache has seen"
    else:
        says = "tokens are left out; a model called without `generate` takes only new ones"
    raise ValueError(
        "position_ids must continue after the tokens that the cache has seen, at "
        f"{int(meant[first])}, got {int(got[first])}: {says}"
    )


def require_left_padding(name: str, mask: Tensor) -> None:
    """Refuse padding after a token of its row."""
    behind = (mask[..., :-1] & ~mask[..., 1:]).nonzero()
    if len(behind):
        raise ValueError(
            f"{name} must have its padding, 0, on the left of each row, got 0 after 1 at position "
            f"{int(behind[0, -1]) + 1}: set `tokenizer.padding_side = 'left'`"
        )


NUMBERS = [
    compiled(name, Finite[Tensor, "rows heads tokens width"])
    for name in ("queries", "keys", "values")
]


def require_finite_attention_inputs(*new: Tensor) -> None:
    """Refuse queries, keys and values of new tokens that are not finite."""
    for check, one in zip(NUMBERS, new, strict=True):
        check(one, {})


def reject_changing_rotation(rotary: Any, before: int, after: int) -> None:
    """Refuse positions at which a dynamic rotary embedding changes its angles.

    Args:
        rotary: the model's rotary embedding.
        before: the next position before a call.
        after: the next position after it.
    """
    kind = getattr(rotary, "rope_type", "default")
    if not isinstance(kind, str):  # one for each kind of layer
        kind = next((one for one in kind.values() if "dynamic" in one), "default")
    if kind != "longrope" and "dynamic" not in kind:
        return
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


def require_learned_positions(decoder: Any, after: int) -> None:
    """Refuse more tokens, `after` a call, than a model has learned position embeddings."""
    table = getattr(decoder, "embed_positions", None)
    count = getattr(table, "num_embeddings", None)
    if not isinstance(count, int):
        return
    if after > count - getattr(table, "offset", 0):
        raise ValueError(
            "input_ids must have no more tokens than the model has learned positions for, "
            f"{count - getattr(table, 'offset', 0)}, got {after}; repeats by KVzip count, too"
        )


def require_batch_size(new: Tensor, batch: int) -> None:
    """Refuse tokens with another batch size than the cache's."""
    if new.shape[0] != batch:
        raise ValueError(
            f"input_ids must have the cache's batch size {batch}, got {new.shape[0]}: "
            "`cache.batch_repeat_interleave` and `batch_select_indices` change the rows of a cache"
        )


def require_ids_in_vocabulary(ids: Tensor, size: int, name: str = "input_ids") -> None:
    """Refuse ids that a model has no embedding for."""
    lowest, highest = ids.aminmax()
    if lowest < 0 or highest >= size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"{name} must be in the model's vocabulary, 0 to {size - 1}, got {wrong}: is the "
            "tokenizer this model's?"
        )


def require_gates(weights: Any, layers: int) -> None:
    """Refuse to score without a FastKVzip gate for each layer."""
    if not weights:
        raise ValueError(
            "fastkvzip must have gates that were trained for the model, got none: train them with "
            "`optimized.models.fastkvzip_gates.learn_gates(model, prompts)`, and pass them as "
            "settings={'weights': gates} or write them into the model's folder with `save_gates`"
        )
    require_one_per_layer("weights", weights, layers)


one_of = checks.one_of


def require_token_ids(ids: Tensor, valid: Tensor | None) -> None:
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
            says = ": pass a budget as `ratio=0.75`" if isinstance(valid, float | int) else ""
            raise TypeError(f"attention_mask must be a tensor, got {type(valid).__name__}{says}")
        checks.shaped("attention_mask", valid, ids.shape)
        require_flags(valid, whole=True)
        require_left_padding("attention_mask", valid.to(torch.bool))


def require_same_device(model: Any, ids: Tensor) -> None:
    """Refuse ids on another device than the model, unless `accelerate` moves them."""
    embedding = model.get_input_embeddings()
    home = next(embedding.parameters()).device
    if ids.device != home and not any(hasattr(one, "_hf_hook") for one in (model, embedding)):
        raise ValueError(
            f"input_ids must be on the device of the model, {home}, got {ids.device}: "
            "`input_ids.to(model.device)`"
        )


def require_one_device(name: str, weights: Iterable[Tensor]) -> None:
    """Refuse weights on several devices for a system that evicts; they may be put away on none."""
    homes = sorted({str(one.device) for one in weights if not one.is_meta})
    if len(homes) > 1:
        raise ValueError(
            f"model must be on one device for {name!r}, which compares entries of all layers, got "
            f"{' and '.join(homes)}: load it without `device_map`, or take a quantiser"
        )


def require_known_settings(name: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse settings that a scorer does not have."""
    if given and not known:
        raise ValueError(f"settings of {name} must be left out, got {', '.join(given)}")
    for setting in given:
        require_known_name(f"settings of {name}", setting, sorted(known))


def require_one_per_layer(name: str, values: Sequence[object] | Tensor, count: int) -> None:
    """Refuse a list without exactly one entry for each layer."""
    if len(values) != count:
        raise ValueError(
            f"{name} must have one entry for each of {count} layers, got {len(values)}"
        )


def scope_argument(
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
            require_finite_scores(one, chosen, valid)
    except ValueError as error:
        helps = "`shift_scores`, or `scorer('knorm', model, shift=True)`"
        raise ValueError(f"{error}; to shift scores below 0, use {helps}") from error


TYPES = ("token_type_ids", "mm_token_type_ids")
"""Inputs that hold the type of each token."""
TEXT = ("position_ids", "past_key_values", "inputs_embeds", "labels", "use_cache")
TEXT += ("logits_to_keep", "cache_position")


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
        reject_chunking(f"with {', '.join(looked)}", chunk)
    else:
        require_text(model.config, ids)


def require_text(config: Any, ids: Tensor) -> None:
    """Refuse placeholder ids of images, videos or sound."""
    for kind in PLACES:
        for name in (f"{kind}_token_id", f"{kind}_token_index"):
            place = getattr(config, name, None)
            if isinstance(place, int) and bool((ids == place).any()):
                raise ValueError(
                    f"input_ids must be text, got the model's {name} {place}: pass the "
                    "other outputs of the processor, too (`pixel_values` and the like)"
                )


def require_budget(system: Any, interval: Any, ratio: Any, keep: Any) -> None:
    """Refuse a budget that does not suit a system, or that is outside its range."""
    evicts = system.evicts or interval is not None
    given = [one for one in (ratio, keep) if one is not None]
    if len(given) != evicts:
        wanted = "one of ratio and keep" if evicts else "neither ratio nor keep"
        why = "" if evicts else ": it evicts nothing"
        raise ValueError(
            f"{system.name!r} must be given {wanted}, got ratio={ratio} and keep={keep}{why}"
        )
    for one in ratio if is_layered(ratio) else [ratio]:
        checks.must_be("ratio", one, float | None)
        if one is not None and not 0 <= one < 1:
            raise ValueError(
                f"ratio must be at least 0 and below 1, got {one}: it is the share that is removed"
            )
    for one in keep if is_layered(keep) else [keep]:
        if isinstance(one, float):
            raise TypeError(
                f"keep must be an integer, the number of entries a head keeps, got {one}: the "
                "share that is removed is `ratio`"
            )
        checks.must_be("keep", one, Positive | None)
    layered = is_layered(ratio) or is_layered(keep)
    if layered and interval is not None:
        raise ValueError("ratio and keep must be one number with an interval, got one per layer")
    if layered and system.shares_budget:
        raise ValueError(
            f"ratio and keep must be one number for {system.scorer!r}, which shares the "
            "budget among layers itself, got one per layer"
        )


def is_layered(budget: Any) -> bool:
    """Return whether a ratio or a budget has one number for each layer."""
    return isinstance(budget, Sequence) and not isinstance(budget, str)


def reject_compression_interval(name: str, interval: int | None, why: str) -> None:
    """Refuse `interval` for a system that cannot be compressed repeatedly."""
    if interval is not None:
        raise ValueError(f"interval must be None for {name!r}, got {interval}: {why}")


def reject_chunking(what: str, chunk: int | None) -> None:
    """Refuse `chunk` where the prompt must be read in one call."""
    if chunk is not None:
        raise ValueError(f"chunk must be None {what}, got {chunk}: the prompt is read in one call")
