"""The gate of a timed operation: its kernels launch at a shape of use and agree with the reference.

The shape has the width, the dtype and the options of the timed one, and few tokens.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

import reference
from optimized import kernels
from optimized.bench.operations import (
    RATIO,
    Named,
    Operation,
    chosen,
    moved,
    operations,
    override_launch_options,
)
from reference.contract.enforce import trusted


class Failed(Exception):
    """No kernel launches at the gate, a timed one is missing, or the result is wrong."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Return a context that counts the launches of each kernel, and runs them."""
    found = Counter[str]()

    def counting(run: Callable[..., object]) -> Callable[..., object]:
        def launch(self: Any, *args: Any, **given: Any) -> object:
            found[self.fn.__name__] += not given.get("warmup", False)
            return run(self, *args, **given)

        return launch

    with ExitStack() as patches:
        for kind in (JITFunction, InterpretedFunction):
            patches.enter_context(patch.object(kind, "run", counting(kind.run)))
        yield found


def gate_of(one: Operation) -> Operation:
    """Return the operation with few tokens whose agreement admits an operation.

    Raises:
        Failed: there is none.
    """
    for small in operations(small=True):
        if same_variant(small, one):
            return small
    raise Failed(f"no gate for {one.title}")


def same_variant(small: Operation, one: Operation) -> bool:
    """Whether two operations run the same kernels with the same options."""
    names = ("step", "name", "variant", "options")
    return all(getattr(small, name) == getattr(one, name) for name in names)


def check_gate(one: Operation, device: torch.device) -> Counter[str]:
    """Check an operation of few tokens against the reference; return its kernels' launches.

    Raises:
        Failed: no kernel launches, or the result is wrong.
    """
    inputs = one.inputs(device)
    assert one.kernel is not None
    options = override_launch_options(one.options) if one.options else nullcontext()
    with trusted(), options, counted() as launches:
        found = one.kernel(**inputs.kernel)
    if not launches:
        raise Failed(f"no kernel launches for {one.title}")
    try:
        judge(one, found, inputs.eager or inputs.kernel)
    except AssertionError as reason:
        raise Failed(f"{one.title}: {reason}".splitlines()[0][:200]) from reason
    return launches


def judge(one: Operation, found: Any, inputs: Named) -> None:
    """Check a result of an operation against the reference.

    Raises:
        AssertionError: it is wrong.
    """
    from spec_tests.accuracy import assert_as_accurate, assert_equal

    cpu = partial(moved, device=torch.device("cpu"))
    on_cpu = cpu(inputs)
    rest = dict(one.kernel.keywords) if isinstance(one.kernel, partial) else {}
    if isinstance(one.kernel, partial) and one.kernel.func is chosen:
        # equal scores after rounding may be ordered either way, so each half is checked by itself
        scores, protected = inputs["scores"], inputs.get("protected")
        refined = kernels.hubkv_refine(scores, RATIO, protected)
        refine = partial(reference.hubkv_refine, ratio=RATIO)
        assert_as_accurate(cpu(refined), refine, on_cpu)
        shield = on_cpu.get("protected")
        kept = reference.retain(cpu(refined), shield, ratio=RATIO, scope="model")
        return assert_equal(cpu(found), kept)
    if one.name == "hex_decode":
        return assert_as_accurate(cpu(found), lambda **x: reference.hex_decode(**x).output, on_cpu)
    if one.name == "hex_attention":
        rest = {}
    assert_as_accurate(cpu(found), partial(getattr(reference, one.name), **rest), on_cpu)


def check_admits(launches: Counter[str], timed: set[str], title: str) -> None:
    """Check that a gate launched every kernel that is timed.

    Raises:
        Failed: one is missing.
    """
    if missing := timed - set(launches):
        raise Failed(f"the gate of {title} does not launch {', '.join(sorted(missing))}")
