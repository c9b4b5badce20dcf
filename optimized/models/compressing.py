"""A context in which `model.generate` compresses each prompt."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

from torch import Tensor, nn

from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import detach, is_attached
from optimized.models.attention import CHECKING, CallAwareCache, decoder_of
from optimized.models.compress_prompt import OPTIONS, compressed, resolve_system, suggest_option


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

    def __call__(self, inputs: Tensor | None = None, *given: Any, **more: Any) -> Any:
        """Generate from the compressed cache of the prompt."""
        self.running.append(None)
        try:
            return self.generate(more.pop("input_ids", inputs), *given, **more)
        finally:
            self.running.pop()

    def generate(self, ids: Tensor | None, *given: Any, **more: Any) -> Any:
        """Compress the prompt, unless a filled cache is given, and generate."""
        cache = more.get("past_key_values")
        if isinstance(cache, CallAwareCache) or (cache and cache.get_seq_length()):
            return self.own(ids, *given, **more)
        if cache is not None:
            raise ValueError(
                "past_key_values must be left out within `compressing`, or hold a prompt, got an "
                f"empty {type(cache).__name__}"
            )
        told = more.get("generation_config") or self.model.generation_config
        if more.get("use_cache", told.use_cache) is False:
            raise ValueError(
                "use_cache must be True within `compressing`, which puts a compressed cache in "
                "place of the model's, got False"
            )
        takes = set(signature(self.model.forward).parameters) - {*checks.TEXT, "attention_mask"}
        read: dict[str, Any] = {
            name: x for name, x in more.items() if name in takes and isinstance(x, Tensor)
        }
        if more.get("attention_mask") is None:
            more["attention_mask"] = padding_of(self.model, ids)
        mask = more["attention_mask"]
        more["past_key_values"] = compressed(
            self.model, self.system, ids, mask, **self.options, **read
        )
        return self.own(ids, *given, **more)


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
    for one in options:
        if one not in OPTIONS:
            says = suggest_option(one)
            raise TypeError(f"options must be those of `compressed`, got {one!r}: {says}")
    attached = is_attached(model)
    one = resolve_system(system, options.get("refined"))[0]
    checks.require_budget(one, *(options.get(name) for name in ("interval", "ratio", "keep")))
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


def refuse_uncached(model: nn.Module, given: Any, inputs: dict[str, Any] | None = None) -> None:
    """Refuse several tokens without a filled cache: a forward pre-hook within `compressing`."""
    known = dict(zip(signature(model.forward).parameters, given, strict=False)) | (inputs or {})
    cache, ids = known.get("past_key_values"), known.get("input_ids")
    ids = known.get("inputs_embeds") if ids is None else ids
    filled = isinstance(cache, CallAwareCache) or (cache and cache.get_seq_length())
    if not filled and ids is not None and ids.shape[1] > 1 and CHECKING.get() is None:
        raise ValueError(
            "model must be called through `generate` within `compressing`, or with a cache that "
            f"holds a prompt, got {ids.shape[1]} tokens without one: compress the context with "
            "`compressed`, then call the model with that cache and the tokens to score"
        )


def padding_of(model: PreTrainedModel, ids: Any) -> Tensor | None:
    """Return the mask that `generate` derives from padding, unless its id is an end token."""
    known = model.generation_config
    ends = known.eos_token_id if isinstance(known.eos_token_id, list) else [known.eos_token_id]
    pad = known.pad_token_id
    if not isinstance(ids, Tensor) or pad is None or pad in ends:
        return None
    return (ids != pad).long()
