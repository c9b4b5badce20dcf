"""Settings that the option `--set` changes."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, get_type_hints

import torch

import optimized
from optimized.models.argument_checks import did_you_mean, require_known_name
from optimized.models.scorers import SCORERS
from optimized.models.systems import REFINEMENTS, System, default_refinement, system_named
from optimized.study.controls import Control, applies
from reference.contract.docstrings import admits
from reference.contract.enforce import compiled
from reference.contract.types import choices_of, members

Changes = tuple[tuple[str, str, Any], ...]
"""Changed settings: the part of a system, the setting, its value."""

RECORDS = {name: default_refinement(name, "letter") for name in REFINEMENTS} | {
    "hex": optimized.HexConfig(),
    "control": Control(),
}
KINDS: dict[str, dict[str, Any]] = {
    name: get_type_hints(type(usual), include_extras=True) for name, usual in RECORDS.items()
} | {name: kinds for name, scorer in SCORERS.items() if (kinds := scorer.kinds())}
"""The type of each setting of each part."""

WORDS = {str(word): word for word in (None, True, False, torch.float16, torch.float32)} | {
    "float16": torch.float16,
    "float32": torch.float32,
}


def read(texts: Iterable[str]) -> Changes:
    """Return the changes in texts `NAME.SETTING=VALUE`; the last one of a setting counts.

    Raises:
        ValueError: there is no such part or setting, or the value is not admissible.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        part, dot, setting = name.partition(".")
        if not (dot and equals):
            raise ValueError(
                f"--set must be NAME.SETTING=VALUE, such as hubkv.gamma=0.7, got {text!r}"
            )
        require_known_name("--set NAME", part, KINDS)
        require_known_name(f"--set {part}.SETTING", setting, KINDS[part])
        found.setdefault(part, {})[setting] = value_of(name, KINDS[part][setting], value)
    for part in found.keys() & RECORDS.keys():
        whole = RECORDS[part]._replace(**found[part])
        compiled(f"--set {part}", type(whole))(whole, {})
    return tuple((part, *item) for part, values in found.items() for item in values.items())


def value_of(name: str, kind: Any, text: str) -> Any:
    """Return the value that a text stands for, if an annotation admits it.

    Raises:
        ValueError: the annotation does not admit the value.
    """
    value: Any = WORDS.get(text, text)
    for number in (float, int):
        with suppress(ValueError):
            value = number(text)
    try:
        compiled(f"--set {name}", kind)(value, {})
    except (TypeError, ValueError) as error:
        said = admits(kind)
        article = {"number": "a ", "integer": "an "}.get(said.split()[0].rstrip(","), "")
        words = [str(one) for base, marks in members(kind) for one in choices_of(base, marks)]
        raise ValueError(
            f"--set {name} must be {article}{said}, got {text!r}{did_you_mean(text, words)}"
        ) from error
    return value


def changed(systems: Sequence[System], changes: Changes) -> list[System]:
    """Return the systems, each with the changes of its own parts.

    Raises:
        ValueError: no system has the part of a change.
    """
    for part, setting, _ in changes:
        if not any(has(system, part, setting) for system in systems):
            raise ValueError(
                f"--set {part}.{setting} must be of a system that is measured, got --systems "
                f"without {part}"
            )
    return [
        system._replace(
            changes=(*(change for change in changes if has(system, *change[:2])), *system.changes)
        )
        for system in systems
    ]


def has(system: System, part: str, setting: str) -> bool:
    """Return whether a system has a setting of a part."""
    return applies(system, setting) if part == "control" else part in system.parts


def system_with_settings(name: str) -> System:
    """Return a system by its name, which may be followed by settings: `hex-3:hex.heavy=0`.

    Raises:
        ValueError: there is no such system or setting, or the setting is a scorer's.
    """
    base, colon, texts = name.partition(":")
    system = system_named(base)
    if colon:
        (system,) = changed([system], read(texts.split(",")))
        if system.changes_of(system.scorer):
            raise ValueError(
                "--systems must have settings of hubkv, graphkv, nms, hex or control behind ':', "
                f"got {name!r}: those of a scorer are the same for all systems, by --set"
            )
    return system._replace(name=name)
