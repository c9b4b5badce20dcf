"""Base class of scorers: they watch a prompt while a model reads it, then return its scores."""

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
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.eviction_cache import EvictionCache
from optimized.models.prefill import Prefilled, Step
from optimized.vector.scorers._padding import protected_ends
from reference.contract.checks import must_be, shaped
from reference.contract.types import Positive, Scope, Whole


class Scores(NamedTuple):
    """The scores of a prompt, and how the budget is shared among layers."""

    scored: tuple[Scored, ...]
    """One for each layer from which entries are evicted."""
    budgets: Int[Tensor, "layers batch"] | Int[Tensor, "layers batch heads"] | None
    """How many entries a head of each layer keeps, where the scorer shares the budget among
    layers, or where each head has its own."""

    def protecting(self, tokens: Bool[Tensor, "batch tokens"]) -> "Scores":
        """Return the scores with tokens that are protected in every head, too."""
        scored = [
            one._replace(protected=one.protected | tokens[:, None].to(one.protected.device))
            for one in self.scored
        ]
        return self._replace(scored=tuple(scored))


class PromptLayer(NamedTuple):
    """One layer of a prompt that was read: the input of every scorer."""

    layer: int
    keys: Float[Tensor, "batch kv_heads tokens width"]
    values: Float[Tensor, "batch kv_heads tokens width"]
    valid: Bool[Tensor, "batch tokens"] | None
    keep: int


class NewTokens(NamedTuple):
    """New tokens of one layer of a cache that is compressed while the model decodes."""

    keys: Float[Tensor, "batch kv_heads tokens width"]
    hidden: Float[Tensor, "batch tokens channels"] | None
    valid: Bool[Tensor, "batch tokens"] | None
    before: int
    """How many tokens were seen before them."""
    gate: Any
    """The FastKVzip gate of the layer, where the scorer needs one."""


