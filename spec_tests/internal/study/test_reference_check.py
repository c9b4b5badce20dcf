"""The check at the start of the command: `optimized` must agree with `reference`."""

import sys

import pytest

pytest.importorskip("transformers")

import torch

import optimized
import reference
from optimized.study import reference_check

WARNING = "python -m optimized: warning: optimized.{0} no longer computes reference.{0}"


def warned(said: str) -> list[str]:
    """Return the lines with a warning."""
    return [line for line in said.splitlines() if "warning" in line]


def test_what_nobody_has_changed_is_not_warned_of(checked_command, capsys):
    checked_command.figures("--systems", "full")
    assert warned(capsys.readouterr().err) == []


@pytest.mark.parametrize(
    ("module", "rule", "named"),
    [
        ("hubkv.refine", "smd", ["hubkv_refine"]),
        ("graphkv.refine", "decay", ["graphkv_refine"]),
        ("scorers.snapkv", "_pooled", ["snapkv"]),
    ],
)
def test_a_changed_rule_is_named_and_the_run_goes_on(
    checked_command, capsys, monkeypatch, module, rule, named
):
    home = sys.modules[f"reference.{module}"]
    does = getattr(home, rule)
    monkeypatch.setattr(home, rule, lambda *given, **options: 0.9 * does(*given, **options))
    figures = checked_command.figures("--systems", "knorm", "--ratios", "0.5")
    assert warned(capsys.readouterr().err) == [WARNING.format(name) for name in named]
    assert len(figures["rows"]) == 2


@pytest.mark.parametrize("part", range(5))
def test_every_function_that_is_wrong_or_raises_is_named_and_no_other(monkeypatch, part):
    wrong = list(reference_check.sample_calls())[part::5]
    for name in wrong:
        assert hasattr(reference, name)
        monkeypatch.setattr(optimized, name, (lambda *_, **__: torch.zeros(1)) if part else None)
    assert list(reference_check.disagreeing_functions()) == wrong


@pytest.mark.parametrize("name", ["hubkv_refine", "graphkv_refine", "nms", "h2o_mass"])
def test_a_thousandth_is_seen(monkeypatch, name):
    does = getattr(optimized, name)
    monkeypatch.setattr(optimized, name, lambda *given, **options: 1.001 * does(*given, **options))
    assert list(reference_check.disagreeing_functions()) == [name]


def test_the_check_leaves_what_is_drawn_as_it_is():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    list(reference_check.disagreeing_functions())
    assert torch.get_rng_state().equal(before)
