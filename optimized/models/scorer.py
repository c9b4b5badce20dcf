"""What a scorer keeps of a prompt while it is read, and returns at its end."""

from collections.abc import Callable
from copy import copy
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple, get_type_hints
from weakref import ref

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from optimized import Scored
from optimized.models import errors as refuse
from optimized.models.eviction import EvictionCache
from optimized.models.kinds import PreTrainedModel
from optimized.models.prefill import Prefilled, Step
from optimized.vector.scorers._padding import protected_ends
from reference._validation.checks import must_be
from reference._validation.types import Positive, Scope, Whole


class Scores(NamedTuple):
    """What a scorer says of a prompt."""

    scored: tuple[Scored, ...]
    """One for each layer."""
    budgets: Int[Tensor, "layers batch"] | None
    """What a head of each layer keeps, where the scorer shares the budget among layers."""


class ReadLayer(NamedTuple):
    """What every scorer may ask about one layer when a prompt was read."""

    layer: int
    keys: Float[Tensor, "batch kv_heads tokens width"]
    values: Float[Tensor, "batch kv_heads tokens width"]
    valid: Bool[Tensor, "batch tokens"] | None
    keep: int


class Arriving(NamedTuple):
    """New tokens of one layer, as a cache that decodes hears of them."""

    keys: Float[Tensor, "batch kv_heads tokens width"]
    hidden: Float[Tensor, "batch tokens channels"] | None
    valid: Bool[Tensor, "batch tokens"] | None
    before: int
    """How many tokens were seen before them."""
    gate: Any
    """The layer's, where the scorer needs one."""


class Scorer:
    """A scorer before and while a prompt is read; the next prompt starts afresh.

    Args:
        model: the attached model.
        kv: `reference` or `optimized`.
        settings: what the scorer's functions take beside tensors.
    """

    name: str
    takes: tuple[str, ...] = ()
    """The settings there are."""
    functions: tuple[Callable[..., Any], ...] = ()
    """What takes them, where they are more than one run's business."""
    watching = False
    """Whether it has to watch the prompt."""
    scope: Scope = "head"
    """Whose entries it ranks together, as its authors do."""
    budgeted = False
    """Whether what it says depends on the budget."""
    observing: int | None = None
    """How many queries at a prompt's end observe, unless told otherwise; None where all count."""
    least = 1
    """The fewest queries that can observe."""
    sharing: str | None = None
    """Where it shares the budget among the layers: the erratum about what the letter misses."""
    gated = False
    """Whether it needs gates that have learnt from the model."""
    negative = False
    """Whether its scores are below 0, where nothing shifts them."""
    decodes = False
    """Whether what it says of a token can be told when the token arrives, or adds up afterwards."""
    colour: str
    """In pictures."""

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        refuse.settings(self.name, settings, self.takes)
        must_be("window", settings.get("window"), Positive | None)
        self.model, self.kv, self.settings = model, kv, settings
        self.memory: dict[int, Any] = {}
        self.watched: Callable[[], EvictionCache | None] = lambda: None

    def afresh(self) -> "Scorer":
        """Return a scorer of the same settings that has watched nothing: one for each prompt."""
        other = copy(self)
        other.settings, other.memory, other.watched = dict(self.settings), {}, lambda: None
        return other

    @classmethod
    def scopes(cls) -> tuple[Scope, ...]:
        """Return the scopes there are: who shares among layers has none over all of them."""
        return refuse.OF_ONE_LAYER if cls.sharing else refuse.SCOPES

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Return what each setting of its functions may be, as their signatures have it."""
        known = [
            (name, get_type_hints(function, include_extras=True)[name])
            for function in reversed(cls.functions)
            for name in options(function)
        ]
        return {name: kind for name, kind in known if name in cls.takes}

    def window_for(self, keep: int) -> int:
        """Return how many queries observe where nothing is set: at most half of what is kept."""
        assert self.observing is not None
        return min(self.observing, max(self.least, keep // 2))

    def watch(self, step: Step) -> None:
        """Remember what is needed of one layer's part of a chunk."""

    def past(self, step: Step) -> Any:
        """Return what is remembered of a layer; at the first chunk of a prompt, nothing."""
        self.watched = ref(step.cache)
        first = step.queries.shape[2] == step.keys.shape[2]
        return None if first else self.memory.get(step.layer)

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Score the prompt that was watched.

        Args:
            prompt: what `prefill` returned, nothing evicted yet.
            keep: mean budget of a head.

        Raises:
            ValueError: the scorer has to watch, and did not watch this prompt.
        """
        must_be("keep", keep, Whole)
        if self.watching and self.watched() is not prompt.cache:
            raise ValueError(
                f"prompt must be one that {self.name} watched, got another: "
                "`prefill(model, ids, watch=[scorer.watch])`"
            )
        layers = enumerate(layer.whole for layer in prompt.cache.whole_layers())
        read = (ReadLayer(index, *held, prompt.valid, keep) for index, held in layers)
        return Scores(tuple(map(self.scored, read)), self.budgets(prompt, keep))

    def scored(self, read: ReadLayer) -> Scored:
        """Score the tokens of one layer."""
        raise NotImplementedError

    @staticmethod
    def arriving(kv: ModuleType, new: Arriving) -> Tensor | None:
        """Score tokens when they arrive, or leave it to the attention that adds up."""
        del kv, new

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return those of the settings that a function takes."""
        return {name: self.settings[name] for name in names if name in self.settings}

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor | None:
        """Share the budget among the layers, or leave it to the caller."""
        del prompt, keep


def options(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the settings of a function of tensors: what has a default, and is no tensor."""
    parameters = signature(function).parameters.values()
    names = (one.name for one in parameters if one.default is not one.empty)
    return tuple(name for name in names if name not in ("valid", "past"))


def lengths(prompt: Prefilled) -> Int[Tensor, " batch"]:
    """Return how many real tokens each row of a prompt has."""
    if prompt.valid is not None:
        return prompt.valid.sum(-1)
    batch, tokens = prompt.input_ids.shape
    return torch.full((batch,), tokens, device=prompt.input_ids.device)


def ends(read: ReadLayer, sinks: int = 4, recent: int | None = None) -> Tensor:
    """Protect the first and the last real tokens of each row."""
    batch, heads, tokens, _ = read.keys.shape
    valid = read.valid
    if valid is None:
        valid = torch.ones(batch, tokens, dtype=torch.bool, device=read.keys.device)
    return protected_ends(valid, heads, sinks, recent)
