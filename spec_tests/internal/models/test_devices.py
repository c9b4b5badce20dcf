"""Devices that this machine lacks: Apple's MPS, and a model on two devices."""

from functools import cache, partial

import pytest
import torch
from torch.utils._pytree import tree_map

import optimized as kv
from spec_tests.internal.models.other_devices import OtherDevices, move
from spec_tests.internal.models.random_model import models, new_model, prompts

IDS, MASK = prompts()
EVICTING = [name for name in models.SCORERS if name != "fastkvzip"]
SYSTEMS = {
    **{name: dict(ratio=0.5) for name in EVICTING},
    "snapkv+graphkv": dict(ratio=0.5),
    "knorm+hubkv>gear": dict(ratio=0.3, settings=dict(shift=True)),
    "h2o+hubkv": dict(keep=9, interval=4),
    "hex-3": {},
    "full": {},
    "kivi-4": {},
}


@cache
def model_of(device: str):
    """Return a model on a device; its layers cache 128 channels, the fewest for HEX's masks."""
    if device == "xpu:0":
        return split_model()
    model = new_model("llama", head_dim=64)
    if device != "cpu":
        move(model, device)
    return model


@pytest.mark.parametrize("system", SYSTEMS)
def test_apples_gpu_gives_what_the_cpu_gives(system):
    expected = answer("cpu", system)
    with OtherDevices():
        assert answer("mps", system) == expected


def answer(device: str, system: str) -> tuple[int, list]:
    """Return the bytes of a compressed cache, and what the model says after it."""
    ids, mask, model = IDS.to(device), MASK.to(device), model_of(device)
    cache = models.compressed(model, system, ids, mask, **SYSTEMS[system])
    how = dict(past_key_values=cache, max_new_tokens=3, do_sample=False)
    return cache.nbytes, model.generate(ids, attention_mask=mask, **how).tolist()


def split_model():
    """Return a model with its second block on another device, as `device_map` puts it."""
    model = new_model("llama", head_dim=64)
    move(model, "xpu:0")
    block = model.model.layers[1]
    move(block, "xpu:1")
    for module, home in ((block, "xpu:1"), (model.model.norm, "xpu:0")):
        module.register_forward_pre_hook(partial(bring, home), with_kwargs=True)
    return model


def bring(home: str, _, given, named):
    """Return the inputs of a module on its device."""
    return tree_map(lambda x: x.to(home) if isinstance(x, torch.Tensor) else x, (given, named))


@pytest.mark.parametrize("system", ["full", "hex-3", "h2o+hubkv", "kivi-4"])
def test_caches_of_one_layer_run_on_two_devices(system):
    expected = answer("cpu", system)
    with OtherDevices():
        assert answer("xpu:0", system) == expected


@pytest.mark.parametrize("system", ["snapkv", "kvzip+hubkv", "knorm+hubkv>gear"])
def test_a_system_that_evicts_is_refused_on_two_devices(system):
    with (
        OtherDevices(),
        pytest.raises(ValueError, match=r"one device for '.*got xpu:0 and xpu:1: load it without"),
    ):
        models.compressed(split_model(), system, IDS.to("xpu:0"), ratio=0.5)


def test_sums_in_float64_run_on_the_cpu():
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(2, 6, 6, generator=draw)
    calls = [
        lambda x: kv.autocorrelation(x, 3),
        lambda x: kv.greedy(x, 2),
        lambda x: kv.head_budgets(x, 3, rule="hybrid"),
        lambda x: kv.principal_components(x, 2),
    ]
    expected = [call(x) for call in calls]
    with OtherDevices():
        found = [call(x.to("mps")) for call in calls]
        assert {one.device.type for one in found} == {"mps"}
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
