"""Attach a model: hooks pass the inputs of its calls to our caches, which then attend."""

import threading
from collections.abc import Callable
from inspect import signature
from typing import Any
from zlib import crc32

from torch import Tensor, nn

from optimized.distributed import gather_objects, run_alike
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attention import (
    NAME,
    attentions,
    decoder_of,
    implementation,
    input_device,
    pass_hidden,
    register_attention,
    unwrap_latent_expansion,
    wrap_latent_expansion,
)
from optimized.models.cache import AttendingCache
from optimized.models.self_check import ModelTraits, run_self_check
from optimized.models.tensor_parallel import ALL_RANKS, group_of

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
        self.weights: tuple[list[int], ...] = [], [], []
        self.changes = 0
        """How many times weights were found changed in place, which a sample may not show."""
        self.read_weights()

    def read_weights(self) -> None:
        """Compute the mark anew, which tells weights apart: a checksum of a few numbers of each.

        Changes in place are counted as well, but `weight.data += x` leaves no other trace.
        """
        with READING:
            self.tables = [x._parameters for x in self.model.modules() if x._parameters]
            before = dict(zip(*self.weights[:2], strict=True))
            self.weights = self.find_weights()
            now = zip(*self.weights[:2], strict=True)
            self.changes += any(before.get(key, count) != count for key, count in now)
            every = (getattr(x, "_local_tensor", x).detach() for x in self.model.parameters())
            weights = (x for x in every if x.numel() and not x.is_meta)
            few = [x.flatten()[:: max(1, x.numel() // 8)].cpu().double() for x in weights]
            sample = self.model.config.model_type, [x.tolist() for x in few]
            self.mark = crc32(repr(sample).encode()) + (self.changes << 32)

    def find_weights(self) -> tuple[list[int], ...]:
        """Return of each weight its id, how many operations changed it in place, its address."""
        every = (x for table in self.tables for x in table.values() if x is not None)
        weights = [getattr(x, "_local_tensor", x) for x in every]  # of a DTensor
        try:
            versions = [x._version for x in weights]
        except RuntimeError:  # weights of inference mode have no count
            versions = [0] * len(weights)
        return [*map(id, weights)], versions, [x.data_ptr() for x in weights]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or pickled state, with the addresses of the copied weights."""
        vars(self).update(state)
        self.weights = self.find_weights()

    def __call__(
        self, decoder: nn.Module, args: tuple[Any, ...], inputs: dict[str, Any] | None = None
    ) -> tuple[tuple[()], dict[str, Any]] | None:
        """Return the inputs of a decoder call as the cache adapts them; None without a cache."""
        if inputs is None:  # a call that runs while the hook is registered has no cache of ours
            return None
        if args:
            inputs = dict(zip(signature(decoder.forward).parameters, args, strict=False)) | inputs
        cache = inputs.get("past_key_values")
        if not isinstance(cache, AttendingCache):
            return None
        new = [inputs[name] for name in ("input_ids", "inputs_embeds") if name in inputs]
        if (
            any(x is not None and x.shape[1] > 1 for x in new)
            or self.weights != self.find_weights()
        ):
            self.read_weights()
        if cache.reader is None and not ALL_RANKS.get() and group_of(self.model) is not None:
            says = "must be from `compressed` for a model whose heads are dealt out to ranks"
            raise ValueError(f"past_key_values {says}, got an empty {type(cache).__name__}")
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

    def __call__(self, input_ids: Tensor, *args: Any, **options: Any) -> Any:
        """Return the inputs of one call of the model within `generate`."""
        cache = options.get("past_key_values")
        if isinstance(cache, AttendingCache):
            if options.get("use_cache") is False:
                raise ValueError(
                    "use_cache must be True with a cache in past_key_values, got False: leave one "
                    "of the two out"
                )
            if options.get("is_first_iteration"):
                options = self.begin(cache, input_ids, options)
        return self.prepare(input_ids, *args, **options)

    def begin(self, cache: AttendingCache, ids: Tensor, options: dict[str, Any]) -> dict[str, Any]:
        """Compare the ids of the first call with those seen; return the inputs besides ids."""
        seen, count = cache.get_seq_length(), ids.shape[1]
        mask = options.get("attention_mask")
        mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        flags = options.get("position_ids") if mask is None else mask  # a mask of ones is dropped
        if isinstance(flags, Tensor) and flags.shape[-1] not in (count, seen + count):
            raise ValueError(
                f"attention_mask must have a flag for each of the {count} ids, got "
                f"{flags.shape[-1]}"
            )
        if hook := attachment(self.model):
            hook.tables = []  # so that the next call reads the weights
        if options.get("next_sequence_length") is None:  # the new ids alone, or all with candidates
            if not (cache.rolls_back and count >= seen > 0 and cache.begins_with_seen(ids)):
                return options
            options["next_sequence_length"] = count - seen + 1
            read_last_if_needed(self.model, cache)
        cache.check_prefix(ids, mask)
        if seen:
            if mask is not None and not bool(mask[:, -1].all()):
                raise ValueError(
                    "attention_mask must be 1 at the last token of each row, got 0: pad "
                    "questions of different lengths on the left, between prompt and question"
                )
            read = (*cache.looked, "mm_encoder_outputs")
            options = {name: x for name, x in options.items() if name not in read}
        checks.require_text(self.model.config, ids[:, seen:])
        if not getattr(options.get("token_type_ids"), "any", bool)():
            options.pop("token_type_ids", None)  # else the model creates a mask for images
        return options


def read_last_if_needed(model: PreTrainedModel, cache: AttendingCache) -> None:
    """Settle, when a model is called next, whether it reads the last token seen again.

    That call brings this token, new ones, and candidates of assisted decoding. Logits are needed
    at the candidates and at one token before them, which is the last one seen if none is new.
    """

    def settle(_: nn.Module, args: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        hook.remove()
        needed = inputs.get("logits_to_keep")
        if isinstance(needed, int) and inputs["input_ids"].shape[1] > needed:
            for name in ("input_ids", "position_ids"):
                if inputs.get(name) is not None:
                    inputs[name] = inputs[name][..., 1:]
        else:
            cache.take_last_back()
        return args, inputs

    hook = model.register_forward_pre_hook(settle, with_kwargs=True)


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
    require_language_model(model)
    if input_device(model).type == "meta":
        raise ValueError("model must have weights, got a model on the device 'meta'")
    with ONE_AT_A_TIME:
        hook, decoder = attachment(model), decoder_of(model)
        if hook is None:
            traits = run_alike(group := group_of(model), lambda: run_self_check(model))
            traits = min(gather_objects(group, traits)) if group is not None else traits
            hook = Attachment(implementation(decoder), traits, model)
            decoder.register_forward_pre_hook(hook, with_kwargs=True)
            for module in attentions(decoder):
                wrap_latent_expansion(module)
                module.register_forward_pre_hook(pass_hidden, with_kwargs=True)
            prepare: Any = model.prepare_inputs_for_generation
            vars(model)["prepare_inputs_for_generation"] = Beginning(prepare, model)
        else:
            hook.read_weights()
        if not implementation(decoder).startswith(NAME):  # or it was changed since
            hook.own = implementation(decoder)
            decoder.set_attn_implementation(register_attention(hook.own))
    return model


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


def detach(model: PreTrainedModel) -> PreTrainedModel:
    """Undo `attach`."""
    with ONE_AT_A_TIME:
        hook = attachment(model)
        if hook is not None:
            decoder = decoder_of(model)
            decoder.set_attn_implementation(hook.own)
            vars(model).pop("prepare_inputs_for_generation", None)
            for module in (decoder, *attentions(decoder)):
                unwrap_latent_expansion(module)
                hooks, named = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
                for key, other in list(hooks.items()):
                    if other in (hook, pass_hidden):
                        del hooks[key], named[key]
    return model


def attachment(model: PreTrainedModel) -> Attachment | None:
    """Return the hook that `attach` registered on a model; None if there is none."""
    hooks = decoder_of(model)._forward_pre_hooks.values()
    return next((hook for hook in hooks if isinstance(hook, Attachment)), None)


def require_attachment(model: PreTrainedModel) -> Attachment:
    """Return the hook that `attach` registered on a model.

    Raises:
        ValueError: the model is not attached, or its attention was changed since.
    """
    hook = attachment(model)
    name = implementation(decoder_of(model))
    if hook is None or not name.startswith(NAME):
        raise ValueError(
            f"model must be prepared by `attach(model)`, got attn_implementation {name!r}"
        )
    return hook
