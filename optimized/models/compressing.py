"""A context in which `model.generate` compresses each prompt."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

from torch import Tensor, nn

from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import attachment, detach, require_language_model
from optimized.models.attention import CHECKING, decoder_of
from optimized.models.cache import AttendingCache
from optimized.models.compress_prompt import (
    OPTIONS,
    compressed,
    require_budget,
    resolve_system,
    suggest_option,
)


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
        options: the other options of `compressed`: `ratio`, `keep`, `interval`, `refined`,
            `settings`, `chunk`, `reading`, `kv`.

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
