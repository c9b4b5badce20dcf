"""Which body runs for which call, tested on tensors without values that claim to be on a GPU."""

from collections.abc import Iterator
from fractions import Fraction
from inspect import signature
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import optimized
import reference
from optimized import _dispatch, kernels, vector
from optimized._dispatch import dispatch
from optimized.bench.launch_recorder import recorded
from optimized.bench.operations import moved
from optimized.hex_packed_layout import PackedCache
from optimized.kernels.hex.attention import attend_packed
from reference import GraphSettings, HexConfig, Scored
from reference.contract.enforce import trusted
from spec_tests.accuracy import cast
from spec_tests.kernels.test_every_kernel import SMALL, WAITS

GPU = "meta"


def layer(tokens=12, width=4, dtype=torch.float32, device="cpu"):
    """Return keys, values and scores of two layers of two heads."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    keys, values = torch.randn(2, 2, 2, tokens, width, generator=generator).to(device, dtype)
    scores = torch.rand(2, 2, tokens, generator=generator).to(device, dtype)
    return keys, values, Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


def stream(count=1, tokens=97, device="cpu"):
    """Return queries, keys and values of a head of 64 channels, which HEX's kernels support."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    return torch.randn(3, 1, tokens, 64, generator=generator)[..., -count:, :].to(device)


def stored():
    """Return a HEX cache of a block."""
    return reference.hex_prefill(*stream(96), config=HEX)


HEX = HexConfig(bits=4, density=0.0, heavy=0.0, recent=0)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """Make tensors without values claim to be on a GPU."""
    with patch.object(Tensor, "is_cuda", property(lambda tensor: tensor.device.type == GPU)):
        yield


@pytest.mark.parametrize(
    ("names", "call"),
    [
        ("refine cut mark copy", lambda: optimized.hubkv_compress(*layer(), ratio=0.5)),
        ("mass codes", lambda: optimized.hex_prefill(*stream(96, 96), config=HEX)),
        ("restore", lambda: optimized.hex_read(stored())),
        ("kcvt merge", lambda: optimized.hex_decode(stored(), *stream())),
    ],
)
def test_a_body_launches_the_kernels_of_the_functions_that_it_calls(names, call):
    with patch.object(_dispatch, "on_gpu", lambda _: True), recorded(run=True) as launches:
        call()
    found = {launch.kernel.fn.__name__ for launch in launches}
    assert found >= {f"{name}_kernel" for name in names.split()}
    with recorded(run=True) as launches:
        call()
    assert not launches, "on a CPU"


def row(name: str) -> Any:
    """Return a dispatched function whose bodies return their own names."""
    spec = getattr(reference, name)

    def vectorised(*_, **__):
        return "vectorised"

    def kernel(*_, **__):
        return "kernel"

    vars(vectorised)["__signature__"] = vars(kernel)["__signature__"] = signature(spec)
    return dispatch(spec, vectorised, lambda: kernel)


def test_a_kernel_runs_while_the_gpu_of_its_tensors_is_the_current_one():
    entered = list[Any]()

    class Entered(torch.cuda.device):
        def __init__(self, device: Any) -> None:
            entered.append(device)
            super().__init__(-1)

    with FakeTensorMode():
        first, second = (torch.empty(3, device=f"cuda:{i}") for i in range(2))
        scored = Scored(
            *[torch.empty(1, 3, device="cuda:1", dtype=x) for x in (torch.float, torch.bool)]
        )
    protected = second.bool()
    is_cuda = patch.object(Tensor, "is_cuda", property(lambda tensor: tensor.device.type == "cuda"))
    with patch.object(torch.cuda, "device", Entered), is_cuda, trusted():
        assert row("smd")(second, protected=protected) == "kernel"
        assert row("smd")(torch.ones(3)) == "vectorised"
        assert row("refine")(scored, None, keep=2) == "kernel"
        assert entered == [second.device] * 2
        assert row("smd")(first, protected=protected) == "vectorised", "torch refuses two GPUs"


@pytest.mark.parametrize(
    ("select", "settings"),
    [
        (optimized.select, dict(keep=9, scope="layer")),
        (optimized.hubkv_select, dict(ratio=0.5)),
        (
            optimized.graphkv_select,
            dict(refinement=GraphSettings(1, exclude_window=True), keep=5, length=1000),
        ),
    ],
)
def test_a_trusted_selection_without_padding_waits_for_nothing_from_end_to_end(select, settings):
    """Tensors without values raise where code reads a value."""
    with trusted(), recorded() as launches:
        select(*layer(device=GPU), **settings)
    assert launches


def test_a_cache_that_is_not_laid_out_is_refused_while_a_graph_is_captured():
    queries, cache = moved((stream()[0], stored()), torch.device(GPU))
    yes: dict[str, Any] = dict(is_available=lambda: True, is_current_stream_capturing=lambda: True)
    with patch.multiple(torch.cuda, **yes), recorded() as launches:
        with pytest.raises(TypeError, match="cache must be a PackedCache while a CUDA graph"):
            optimized.hex_attention(queries, cache)
        assert not launches
        with trusted():
            attend_packed(queries, PackedCache.of(cache))
    assert launches


def test_a_kernel_gets_numbers_of_python():
    numbers: Any = dict(ratio=np.float32(0.5), tau=np.float16(0.5), epsilon=Fraction(1, 8))
    with trusted(), recorded() as launches:
        optimized.hubkv_refine(torch.empty(2, 3, 8, device=GPU), **numbers)
    given = {type(x) for launch in launches for x in launch.arguments.values()}
    assert len(launches) == 3
    assert given <= {torch.Tensor, int, float, bool}


@pytest.mark.parametrize("name", [name for name in kernels.__all__ if name not in WAITS])
@settings(max_examples=4)
@given(data=st.data(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_a_trusted_call_on_a_gpu_waits_for_nothing_behind_its_door(name, data, dtype):
    inputs = cast(data.draw(SMALL[name]), dtype)
    there = {key: moved(x, torch.device(GPU)) for key, x in inputs.items()}
    with trusted(), recorded(), patch.object(vector, name):
        getattr(optimized, name)(**there)
