"""A module with its own types of settings, results and caches passes the suite."""

import re

import pytest

OWN = '''
from collections import namedtuple
from dataclasses import fields, is_dataclass, make_dataclass
from functools import wraps
from inspect import signature
from typing import Any

import reference


def as_data(name):
    """Return a frozen data class of a record's fields and defaults."""
    kind = getattr(reference, name)
    given = [(f, Any, kind._field_defaults[f]) for f in kind._field_defaults]
    needed = [(f, Any) for f in kind._fields if f not in kind._field_defaults]
    return make_dataclass(name, [*needed, *given], frozen=True)


HubSettings, GraphSettings, HexConfig = map(as_data, ("HubSettings", "GraphSettings", "HexConfig"))
Scored = namedtuple("Scored", reference.Scored._fields)
OWN = {kind.__name__: kind for kind in (HubSettings, GraphSettings, HexConfig, Scored)}


def inward(value):
    """Return the specification's value; a record of it whose type we have must be ours."""
    name = type(value).__name__
    if name in OWN:
        assert type(value) is OWN[name], f"handed another's {name}"
        names = [f.name for f in fields(value)] if is_dataclass(value) else value._fields
        return getattr(reference, name)(*(inward(getattr(value, n)) for n in names))
    if isinstance(value, tuple):
        parts = [inward(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def outward(value):
    """Return our own record, or a plain tuple where we have none."""
    if not isinstance(value, tuple):
        return value
    parts = [outward(part) for part in value]
    kind = OWN.get(type(value).__name__)
    return kind(*parts) if kind else tuple(parts)


def ours(spec):
    """Return a function of the specification among our own records."""
    @wraps(spec)
    def call(*args, **kwargs):
        given = {name: inward(value) for name, value in kwargs.items()}
        return outward(spec(*map(inward, args), **given))

    parameters = [
        p.replace(default=outward(p.default)) for p in signature(spec).parameters.values()
    ]
    call.__signature__ = signature(spec).replace(parameters=parameters)
    return call


for name in NAMES:
    globals()[name] = ours(getattr(reference, name))
'''
NAMES = ("hubkv_select", "hex_bytes", "hex_prefill", "evict", "h2o")
ONLY = ("test_agreement.py", "test_errors.py", "test_vectors.py")


def test_a_modules_own_records_are_handed_to_it_and_taken_from_it(suite, elsewhere):
    (elsewhere / "own.py").write_text(f"NAMES = {NAMES}\n{OWN}")
    done = suite("own", "--ours", only=ONLY)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "passed" in done.stdout
    for name in NAMES:
        assert re.search(f"{name} +in part +in part +passes", done.stdout)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("given = [(f, Any, kind._field_defaults[f])", "given = [(f, Any, 7)"),
        ("[*needed, *given]", "[*needed, *given[::-1]]"),
    ],
)
def test_a_record_of_other_fields_or_defaults_fails(suite, elsewhere, old, new):
    assert old in OWN
    name = f"own_{len(new)}"
    (elsewhere / f"{name}.py").write_text(f"NAMES = ('hubkv_select',)\n{OWN.replace(old, new)}")
    done = suite(name, "-k", "test_a_record and HubSettings", "-v", only=ONLY[:1])
    assert "test_a_record_has_the_fields_and_defaults_of_the_specification" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


def test_the_specifications_own_records_need_no_test(suite):
    done = suite("reference", "-k", "test_a_record", only=ONLY[:1])
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
