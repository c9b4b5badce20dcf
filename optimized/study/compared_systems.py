"""The systems that the command compares, and the corrections that each one uses."""

from itertools import product

from optimized.models.scorers import SCORERS
from optimized.models.systems import (
    GRAPH,
    HEX,
    HEXES,
    REFINEMENTS,
    STORES,
    System,
    hex_settings,
    reading_settings,
)
from optimized.models.systems import refinement_settings as refinement_of
from optimized.study.overrides import system_with_settings

PAIRS = {
    "hubkv": ("kvzip", "fastkvzip"),
    "graphkv": ("snapkv", "pyramidkv", "h2o", "knorm", "cake"),
}
"""The scorers that each paper refines."""

DEFAULT = (
    "full",
    "random",
    "streaming_llm",
    "expected_attention",
    *(name for base in PAIRS["hubkv"] for name in (base, f"{base}+hubkv")),
    *(name for base in PAIRS["graphkv"] for name in (base, f"{base}+graphkv")),
    "hex-3",
    "hex-4",
    "kcvt-3",
    "kivi-2",
    "kivi-4",
    "gear",
    "hex-3+hubkv",
)


def systems_named(names: list[str]) -> list[System]:
    """Return systems by their names, the full cache first; `default` and `all` name groups."""
    groups = {"default": list(DEFAULT), "all": everything()}
    found = {
        name: system_with_settings(name)
        for group in ["full", *names]
        for name in groups.get(group, [group])
    }
    both = [name for name, system in found.items() if system.then is not None]
    if both:
        raise ValueError(
            f"system must evict or store, since the command measures one of them, got {both[0]!r}: "
            "`optimized.models.compress_prompt` does both"
        )
    return list(found.values())


def everything() -> list[str]:
    """Return the names of all systems."""
    names = []
    for scorer, refinement in product(
        SCORERS.values(), ("", *(f"+{name}" for name in REFINEMENTS))
    ):
        others = [f"@{scope}" for scope in scorer.scopes() if scope != scorer.scope]
        names += [scorer.name + refinement + scope for scope in ("", *others)]
    hexes = [f"{store}+{name}" for store in HEXES for name in REFINEMENTS[:2]]
    return [*names, *STORES, *hexes]


def corrections_in_use(one: System, reading: str) -> list[str]:
    """Return the corrections that a system uses under a reading, each with its erratum."""
    if reading == "letter":
        return []
    named = {}
    if one.refinement == "graphkv":
        graph = refinement_of(one, reading)
        named = {f"graphkv {name}": GRAPH[name] for name in GRAPH if getattr(graph, name)}
        named |= {} if graph.adaptive else {"graphkv fixed count": "E-G8"}
    if one.scorer is not None and (erratum := SCORERS[one.scorer].sharing):
        exact = (reading_settings(one.scorer, reading) | one.changes_of(one.scorer))["exact"]
        named |= {f"{one.scorer} exact": erratum} if exact else {}
    if one.store in HEXES:
        config = hex_settings(one, reading)
        named |= {f"hex {name}": HEX[name] for name in HEX if getattr(config, name)}
    if one.store == "gear":
        named["gear exact_outliers"] = "E-H42"
    return [f"{name} ({erratum})" for name, erratum in named.items()]
