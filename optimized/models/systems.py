"""Systems by name: a scorer, a refinement, a scope, or a store."""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

import optimized
from optimized import GraphSettings
from optimized.models import argument_checks as checks
from optimized.models.scorer import Scope, Scorer
from optimized.models.scorers import SCORERS
from optimized.readings import READINGS
from reference.contract.checks import one_of
from reference.contract.enforce import compiled

REFINEMENTS = ("hubkv", "graphkv", "nms")
KINDS = (optimized.HubSettings, GraphSettings, optimized.NmsSettings)
HEXES = ("hex-3", "hex-4", "hex-8")
QUANTIZERS = ("kivi-2", "kivi-4", "kivi-8", "gear")
STORES = (*HEXES, "kcvt-3", "kcvt-4", "kcvt-8", *QUANTIZERS)

NEIGHBOURS = 8
"""Neighbours of each source in GraphKV's graph; the paper gives no number.

As printed, they are capped by the document's number of tokens in thousands.
"""

GRAPH = {"per_head": "E-G11", "spare_sources": "E-G3", "clamp": "E-G4", "exclude_window": "E-G7"}
HEX = {"outside_recent": "E-H8", "normalize": "E-H9", "carry_recent": "E-H11"}


class System(NamedTuple):
    """How a cache is compressed."""

    name: str
    scorer: str | None = None
    refinement: str | None = None
    scope: Scope = "head"
    store: str | None = None
    settings: Any = None
    """Settings of the refinement, or of HEX without one, in place of the papers'."""
    changes: tuple[tuple[str, str, Any], ...] = ()
    """Changed settings: the part (the refinement, `hex` or the scorer), the setting, its value."""

    then: str | None = None
    """The store of the entries that eviction keeps."""

    @property
    def parts(self) -> list[str]:
        """Its parts that have settings."""
        store = "hex" if self.store in HEXES else None
        scorer = self.scorer if self.evicts else None
        return [part for part in (scorer, self.refinement, store) if part is not None]

    def changes_of(self, part: str | None) -> dict[str, Any]:
        """Return the changed settings of a part."""
        return {setting: value for owner, setting, value in self.changes if owner == part}

    @property
    def evicts(self) -> bool:
        """Whether it evicts entries, so that it needs a budget."""
        return self.scorer is not None and self.store is None

    @property
    def shares_budget(self) -> bool:
        """Whether its scorer shares the budget among layers."""
        return self.scorer is not None and SCORERS[self.scorer].sharing is not None


FULL = System("full")


def system_named(name: str) -> System:
    """Return a system by its name.

    Args:
        name: `full`; a scorer, alone or with `+hubkv`, `+graphkv` or `+nms`, and with `@head`,
            `@layer` or `@model` for another scope than its authors'; `hex-3`, `hex-4`,
            `hex-8`, `kcvt-3`, `kcvt-4`, `kcvt-8`, `kivi-2`, `kivi-4`, `kivi-8` or `gear`; a HEX
            with a refinement; a scorer, `>` and a store for the entries left, as in
            `snapkv+hubkv>hex-4`.

    Raises:
        ValueError: there is no such system.
    """
    name = name.lower()
    before, arrow, then = name.partition(">")
    if arrow:
        evicting = system_named(before)
        checks.require_known_name("store", then, STORES)
        if not evicting.evicts:
            raise ValueError(f"system must evict before '>', got {name!r}")
        return evicting._replace(name=name, then=then)
    rest, separator, scope = name.partition("@")
    first, plus, refinement = rest.partition("+")
    refines = not plus or refinement in REFINEMENTS
    if name == "full":
        return FULL
    scorer = SCORERS.get(first)
    if not (scorer is None or (isinstance(scorer, type) and issubclass(scorer, Scorer))):
        raise TypeError(f"SCORERS[{first!r}] must be a class of models.Scorer, got {scorer!r}")
    scopes: dict[str, Scope] = {} if scorer is None else {x: x for x in scorer.scopes()}
    if scorer is not None and refines and (not separator or scope in scopes):
        return System(name, first, refinement or None, scopes.get(scope, scorer.scope))
    quantises = first in STORES and not separator
    if quantises and (not plus or (first.startswith("hex") and refinement != "nms" and refines)):
        scorer = "h2o" if first.startswith("hex") else None
        return System(name, scorer, refinement or None, store=first)
    named = ["full", *STORES, *SCORERS, *(f"{s}+{r}" for s in SCORERS for r in REFINEMENTS)]
    misspelt = first not in (*STORES, *SCORERS) or not refines
    hint = (checks.did_you_mean(name, named) if misspelt else "") or "."
    if separator and scopes and refines and scope not in scopes:
        hint = f": {first} has @{', @'.join(scopes)}."
    raise ValueError(
        f"system must be a known name, got {name!r}{hint} Known are 'full'; a scorer "
        f"({', '.join(SCORERS)}), alone or with one of "
        f"+{', +'.join(REFINEMENTS)} and with @head, @layer or @model; a store "
        f"({', '.join(STORES)}), those of HEX also with +hubkv or +graphkv; and a scorer, '>' "
        "and a store, as in 'snapkv>hex-4'"
    )


