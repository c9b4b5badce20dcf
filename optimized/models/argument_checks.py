"""Checks of arguments; a message names the argument, its value and the admissible values."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from typing import Any, get_args

import torch
from torch import Tensor, nn

from optimized import HubSettings, Scored
from optimized.models.layer import key_heads_and_width
from reference.contract import checks
from reference.contract.enforce import shown
from reference.contract.types import Scope
from reference.refinement import require_finite_scores

TYPES = ("token_type_ids", "mm_token_type_ids")
"""Inputs that hold the type of each token."""
TEXT = ("position_ids", "past_key_values", "inputs_embeds", "labels", "use_cache")
TEXT += ("logits_to_keep", "cache_position")
PLACEHOLDERS = ("image", "video", "audio", "boi", "eoi", "vision_start", "vision_end")
SCOPES: tuple[Scope, ...] = get_args(Scope)
OF_ONE_LAYER: tuple[Scope, ...] = SCOPES[:2]


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the closest name, if one is close."""
    near = get_close_matches(given, list(names), n=1)
    bits = re.fullmatch(r"(hex|kcvt|kivi)-([1-8])", given)  # a store whose name has other bits
    more = f" with settings={{'bits': {bits[2]}}}" if bits else ""
    return f": did you mean {near[0]!r}{more}?" if near else ""


def require_known_name(what: str, given: Any, names: Collection[str]) -> None:
    """Refuse a name that is not among `names`, and suggest the closest one."""
    if not isinstance(given, str) or given not in names:
        near = did_you_mean(given, names) if isinstance(given, str) else ""
        got = type(given).__name__ if isinstance(given, nn.Module) else shown(given)
        raise ValueError(f"{what} must be one of {', '.join(names)}, got {got}{near}")


def require_flags(mask: Tensor, whole: bool) -> None:
    """Refuse values but 0 and 1, a `whole` mask of zeros, and a row of zeros in floats."""
    floats = mask.is_floating_point()
    blank = (whole and not bool(mask.any())) or (floats and not bool(mask.any(-1).all()))
    if blank or not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(
            "attention_mask must be 1 at tokens, which each row has, and 0 at padding, got values "
            f"of {mask.min().item()} to {mask.max().item()} in {mask.dtype}: it is not added"
        )


def require_left_padding(name: str, mask: Tensor) -> None:
    """Refuse padding after a token of its row."""
    behind = (mask[..., :-1] & ~mask[..., 1:]).nonzero()
    if len(behind):
        raise ValueError(
            f"{name} must have its padding, 0, on the left of each row, got 0 after 1 at position "
            f"{int(behind[0, -1]) + 1}: set `tokenizer.padding_side = 'left'`"
        )


def require_ids_in_vocabulary(model: Any, ids: Tensor, name: str = "input_ids") -> None:
    """Refuse ids that a model has no embedding for."""
    size = len(next(model.get_input_embeddings().parameters()))
    lowest, highest = ids.aminmax()
    if lowest < 0 or highest >= size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"{name} must be in the model's vocabulary, 0 to {size - 1}, got {wrong}: is the "
            "tokenizer this model's?"
        )


def require_token_ids(ids: Tensor, valid: Tensor | None) -> None:
    """Refuse ids that are not a batch of integers, and a mask of another shape."""
    if isinstance(ids, Tensor) and ids.is_meta:
        raise ValueError(
            "input_ids must be on a device that holds data, got meta: `input_ids.to(model.device)`"
        )
    tensor = isinstance(ids, Tensor)
    integers = tensor and not ids.is_floating_point() and ids.dtype != torch.bool
    if not integers or ids.ndim != 2 or not ids.numel():
        got = f"{tuple(ids.shape)}, {ids.dtype}" if tensor else type(ids).__name__
        says = "`tokenizer(text, return_tensors='pt')` returns such"
        if isinstance(ids, Mapping):
            says = "unpack what a tokenizer returns, `compressed(model, system, **inputs)`"
        elif integers and ids.ndim == 1:
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
    device = next(embedding.parameters()).device
    if ids.device != device and not any(hasattr(x, "_hf_hook") for x in (model, embedding)):
        raise ValueError(
            f"input_ids must be on the device of the model, {device}, got {ids.device}: "
            "`input_ids.to(model.device)`"
        )


