"""Validate a value against a JSON schema, with the keywords that our schemas use."""

import re
from collections.abc import Iterator
from typing import Any

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
WORDS = {
    *("$schema", "$defs", "$ref", "title", "description", "type", "enum", "const", "anyOf"),
    *("properties", "required", "additionalProperties", "propertyNames", "pattern", "items"),
    *("minItems", "minProperties", "maxProperties", "minimum"),
}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield the violations of a schema by a value, each with its path.

    Raises:
        ValueError: the schema uses an unsupported keyword.
    """
    if unknown := schema.keys() - WORDS:
        raise ValueError(f"{sorted(unknown)} in a schema")
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        yield from faults(value, target, root, at)
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_of(value, kind) for kind in kinds):
            yield f"{at}: {value!r:.60} is no {' or '.join(kinds)}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r:.60} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r:.60} is not {schema['const']}"
    if "anyOf" in schema and all([*faults(value, one, root, at)] for one in schema["anyOf"]):
        yield f"{at}: {value!r:.60} is none of the forms"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: {value!r:.60} does not match {schema['pattern']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{at}: {value} < {schema['minimum']}"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{at}: too few"
        for i, part in enumerate(value):
            yield from faults(part, schema.get("items", {}), root, f"{at}[{i}]")
    if isinstance(value, dict):
        yield from of_object(value, schema, root, at)


def is_of(value: Any, kind: str) -> bool:
    """Whether a value is of a JSON type; a boolean is not a number."""
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def of_object(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], at: str
) -> Iterator[str]:
    """Yield the violations of a schema by an object."""
    if missing := set(schema.get("required", ())) - value.keys():
        yield f"{at}: lacks {sorted(missing)}"
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        yield f"{at}: has {len(value)} members"
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, part in value.items():
        yield from faults(name, schema.get("propertyNames", {}), root, f"{at}.{name}")
        if name in known:
            yield from faults(part, known[name], root, f"{at}.{name}")
        elif rest is False:
            yield f"{at}: may not have {name}"
        else:
            yield from faults(part, rest, root, f"{at}.{name}")
