"""Attach a model: let our caches hear of its calls, and attend for its layers."""

import threading
from collections.abc import Callable
from inspect import signature
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from optimized.models import errors as refuse
from optimized.models.attention import (
    NAME,
    Attentive,
    attentions,
    decoder_of,
    expand_alone,
    expand_for_ours,
    hand_over,
    home_of,
    implementation,
    registered,
)
from optimized.models.kinds import PreTrainedModel
from optimized.models.self_check import Proof, proven

ONE_AT_A_TIME = threading.RLock()
"""Threads attach and detach one after another; a model that runs meanwhile is not held up."""


class Attachment:
    """What a decoder calls before it runs: it tells our caches what the call brings."""

    def __init__(self, own: str, shown: Proof, mark: int) -> None:
        self.mark = mark
        """What tells the model from others of its shape."""
        self.own = own
        """The attention that the model had."""
        self.shown = shown

    def __call__(
        self, decoder: nn.Module, given: tuple[Any, ...], inputs: dict[str, Any] | None = None
    ) -> tuple[tuple[()], dict[str, Any]] | None:
        """Tell the cache what a call of the decoder brings."""
        if inputs is None:  # a call that runs while this is registered: it has no cache of ours
            return None
        if given:
            inputs = dict(zip(signature(decoder.forward).parameters, given, strict=False)) | inputs
        cache = inputs.get("past_key_values")
        if not isinstance(cache, Attentive):
            return None
        cache.belongs(self.mark, self.shown.carries, self.shown.layers)
        refuse.weights(inputs.get("output_attentions"))
        return (), cache.expect(decoder, inputs)


class Beginning:
    """What a model prepares calls of `generate` with: at the first, a cache is shown all ids."""

    def __init__(self, prepare: Callable[..., Any], config: Any) -> None:
        self.prepare, self.config = prepare, config
        self.__signature__ = signature(prepare)  # `generate` looks at it

    def __call__(self, input_ids: Tensor, *given: Any, **more: Any) -> Any:
        """Prepare a call."""
        cache, first = more.get("past_key_values"), more.get("is_first_iteration")
        every = more.get("next_sequence_length") is not None  # and not the new ids alone
        if isinstance(cache, Attentive):
            refuse.uncached(more.get("use_cache"))
        if isinstance(cache, Attentive) and first and every:
            cache.begins(input_ids)
            if seen := cache.get_seq_length():
                refuse.ends_in_text(more.get("attention_mask"))
                read = (*cache.looked, "mm_encoder_outputs")
                more = {name: x for name, x in more.items() if name not in read}
            refuse.text_alone(self.config, input_ids[:, seen:])
            if not getattr(more.get("token_type_ids"), "any", bool)():
                more.pop("token_type_ids", None)  # text alone: no mask for images is made of them
        return self.prepare(input_ids, *given, **more)


def attach(model: PreTrainedModel) -> PreTrainedModel:
    """Let a model attend to our caches, after a check that it computes the same.

    The check runs a short random prompt: in every layer that sees the whole text, attention
    through this package must give what the model's own file gives.

    Args:
        model: a causal language model of `transformers`. Each of its layers sees the whole text or
            a window of it, and one at least the whole text.

    Returns:
        The same model. Over every cache but ours it goes on to attend as it did.

    Raises:
        TypeError: it is no model of `transformers`.
        ValueError: the model computes something else, has layers of another kind, or an adapter
            that puts trained entries before the prompt's.
    """
    adapter = getattr(model, "active_peft_config", None)
    if adapter is not None and adapter.is_prompt_learning:
        raise ValueError(
            "model must have no adapter that learns a prompt, since it replaces the cache it is "
            f"given, got {adapter.peft_type}"
        )
    refuse.no_model(model)
    if home_of(model).type == "meta":
        raise ValueError("model must have weights, got a model on the device 'meta'")
    with ONE_AT_A_TIME:
        known, decoder = attachment(model), decoder_of(model)
        if known is None:
            own = implementation(decoder)
            known = Attachment(own, proven(model), mark_of(model))
            modules = attentions(decoder)
            for one in modules:
                expand_for_ours(one)
            hooked = ((decoder, known), *((one, hand_over) for one in modules))
            for module, hook in hooked:
                module.register_forward_pre_hook(hook, with_kwargs=True)
            prepare: Any = model.prepare_inputs_for_generation
            vars(model)["prepare_inputs_for_generation"] = Beginning(prepare, model.config)
        if not implementation(decoder).startswith(NAME):  # at first, or set to another since
            known.own = implementation(decoder)
            decoder.set_attn_implementation(registered(known.own))
    return model


def detach(model: PreTrainedModel) -> PreTrainedModel:
    """Undo `attach`."""
    with ONE_AT_A_TIME:
        known = attachment(model)
        if known is not None:
            decoder = decoder_of(model)
            decoder.set_attn_implementation(known.own)
            vars(model).pop("prepare_inputs_for_generation", None)
            for module in (decoder, *attentions(decoder)):
                expand_alone(module)
                named = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
                for key, hook in list(named[0].items()):
                    if hook is known or hook is hand_over:
                        del named[0][key], named[1][key]
    return model


def mark_of(model: PreTrainedModel) -> int:
    """Return a number that tells a model from others of its shape: by some of each parameter."""
    weights = (weight.detach() for weight in model.parameters() if not weight.is_meta)
    few = [x.flatten()[:: max(1, x.numel() // 8)].double().cpu() for x in weights if x.numel()]
    some = torch.cat(few).tolist() if few else []
    return crc32(repr((model.config.model_type, some)).encode())


def attachment(model: PreTrainedModel) -> Attachment | None:
    """Return what `attach` left on a model."""
    hooks = decoder_of(model)._forward_pre_hooks.values()
    return next((hook for hook in hooks if isinstance(hook, Attachment)), None)


def is_attached(model: PreTrainedModel) -> bool:
    """Whether a model attends to our caches."""
    refuse.no_model(model)
    return attachment(model) is not None


def attached(model: PreTrainedModel) -> Attachment:
    """Return what `attach` left on a model that attends to our caches.

    Raises:
        ValueError: it does not.
    """
    known = attachment(model)
    name = implementation(decoder_of(model))
    if known is None or not name.startswith(NAME):
        raise ValueError(
            f"model must be prepared by `attach(model)`, got attn_implementation {name!r}"
        )
    return known