class Scorer:
    """A scorer of the prompts that a model reads; each prompt starts with an empty memory.

    Args:
        model: the attached model.
        kv: `reference` or `optimized`.
        settings: arguments of the scorer's functions that are not tensors.
    """

    name: str
    takes: tuple[str, ...] = ()
    """Names of its settings."""
    functions: tuple[Callable[..., Any], ...] = ()
    """Functions whose signatures give the types of the settings that a user may change."""
    watching = False
    """Whether it has to watch the prompt while the model reads it: where it defines `remember`."""
    scope: Scope = "head"
    """Which entries its authors rank together."""
    budgeted = False
    """Whether its scores depend on the budget."""
    observing: int | None = None
    """Default length of the observation window in queries; None where all queries count."""
    looks_back: int | None = None
    """Default number of the last queries by which it scores while the model decodes, if it does."""
    needs: tuple[str, ...] = ()
    """Names of what `of_model` returns, which `by_last_queries` cannot do without."""
    least = 1
    """Smallest length of the observation window."""
    sharing: str | None = None
    """The erratum about its layer budgets as printed; None where it does not share the budget
    among layers."""
    by_layer = True
    """Whether a layer's scores need no other layer, and no second reading of the prompt."""
    by_head = True
    """Whether scores and budgets of a head need no other head, which may be on another rank."""
    gated = False
    """Whether it needs FastKVzip gates that were trained for the model."""
    negative = False
    """Whether its scores are below 0 unless they are shifted."""
    decodes = False
    """Whether it can score while the model decodes: a token on arrival, by sums over later
    attention, or all entries by the last queries."""
    of_prompt_alone = "its scores are those of a prompt as a whole"
    """Why it cannot, if so."""
    colour: str
    """Its colour in pictures."""

    def __init_subclass__(cls) -> None:
        cls.watching = cls.remember is not Scorer.remember

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        if not hasattr(self, "name"):
            raise TypeError(f"{type(self).__name__} must have a name, such as `name = 'own'`")
        checks.require_known_settings(self.name, settings, self.takes)
        must_be("window", settings.get("window"), Positive | None)
        self.model, self.kv, self.settings = model, kv, settings
        self.memory: dict[int, Any] = {}
        self.watched: Callable[[], EvictionCache | None] = lambda: None

    def fresh_copy(self) -> "Scorer":
        """Return a scorer with the same settings and an empty memory, for another prompt."""
        other = copy(self)
        other.settings, other.memory, other.watched = dict(self.settings), {}, lambda: None
        return other

    @classmethod
    def scopes(cls) -> tuple[Scope, ...]:
        """Return its scopes; a scorer that shares the budget among layers has no `"model"`."""
        return checks.OF_ONE_LAYER if cls.sharing else checks.SCOPES

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Return the type of each setting, from the signatures of its functions."""
        kinds = [
            (name, get_type_hints(function, include_extras=True)[name])
            for function in reversed(cls.functions)
            for name in options(function)
        ]
        return {name: kind for name, kind in kinds if name in cls.takes}

    def window_for(self, keep: int) -> int:
        """Return the default observation window: at most half of the budget."""
        assert self.observing is not None
        return min(self.observing, max(self.least, keep // 2))

    def watch(self, step: Step) -> None:
        """Store what the scores need of one layer's step on one chunk: the result of `remember`."""
        self.watched = ref(step.cache)
        first = step.queries.shape[2] == step.keys.shape[2]
        past = None if first else self.memory.get(step.layer)
        self.memory[step.layer] = self.remember(step, past)

    def remember(self, step: Step, past: Any) -> Any:
        """Return what to store of a layer after a chunk; `scored` reads it in `memory`.

        Args:
            step: the layer's tensors after the chunk.
            past: what is stored of the chunks before; None at the first chunk of a prompt.
        """
        del step, past

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Return the scores of the prompt that was watched.

        Args:
            prompt: the result of `prefill`, before any eviction.
            keep: mean budget of a head.

        Raises:
            ValueError: the scorer has to watch the prompt, and did not.
        """
        must_be("keep", keep, Whole)
        if self.watching and self.watched() is not prompt.cache:
            raise ValueError(
                f"prompt must be one that {self.name} watched, got another: "
                "`prefill(model, ids, watch=[scorer.watch])`"
            )
        layers, budgets = prompt.layers(), self.budgets(prompt, keep)
        read = [PromptLayer(n, *x.whole, x.beside(prompt.valid), keep) for n, x in layers.items()]
        scored = [require_scored(self.name, self.scored(x), x.keys) for x in read]
        at = prompt.input_ids.device  # layers on several devices compete there
        scored = tuple(Scored(*(part.to(at) for part in one)) for one in scored)
        return Scores(scored, None if budgets is None else budgets[[*layers]])

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        raise NotImplementedError(f"{self.name} must define `scored(self, read)`")

    @staticmethod
    def arriving(kv: ModuleType, new: NewTokens) -> Tensor | None:
        """Return the scores of new tokens; None where scores are sums of received attention."""
        del kv, new

    @classmethod
    def of_model(cls, model: PreTrainedModel) -> dict[str, Any]:
        """Return what `by_last_queries` needs of the model, besides the settings."""
        del model
        return {}

    @staticmethod
    def by_last_queries(
        kv: ModuleType, queries: Tensor, entries: tuple[Tensor, ...], **settings: Any
    ) -> Tensor:
        """Return the scores of all entries by the last queries, where it has a window of these.

        Args:
            kv: `reference` or `optimized`.
            queries: the queries of the window.
            entries: keys and values of all entries, those of the window last, and a mask of those
                that are real in each head; the others come first.
            settings: its settings, and what `of_model` returned.
        """
        raise NotImplementedError

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return the settings with the given names that are set."""
        return {name: self.settings[name] for name in names if name in self.settings}

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor | None:
        """Return the budget of every layer of the model; None where the caller decides."""
        del prompt, keep


def require_scored(name: str, scored: Scored, keys: Tensor) -> Scored:
    """Return the scores of a layer; refuse those that a scorer of one's own returns otherwise."""
    if not isinstance(scored, Scored):
        raise TypeError(
            f"scores of {name} must be Scored(scores, protected), got {type(scored).__name__}: if "
            "nothing is protected, pass `torch.zeros_like(scores, dtype=torch.bool)`"
        )
    for part in Scored._fields:
        shaped(f"{part} of {name}", getattr(scored, part), keys.shape[:-1])
    return scored


def options(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the settings of a function: its parameters with a default, except tensors."""
    parameters = signature(function).parameters.values()
    names = [x.name for x in parameters if x.default is not x.empty]
    return tuple(name for name in names if name not in ("valid", "past"))


def lengths(prompt: Prefilled) -> Int[Tensor, " batch"]:
    """Return how many real tokens each row of a prompt has."""
    if prompt.valid is not None:
        return prompt.valid.sum(-1)
    batch, tokens = prompt.input_ids.shape
    return torch.full((batch,), tokens, device=prompt.input_ids.device)


def ends(read: PromptLayer, sinks: int = 4, recent: int | None = None) -> Tensor:
    """Return a mask of the first and last real tokens of each row, which are protected."""
    batch, heads, tokens, _ = read.keys.shape
    valid = read.valid
    if valid is None:
        valid = torch.ones(batch, tokens, dtype=torch.bool, device=read.keys.device)
    return protected_ends(valid, heads, sinks, recent)
