"""A module with its own types of settings and results passes the suite."""

import pytest

OWN = """
from collections import namedtuple
from dataclasses import asdict, make_dataclass

import reference
from reference import h2o as scores_of_reference, hubkv_select as select_of_reference

defaults = reference.HubSettings._field_defaults
fields = [(name, object, default) for name, default in defaults.items()]
HubSettings = make_dataclass("HubSettings", fields, frozen=True)
Scored = namedtuple("Scored", reference.Scored._fields)


def hubkv_select(
    keys, values, scored, *, keep=None, ratio=None, scope="model", refinement=HubSettings(),
    sinks=4, recent=None, valid=None,
):
    if isinstance(scored, reference.Scored) or isinstance(refinement, reference.HubSettings):
        raise AssertionError("handed another's record")
    return select_of_reference(
        keys, values, reference.Scored(*scored), keep=keep, ratio=ratio, scope=scope, sinks=sinks,
        refinement=reference.HubSettings(**asdict(refinement)), recent=recent, valid=valid,
    )


def h2o(mass, keep, valid=None, recent=None):
    return Scored(*scores_of_reference(mass, keep, valid, recent))


def evict(keys, values, kept):
    return tuple(reference.evict(keys, values, kept))
"""
ONLY = ("test_agreement.py", "test_errors.py", "test_vectors.py")


def test_own_records_pass_unless_they_have_another_default(suite, elsewhere):
    (elsewhere / "own.py").write_text(OWN)
    done = suite("own", "--ours", only=ONLY)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert {"hubkv_select", "h2o", "evict"} <= {*done.stdout.split()}
    (elsewhere / "own_default.py").write_text(OWN.replace("object, default)", "object, 7)"))
    done = suite("own_default", "-k", "test_a_record and HubSettings", only=ONLY[:1])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
