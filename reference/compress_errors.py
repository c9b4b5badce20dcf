"""What whole compressors refuse, in the voice of `reference.errors`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reference import errors
from reference.graphkv import errors as graphkv_errors
from reference.graphkv.refine import GraphSettings
from reference.hex import cache_errors
from reference.hex.presets import HexConfig
from reference.hubkv.calibration import bounded
from reference.hubkv.locality import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.scorers.scored import Scored

Refinement = HubSettings | GraphSettings | NmsSettings
SCOPES = ("head", "layer", "model")


def scored(name: str, value: object) -> None:
    """Refuse what is no `Scored`, or one whose parts do not fit each other."""
    if not isinstance(value, Scored):
        raise TypeError(f"{name} must be a Scored, got {value!r}")
    errors.floating(f"{name}.scores", value.scores, 2)
    errors.boolean(f"{name}.protected", value.protected, value.scores.shape)


def refinement(name: str, value: object) -> None:
    """Refuse what are no settings of a refinement, or settings outside their range."""
    if value is None:
        return
    if not isinstance(value, Refinement):
        raise TypeError(
            f"{name} must be HubSettings, GraphSettings, NmsSettings or None, got {value!r}"
        )
    try:
        _settings(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}.{error} in {value!r}") from error


def _settings(value: Refinement) -> None:
    if isinstance(value, HubSettings):
        errors.whole("radius", value.radius)
        errors.open_fraction("gamma", value.gamma)
        errors.non_negative("tau", value.tau)
        errors.positive_finite("minimum", value.minimum)
        errors.number("maximum", value.maximum)
        bounded(None, value.minimum, value.maximum)
        errors.positive("power", value.power)
        errors.non_negative("epsilon", value.epsilon)
    elif isinstance(value, NmsSettings):
        errors.whole("radius", value.radius)
        errors.fraction("factor", value.factor)
    else:
        errors.whole("count", value.count)
        errors.one_of("kind", value.kind, ("kk", "qk", "qq", "kv", "vv"))
        errors.above_zero_to_one("fraction", value.fraction)
        errors.whole("rounds", value.rounds)
        errors.above_zero_to_one("strength", value.strength)
        errors.one_of("rule", value.rule, ("product", "sequential", "sum"))
        errors.one_of("signal", value.signal, ("decay", "enhance", "evict"))


def only(name: str, value: object, kind: type) -> None:
    """Refuse what is not of one kind, and settings outside their range."""
    cache_errors.instance(name, value, kind)
    if issubclass(kind, Refinement):
        refinement(name, value)


def cache(keys: Tensor, values: Tensor, scores: Tensor, name: str) -> None:
    """Refuse keys and values that are not the rows of the tokens that `name` scores."""
    for other, tensor in (("keys", keys), ("values", values)):
        errors.floating(other, tensor, 3)
    errors.shaped("values", values, keys.shape)
    errors.shaped(name, scores, keys.shape[:-1])


def padding(name: str, valid: Tensor, shape: Sequence[int]) -> None:
    """Refuse a mask of another shape, or with a gap behind the first real token of a row."""
    errors.boolean(name, valid, shape)
    if torch.compiler.is_compiling():
        return
    if bool((valid[..., :-1] & ~valid[..., 1:]).any()):
        raise ValueError(f"{name} must be false at the left end only, got a False after a True")


def compression(
    keys: Tensor,
    values: Tensor,
    given: Scored,
    scope: str,
    settings: Refinement | None,
    valid: Tensor | None,
    store: HexConfig | None,
    queries: Tensor | None,
) -> None:
    """Refuse what `compress` cannot start from; budgets are another matter."""
    errors.one_of("scope", scope, SCOPES)
    scored("scored", given)
    cache(keys, values, given.scores, "scored.scores")
    errors.floating("scored.scores", given.scores, 3 if scope == "model" else 2)
    refinement("refinement", settings)
    compared(settings, keys, queries)
    if valid is not None:
        rows = given.scores.shape[1 if scope == "model" else 0 : -2]
        padding("valid", valid, (*rows, given.scores.shape[-1]))
    if store is not None:
        cache_errors.config("store", store, store)
        if valid is not None and store.mode != "append":
            raise ValueError(
                f"store must be in mode 'append' where valid is given, got {store.mode!r}"
                f" in {store!r}"
            )


def compared(settings: Refinement | None, keys: Tensor, queries: Tensor | None) -> None:
    """Refuse queries that do not fit the keys, or are not there where edges compare them."""
    if isinstance(settings, GraphSettings) and "q" in settings.kind:
        errors.given("queries", queries, f"where refinement.kind is {settings.kind!r}")
    if queries is not None:
        errors.floating("queries", queries, 3)
        graphkv_errors.grouped("queries", queries, keys.shape)


def layer_budgets(name: str, keep: Tensor, scores: Tensor) -> None:
    """Refuse budgets that are not one for each layer, the first of at least three axes."""
    errors.integral(name, keep)
    errors.floating("scored.scores", scores, 3)
    errors.shaped(name, keep, scores.shape[:1])


def decoding(name: str, value: Any, kind: type) -> None:
    """Refuse what is no `kind`, the configuration of decoding, or one outside its range."""
    cache_errors.instance(name, value, kind)
    try:
        errors.whole("target", value.target, 1)
        errors.whole("interval", value.interval, 1)
        errors.one_of("scope", value.scope, SCOPES)
        refinement("refinement", value.refinement)
        if isinstance(value.refinement, GraphSettings):
            _graph(value.refinement, value.scope)
        if value.ratio is not None:
            errors.fraction("ratio", value.ratio)
        errors.whole("sinks", value.sinks, 0, value.target)
        if value.recent is not None:
            errors.whole("recent", value.recent)
        errors.one_of("length", value.length, ("seen", "held"))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}.{error} in {value!r}") from error


def _graph(settings: GraphSettings, scope: str) -> None:
    errors.one_of("refinement.kind", settings.kind, ("kk", "kv", "vv"))
    errors.one_of("refinement.adaptive", settings.adaptive, (False,))  # entries are no input
    if scope != "head":  # heads then hold different tokens
        errors.one_of("refinement.per_head", settings.per_head, (True,))
        errors.one_of("refinement.exclude_window", settings.exclude_window, (False,))


def prompt(keys: Tensor, values: Tensor, scores: Tensor, config: Any, valid: Tensor | None) -> None:
    """Refuse a prompt that decoding cannot start from."""
    errors.floating("scores", scores, 3 if config.scope == "model" else 2)
    cache(keys, values, scores, "scores")
    if valid is not None:
        rows = scores.shape[1 if config.scope == "model" else 0 : -2]
        padding("valid", valid, (*rows, scores.shape[-1]))
        scores = scores.masked_fill(~valid[..., None, :], 0)
    raw("scores", scores, config)


def raw(name: str, scores: Tensor, config: Any) -> None:
    """Refuse scores that are not finite, or negative where they will be refined."""
    errors.floating(name, scores)
    if config.refinement is None:
        errors.finite(name, scores)
    else:
        errors.importance(name, scores)


def arrival(held: Any, keys: Tensor, values: Tensor, scores: Tensor) -> None:
    """Refuse new tokens that do not fit each other or those that are held."""
    cache(keys, values, scores, "scores")
    cache_errors.joins(keys, held.pending_keys)
    if values.dtype != held.pending_values.dtype:
        raise TypeError(
            f"values must be a {held.pending_values.dtype} tensor, got a {values.dtype} tensor"
        )
    raw("scores", scores, held.config)


def added(mass: Tensor, present: Tensor, config: Any) -> None:
    """Refuse what cannot be added to the scores of the entries present."""
    errors.floating("mass", mass, 2)
    errors.shaped("mass", mass, present.shape)
    raw("mass", mass.masked_fill(~present, 0), config)