def refinement_name(settings: Any) -> str:
    """Return the name of the refinement that has settings of this type."""
    kinds = dict(zip(KINDS, REFINEMENTS, strict=True))
    if not isinstance(settings, KINDS):
        names = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(
            f"refined must be one of {names}, got {settings!r}: settings are given as "
            "`HubSettings(gamma=0.9)`, and a name behind the scorer's, as 'snapkv+hubkv'"
        )
    return kinds[type(settings)]


def reading_settings(scorer: str, reading: str) -> dict[str, Any]:
    """Return the settings of a scorer that depend on the reading."""
    return {"exact": reading == "remedied"} if "exact" in SCORERS[scorer].takes else {}


def selection_call(system: System, reading: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a system's selection function, and its settings without the budget.

    Args:
        system: a system that evicts.
        reading: `"letter"` or `"remedied"`.

    Returns:
        `"select"`, `"hubkv_select"` or `"graphkv_select"`, and its settings.
    """
    settings = refinement_settings(system, reading)
    if system.refinement == "hubkv":
        return "hubkv_select", dict(refinement=settings, scope=system.scope)
    if isinstance(settings, GraphSettings) and system.scope == "head":
        length = None if settings.adaptive else 1000 * settings.count
        return "graphkv_select", dict(refinement=settings, length=length)
    return "select", dict(refinement=settings, scope=system.scope)


def refinement_settings(system: System, reading: str) -> Any:
    """Return the settings of a system's refinement under a reading."""
    one_of("readings", reading, READINGS)
    if system.refinement is None:
        return None
    if system.settings:
        return system.settings
    changes = system.changes_of(system.refinement)
    return default_refinement(system.refinement, reading)._replace(**changes)


def compares_queries(system: System, reading: str) -> bool:
    """Return whether the edges of a system's graph compare queries."""
    return "q" in getattr(refinement_settings(system, reading), "kind", "")


def default_refinement(refinement: str, reading: str) -> Any:
    """Return the default settings of a refinement under a reading."""
    if refinement == "graphkv":
        graph: dict[str, Any] = dict.fromkeys(GRAPH, reading == "remedied")
        return optimized.GraphSettings(NEIGHBOURS, **graph, adaptive=reading == "letter")
    return optimized.HubSettings() if refinement == "hubkv" else optimized.NmsSettings()


def store_of_kept(system: System) -> System:
    """Return the system that stores what another one keeps, with its settings."""
    stored = system_named(str(system.then))
    return stored._replace(changes=tuple(one for one in system.changes if one[0] == "store"))


def quantizer_settings(system: System) -> dict[str, Any]:
    """Return the settings of a KIVI or GEAR that its name and its changes give."""
    assert system.store is not None
    _, bits, width = system.store.partition("-")
    return ({"bits": int(width)} if bits else {}) | system.changes_of("store")


def store_kinds(store: str) -> dict[str, Any]:
    """Return the type of each setting of a store."""
    if store in QUANTIZERS:
        function = optimized.gear_prefill if store == "gear" else optimized.kivi_prefill
        kinds = get_type_hints(function, include_extras=True)
        return {name: kinds[name] for name in kinds if name not in ("keys", "values", "return")}
    return get_type_hints(optimized.HexConfig, include_extras=True)


def with_store_settings(system: System, given: Mapping[str, Any]) -> System:
    """Return a system with settings of its store.

    Raises:
        TypeError, ValueError: the store has no such setting, or its value is not admissible.
    """
    store = str(system.then or system.store)
    kinds = store_kinds(store)
    given = bits_of_sides(given)
    for name, value in given.items():
        checks.require_known_name(f"settings of {store}", name, sorted(kinds))
        compiled(f"settings of {store}: {name}", kinds[name])(value, {})
    changes = (*system.changes, *(("store", name, value) for name, value in given.items()))
    return system._replace(changes=changes)


def bits_of_sides(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings in which `bits=(8, 4)` is `bits=8, value_bits=4`."""
    bits = given.get("bits")
    if not isinstance(bits, tuple | list):
        return given
    if len(bits) != 2 or "value_bits" in given:
        beside = ", beside value_bits" if "value_bits" in given else ""
        raise ValueError(
            "bits must be a number, or two, of keys and of values and without value_bits, got "
            f"{bits!r}{beside}"
        )
    return {**given, "bits": bits[0], "value_bits": bits[1]}


def hex_settings(system: System, reading: str) -> optimized.HexConfig:
    """Return the settings of a HEX or KCVT under a reading."""
    assert system.store is not None
    given = None if system.refinement else system.settings
    changed = system.changes_of("hex") | system.changes_of("store")
    kind, _, bits = system.store.upper().partition("-")
    preset = given or optimized.hex_preset(f"{kind}-3")._replace(bits=int(bits))
    return correct_hex(preset._replace(**changed), reading)._replace(**changed)


def correct_hex(config: optimized.HexConfig, reading: str) -> optimized.HexConfig:
    """Return settings of HEX with the corrections of a reading switched on or off."""
    on = reading == "remedied" and config.recent > 0
    return config._replace(**dict.fromkeys(HEX, on))