def require_known_settings(name: str, given: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Refuse settings that a scorer does not have."""
    if given and not settings:
        raise ValueError(f"settings of {name} must be left out, got {', '.join(given)}")
    for setting in given:
        require_known_name(f"settings of {name}", setting, sorted(settings))


def require_one_per_layer(name: str, values: Sequence[object] | Tensor, count: int) -> None:
    """Refuse a list without exactly one entry for each layer."""
    if len(values) != count:
        raise ValueError(
            f"{name} must have one entry for each of {count} layers, got {len(values)}"
        )


def require_one_per_head(name: str, values: Sequence[Sequence[object]], config: Any) -> None:
    """Refuse a list for each layer without exactly one entry for each key head."""
    heads = key_heads_and_width(config)[0]
    for index, part in enumerate(values):
        if len(part) != heads:
            raise ValueError(
                f"{name}[{index}] must have one entry for each of {heads} key heads, got "
                f"{len(part)}"
            )


def layers_by_index(name: str, given: Any, count: int) -> frozenset[int]:
    """Return the indices of some layers, counted from the first; refuse all of them."""
    if not isinstance(given, Sequence) or not all(type(x) is int for x in given):
        raise TypeError(f"{name} must be a list of integers, as (0, 1, -2, -1), got {given!r}")
    for index in given:
        if not -count <= index < count:
            raise ValueError(
                f"{name} must be in {-count} … {count - 1}, for {count} layers that see the whole "
                f"text, got {index}"
            )
    chosen = frozenset(index % count for index in given)
    if len(chosen) == count:
        raise ValueError(f"{name} must leave a layer to compress, got all {count}: take 'full'")
    return chosen


def scope_argument(
    compressor: Callable[..., Any], name: str | None, budgets: Tensor | None
) -> dict[str, str]:
    """Return the compressor's argument for a scope; refuse a scope that it does not have."""
    parameter = signature(compressor).parameters.get("scope")
    if parameter is not None:
        name = parameter.default if name is None else name
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
        for scored in scores:
            require_finite_scores(scored, chosen, valid)
    except ValueError as error:
        helps = "`shift_scores`, or `scorer('knorm', model, shift=True)`"
        raise ValueError(f"{error}; to shift scores below 0, use {helps}") from error


def check_image_inputs(model: Any, ids: Tensor, looked: dict[str, Any], chunk: int | None) -> None:
    """Refuse image ids without the images, images in chunks, and inputs of another type."""
    taken = signature(model.forward).parameters
    for name, value in looked.items():
        if name not in taken or not isinstance(value, Tensor):
            raise TypeError(
                f"inputs must be tensors that {type(model).__name__} takes, got {name!r}: "
                f"{type(value).__name__}"
            )
    if looked:
        reject_chunking(f"with {', '.join(looked)}", chunk)
    else:
        require_text(model.config, ids)


def require_text(config: Any, ids: Tensor) -> None:
    """Refuse placeholder ids of images, videos or sound."""
    for kind in PLACEHOLDERS:
        for name in (f"{kind}_token_id", f"{kind}_token_index"):
            token = getattr(config, name, None)
            if isinstance(token, int) and bool((ids == token).any()):
                raise ValueError(
                    f"input_ids must be text, got the model's {name} {token}: pass the "
                    "other outputs of the processor, too (`pixel_values` and the like)"
                )


def reject_chunking(what: str, chunk: int | None) -> None:
    """Refuse `chunk` where the prompt must be read in one call."""
    if chunk is not None:
        raise ValueError(f"chunk must be None {what}, got {chunk}: the prompt is read in one call")
