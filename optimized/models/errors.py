"""What the plug-in refuses: the argument, its value, what is admissible."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NoReturn

import torch
from torch import Tensor

from reference import errors

# Decoder-only models with rotary positions and grouped queries whose attention is the whole prefix.
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


def architecture(config: Any) -> None:
    """Refuse a model whose attention is not causal attention over its whole prefix."""
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"model must be a decoder alone, one of {listed(ARCHITECTURES)}, got "
            f"{config.model_type!r}, an encoder-decoder"
        )
    if config.model_type not in ARCHITECTURES:
        raise ValueError(f"model must be one of {listed(ARCHITECTURES)}, got {config.model_type!r}")
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    if getattr(config, "sliding_window", None) is not None or set(kinds) != {"full_attention"}:
        window = getattr(config, "sliding_window", None)
        raise ValueError(
            "model must attend to its whole prefix in every layer (sliding_window=None), got "
            f"{config.model_type!r} with sliding_window={window} and layers {listed(set(kinds))}"
        )


def attached(model: Any, name: str) -> None:
    """Refuse a model that does not attend through our function."""
    found = model.config._attn_implementation
    if found != name:
        raise ValueError(
            f"model must use attn_implementation {name!r}, got {found!r}: "
            "call `attach(model)` first"
        )


def scaling(scale: float | None, width: int) -> None:
    """Refuse logits that are not divided by the root of the head width."""
    if scale is not None and abs(scale * width**0.5 - 1) > 1e-6:
        raise ValueError(f"scaling must be 1/sqrt({width}) = {width**-0.5:.6g}, got {scale:.6g}")


def plain(dropout: float, variants: dict[str, Any]) -> None:
    """Refuse what changes attention beyond softmax over the prefix."""
    if dropout:
        raise ValueError(f"dropout must be 0, got {dropout}: call `model.eval()`")
    for name in ("sliding_window", "softcap", "s_aux", "position_bias", "cache"):
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
            f"{(batch, tokens)}, got {got}; `generate` needs a new token behind a filled cache"
        )


def flags(valid: Tensor | None) -> None:
    """Refuse an attention mask of queries × tokens."""
    if valid is not None and valid.ndim != 2:
        raise ValueError(
            f"attention_mask must be of shape (batch, tokens), got {tuple(valid.shape)}: a mask of "
            "queries × tokens is not supported"
        )


def overlaid(by_more: bool) -> None:
    """Refuse a mask that takes away or adds more than causality."""
    if by_more:
        raise ValueError(
            "position_ids must count on in every row, got some that start again: sequences that "
            "are packed into one row are not supported; batch them with an attention_mask"
        )


def static(tokens: int, seen: int) -> None:
    """Refuse a cache that has room for more tokens than it was given."""
    if tokens != seen:
        raise ValueError(
            f"past_key_values must hold as many tokens as were seen, {seen}, got room for {tokens}"
            ": a static cache is not supported"
        )


def left_padded(valid: Tensor) -> None:
    """Refuse padding that is not on the left."""
    if bool((valid[:, :-1] & ~valid[:, 1:]).any()):
        raise ValueError("attention_mask must be 0 on the left only, got a 0 after a 1")


def no_padding(valid: Tensor | None) -> None:
    """Refuse padding."""
    if valid is not None and not bool(valid.all()):
        raise ValueError(
            "attention_mask must be all ones, got padding: a span that is quantised has the same "
            "tokens in every row; batch prompts of one length"
        )


def joins(new: Tensor, batch: int) -> None:
    """Refuse tokens of another batch than the cache's."""
    if new.shape[0] != batch:
        raise ValueError(
            f"input_ids must have the cache's batch size {batch}, got {new.shape[0]}: "
            "beams and num_return_sequences > 1 over a filled cache are not supported"
        )


def masks(kept: Sequence[Tensor], shapes: list[tuple[int, ...]], valid: Tensor | None) -> None:
    """Refuse kept masks that do not fit the cache, or keep padding."""
    layers("kept", kept, len(shapes))
    for index, (one, shape) in enumerate(zip(kept, shapes, strict=True)):
        errors.boolean(f"kept[{index}]", one, shape)
        if valid is not None and bool((one & ~valid[:, None]).any()):
            raise ValueError(f"kept[{index}] must be False at padding, got True")


def unsupported(what: str, instead: str) -> NoReturn:
    """Refuse an operation on a compressed cache."""
    raise NotImplementedError(f"{what} is not supported on a compressed cache; {instead}")


one_of = errors.one_of


def token_ids(ids: Tensor, valid: Tensor | None) -> None:
    """Refuse what is not a batch of token ids with a mask of its shape."""
    if not isinstance(ids, Tensor) or ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
        got = f"{tuple(ids.shape)}, {ids.dtype}" if isinstance(ids, Tensor) else repr(ids)
        raise ValueError(
            f"input_ids must be integers of shape (batch, tokens), not empty, got {got}"
        )
    if valid is not None:
        errors.shaped("attention_mask", valid, ids.shape)
        left_padded(valid.to(torch.bool))


def listed(names: Any) -> str:
    """Return names as `'a', 'b'`."""
    return ", ".join(repr(name) for name in sorted(names))


def chunk(size: int | None) -> None:
    """Refuse a chunk without tokens."""
    if size is not None:
        errors.whole("chunk", size, 1)


def layers(name: str, values: Sequence[object] | Tensor, count: int) -> None:
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


def scope(compressor: Callable[..., Any], name: str, budgets: Tensor | None) -> dict[str, str]:
    """Refuse a scope that a compressor does not have; return what it is to be told."""
    if "scope" in signature(compressor).parameters:
        errors.one_of("scope", name, ("head", "layer", "model"))
        if name == "model" and budgets is not None:
            raise ValueError("scope must be 'head' or 'layer' with budgets, got 'model'")
        return {"scope": name}
    if name != "head":
        raise ValueError(f"scope must be 'head' for {compressor.__name__}, got {name!r}")
    return {}


def alike(name: str, budgets: Tensor) -> None:
    """Refuse batch rows of different budgets."""
    if bool((budgets != budgets[:1]).any()):
        raise ValueError(f"{name} must be the same in every batch row, got {budgets.tolist()}")


def listening(hidden: Tensor | None, keys: Tensor) -> None:
    """Refuse a gate that does not hear the hidden states of the new tokens."""
    if hidden is None or hidden.shape[1] != keys.shape[2]:
        raise ValueError(
            "score must be 'h2o', 'knorm' or 'streaming_llm' outside `cache.listening(model)`, "
            "got 'fastkvzip'"
        )


def no_new_padding(valid: Tensor | None, new: int) -> None:
    """Refuse padding after the prompt."""
    if valid is not None and not bool(valid[:, -new:].all()):
        raise ValueError("attention_mask must be 1 at every token after the prompt, got a 0")
