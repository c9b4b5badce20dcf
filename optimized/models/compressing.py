"""A context in which `model.generate` compresses each prompt."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

from torch import Tensor

from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import detach, is_attached
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

    def __call__(self, inputs: Tensor | None = None, *given: Any, **more: Any) -> Any:
        """Generate from the compressed cache of the prompt."""
        ids = more.pop("input_ids", inputs)
        if more.get("past_key_values") is not None:
            return self.own(ids, *given, **more)
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
    cache keeps that cache. Other calls of the model do not change. The model is the same object
    for all threads. When the context ends, `generate` is restored.

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
    vars(model)["generate"] = Compressing(model, own, system, options)
    try:
        yield model
    finally:
        if before is None:
            del vars(model)["generate"]
        else:
            vars(model)["generate"] = before
        if not attached:
            detach(model)


def padding_of(model: PreTrainedModel, ids: Any) -> Tensor | None:
    """Return the mask that `generate` derives from padding, unless its id is an end token."""
    known = model.generation_config
    ends = known.eos_token_id if isinstance(known.eos_token_id, list) else [known.eos_token_id]
    pad = known.pad_token_id
    if not isinstance(ids, Tensor) or pad is None or pad in ends:
        return None
    return (ids != pad).long()
