"""Attach a model: hooks pass the inputs of its calls to our caches, which then attend."""

import threading
from collections.abc import Callable
from inspect import signature
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attention import (
    NAME,
    CallAwareCache,
    attentions,
    decoder_of,
    implementation,
    input_device,
    pass_hidden,
    register_attention,
    unwrap_latent_expansion,
    wrap_latent_expansion,
)
from optimized.models.self_check import ModelTraits, run_self_check

ONE_AT_A_TIME = threading.RLock()
"""Only one thread attaches or detaches at a time; a model that runs meanwhile does not wait."""
READING = threading.Lock()
"""Only one thread reads weights at a time, so that each change is counted once."""


class Attachment:
    """A forward pre-hook of the decoder that passes the inputs of a call to our cache."""

    def __init__(self, own: str, shown: ModelTraits, model: PreTrainedModel) -> None:
        self.own = own
        """Name of the attention implementation that the model had."""
        self.shown, self.model = shown, model
        self.places: tuple[list[int], ...] = [], [], []
        self.samples: set[int] = set()
        self.unsampled = 0
        """How many changes in place led to a sample that is among the earlier ones."""
        self.read_weights()

    def read_weights(self) -> None:
        """Compute the mark anew, which tells weights apart; `weight.data += x` leaves no trace."""
        with READING:
            self.holders = [x._parameters for x in self.model.modules() if x._parameters]
            before = dict(zip(*self.places[:2], strict=True))
            self.places, sample = self.find_weights(), sample_of(self.model)
            now = zip(*self.places[:2], strict=True)
            changed = any(before.get(key, count) != count for key, count in now)
            self.unsampled += changed and sample in self.samples
            self.samples.add(sample)
            self.mark = sample + (self.unsampled << 32)

    def find_weights(self) -> tuple[list[int], ...]:
        """Return of each weight its id, how many operations changed it in place, its address."""
        every = [x for some in self.holders for x in some.values() if x is not None]
        try:
            versions = [x._version for x in every]
        except RuntimeError:  # weights of inference mode have no count
            versions = [0] * len(every)
        return [*map(id, every)], versions, [x.data_ptr() for x in every]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or pickled state, with the places of the copied weights."""
        vars(self).update(state)
        self.places = self.find_weights()

    def __call__(
        self, decoder: nn.Module, given: tuple[Any, ...], inputs: dict[str, Any] | None = None
    ) -> tuple[tuple[()], dict[str, Any]] | None:
        """Return the inputs of a decoder call as the cache adapts them; None without a cache."""
        if inputs is None:  # a call that runs while the hook is registered has no cache of ours
            return None
        if given:
            inputs = dict(zip(signature(decoder.forward).parameters, given, strict=False)) | inputs
        cache = inputs.get("past_key_values")
        if not isinstance(cache, CallAwareCache):
            return None
        new = [inputs[name] for name in ("input_ids", "inputs_embeds") if name in inputs]
        if any(x is not None and x.shape[1] > 1 for x in new) or self.places != self.find_weights():
            self.read_weights()
        cache.check_model(self.mark, self.shown.carries, self.shown.layers)
        if inputs.get("output_attentions"):
            raise ValueError(
                "output_attentions must be False over a cache of this package, got True: evicted "
                "entries have no weights; ask for them in a call without the cache"
            )
        return (), cache.prepare_call(decoder, inputs)


class Beginning:
    """A replacement of `prepare_inputs_for_generation`; the first call checks all ids."""

    def __init__(self, prepare: Callable[..., Any], model: PreTrainedModel) -> None:
        self.prepare, self.model = prepare, model
        self.__signature__ = signature(prepare)  # `generate` inspects it

    def __call__(self, input_ids: Tensor, *given: Any, **more: Any) -> Any:
        """Return the inputs of one call of the model within `generate`."""
        cache, first = more.get("past_key_values"), more.get("is_first_iteration")
        every = more.get("next_sequence_length") is not None  # all ids, and not only the new ones
        if isinstance(cache, CallAwareCache) and more.get("use_cache") is False:
            raise ValueError(
                "use_cache must be True with a cache in past_key_values, got False: leave one of "
                "the two out"
            )
        mask = more.get("attention_mask")
        mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        flags = more.get("position_ids") if mask is None else mask  # a mask of ones is dropped
        if isinstance(cache, CallAwareCache) and first and isinstance(flags, Tensor):
            checks.require_flags_of_ids(flags, input_ids, cache.get_seq_length())
        if isinstance(cache, CallAwareCache) and first and (known := attachment(self.model)):
            known.holders = []  # so that the next call reads the weights
        if isinstance(cache, CallAwareCache) and first and every:
            cache.check_prefix(input_ids, mask)
            if seen := cache.get_seq_length():
                if mask is not None and not bool(mask[:, -1].all()):
                    raise ValueError(
                        "attention_mask must be 1 at the last token of each row, got 0: pad "
                        "questions of different lengths on the left, between prompt and question"
                    )
                read = (*cache.looked, "mm_encoder_outputs")
                more = {name: x for name, x in more.items() if name not in read}
            checks.require_text(self.model.config, input_ids[:, seen:])
            if not getattr(more.get("token_type_ids"), "any", bool)():
                more.pop("token_type_ids", None)  # else the model creates a mask for images
        return self.prepare(input_ids, *given, **more)


def attach(model: PreTrainedModel) -> PreTrainedModel:
    """Prepare a model for our caches, after a check that its results do not change.

    The check runs a short random prompt. In every layer that sees the whole text, attention through
    this package must equal the attention in the model's own file.

    Args:
        model: a causal language model of `transformers`. Each layer sees the whole text or a
            window of it, and at least one layer sees the whole text.

    Returns:
        The same model. Over every cache but ours it computes the same attention as before.

    Raises:
        TypeError: it is not a model of `transformers`.
        ValueError: the model computes something else, has layers of another kind, or has an
            adapter that puts trained entries before the prompt's.
    """
    adapter = getattr(model, "active_peft_config", None)
    if adapter is not None and adapter.is_prompt_learning:
        raise ValueError(
            "model must have no adapter that learns a prompt, since it replaces the cache it is "
            f"given, got {adapter.peft_type}"
        )
    checks.require_language_model(model)
    if input_device(model).type == "meta":
        raise ValueError("model must have weights, got a model on the device 'meta'")
    with ONE_AT_A_TIME:
        known, decoder = attachment(model), decoder_of(model)
        if known is None:
            own = implementation(decoder)
            known = Attachment(own, run_self_check(model), model)
            modules = attentions(decoder)
            for one in modules:
                wrap_latent_expansion(one)
            hooked = ((decoder, known), *((one, pass_hidden) for one in modules))
            for module, hook in hooked:
                module.register_forward_pre_hook(hook, with_kwargs=True)
            prepare: Any = model.prepare_inputs_for_generation
            vars(model)["prepare_inputs_for_generation"] = Beginning(prepare, model)
        else:
            known.read_weights()
        if not implementation(decoder).startswith(NAME):  # or it was changed since
            known.own = implementation(decoder)
            decoder.set_attn_implementation(register_attention(known.own))
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
                unwrap_latent_expansion(module)
                named = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
                for key, hook in list(named[0].items()):
                    if hook is known or hook is pass_hidden:
                        del named[0][key], named[1][key]
    return model


def sample_of(model: PreTrainedModel) -> int:
    """Return a checksum of a model's type and a few numbers of each of its parameters."""
    weights = (weight.detach() for weight in model.parameters() if not weight.is_meta)
    few = [x.flatten()[:: max(1, x.numel() // 8)].cpu().double() for x in weights if x.numel()]
    some = torch.cat(few).tolist() if few else []
    return crc32(repr((model.config.model_type, some)).encode())


def attachment(model: PreTrainedModel) -> Attachment | None:
    """Return the hook that `attach` registered on a model; None if there is none."""
    hooks = decoder_of(model)._forward_pre_hooks.values()
    return next((hook for hook in hooks if isinstance(hook, Attachment)), None)


def is_attached(model: PreTrainedModel) -> bool:
    """Return whether a model is attached."""
    checks.require_language_model(model)
    return attachment(model) is not None


def require_attachment(model: PreTrainedModel) -> Attachment:
    """Return the hook that `attach` registered on a model.

    Raises:
        ValueError: the model is not attached, or its attention was changed since.
    """
    known = attachment(model)
    name = implementation(decoder_of(model))
    if known is None or not name.startswith(NAME):
        raise ValueError(
            f"model must be prepared by `attach(model)`, got attn_implementation {name!r}"
        )
    return known
