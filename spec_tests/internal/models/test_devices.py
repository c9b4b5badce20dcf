"""Devices that this machine lacks, in its memory: Apple's MPS, and a model on two devices."""

from functools import cache, partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map

import optimized as kv
from spec_tests.internal.models.random_model import gates, models, new_model, prompts

CPU = torch.device("cpu")
GATES = dict(settings=dict(weights=gates(kv)))
SYSTEMS = {name: dict(ratio=0.5) for name in models.SCORERS if name != "fastkvzip"} | {
    "snapkv+graphkv": dict(ratio=0.5),
    "knorm+hubkv>gear": dict(ratio=0.3, settings=dict(shift=True)),
    "kvzip+hubkv": dict(ratio=0.5),
    "fastkvzip+hubkv": GATES | dict(ratio=0.5),
    "fastkvzip@head": GATES | dict(keep=9, interval=4),
    "kvzip+hubkv@layer>kcvt-4": dict(ratio=0.3),
    "snapkv+nms@head": dict(keep=[8, 12], protected=slice(0, 3)),
    "h2o+hubkv": dict(keep=9, interval=4),
    "expected_attention+hubkv": dict(keep=9, interval=4),
    "hex-3": {},
    "kivi-4": {},
}


class Away(Tensor):
    """A tensor in the memory of the CPU that counts as one on the device `home`."""

    home: torch.device


class OtherDevices(TorchFunctionMode):
    """Refuse float64 on `mps`, and tensors of two devices in one call, as PyTorch does."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = func.__name__ if func.__name__ != "__get__" else func.__self__.__name__
        kwargs = kwargs or {}
        given = [x for x in tree_iter((args, kwargs)) if isinstance(x, Tensor)]
        homes = dict.fromkeys(place_of(x) for x in given if x.ndim or isinstance(x, Away))
        if name in ("device", "is_cpu", "is_mps", "is_cuda"):
            home = place_of(args[0])
            return home if name == "device" else name == f"is_{home.type}"
        if func is torch.device:
            return func(*args, **kwargs)
        if name == "numpy" and CPU not in homes:
            raise TypeError(f"can't convert {place_of(args[0])} device type tensor to numpy")
        places = {*homes} - {CPU} if name in ("__getitem__", "__setitem__") else homes
        if len(places) > 1 and name not in ("to", "copy_"):
            raise RuntimeError(f"{name} expects all tensors on the same device, got {[*homes]}")
        if name == "__getitem__" or (name == "to" and len(given) > 1):
            homes = {place_of(given[name == "to"]): None}
        named = [torch.device(x) for x in (*args, *kwargs.values()) if is_place(x)]
        home = CPU if name == "cpu" else next(iter([*named, *homes]), CPU)
        args, kwargs = tree_map(lambda x: CPU if is_place(x) else x, (args, kwargs))
        with DisableTorchFunction():
            result = func(*args, **kwargs)
            if isinstance(result, torch.Size):
                return result
            return tree_map(lambda x: placed(x, home) if isinstance(x, Tensor) else x, result)


def is_place(x):
    """Return whether an argument names a device."""
    return isinstance(x, torch.device) or (type(x) is str and x in ("cpu", "mps", "xpu:0", "xpu:1"))


def place_of(x: Tensor) -> torch.device:
    """Return the device that a tensor counts as on."""
    return x.home if isinstance(x, Away) else CPU


def placed(x: Tensor, home: torch.device) -> Tensor:
    """Return a tensor as one of a device."""
    if home == CPU:
        return x.as_subclass(Tensor) if isinstance(x, Away) else x
    if home.type == "mps" and x.dtype == torch.float64:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
    x = x.as_subclass(Away)
    x.home = home
    return x


def move(module, home: str) -> None:
    """Put the parameters and buffers of a module on a device."""
    with DisableTorchFunction():
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, x in tensors.items():
                    tensors[name] = None if x is None else placed(x.detach(), torch.device(home))


@cache
def model_on(device: str):
    """Return a model on a device; its second block is on another one after `xpu:0`."""
    model = new_model("llama", head_dim=64)  # 128 channels, the fewest for HEX's masks
    move(model, device)
    if device == "xpu:0":
        move(model.model.layers[1], "xpu:1")
        for module, home in ((model.model.layers[1], "xpu:1"), (model.model.norm, "xpu:0")):
            module.register_forward_pre_hook(partial(bring, home), with_kwargs=True)
    return model


def bring(home: str, _, given, named):
    """Return the inputs of a module on its device, as `accelerate` brings them."""
    return tree_map(lambda x: x.to(home) if isinstance(x, Tensor) else x, (given, named))


def answer(device: str, system: str) -> tuple[int, list]:
    """Return the bytes of a compressed cache, and what the model says after it."""
    ids, mask = (x.to(device) for x in prompts())
    cache = models.compressed(model_on(device), system, ids, mask, **SYSTEMS[system])
    how = dict(past_key_values=cache, max_new_tokens=3, do_sample=False)
    return cache.nbytes, model_on(device).generate(ids, attention_mask=mask, **how).tolist()


@pytest.mark.parametrize(("device", "system"), [*product(("mps", "xpu:0"), SYSTEMS)])
def test_another_device_gives_what_the_cpu_gives(device, system):
    expected = answer("cpu", system)
    with OtherDevices():
        assert answer(device, system) == expected


def test_sums_in_float64_run_on_the_cpu():
    x = torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(0))
    for call in (
        lambda x: kv.autocorrelation(x, 3),
        lambda x: kv.greedy(x, 2),
        lambda x: kv.head_budgets(x, 3, rule="hybrid"),
        lambda x: kv.principal_components(x, 2),
    ):
        expected = call(x)
        with OtherDevices():
            found = call(x.to("mps"))
            assert found.device.type == "mps"
        assert torch.equal(found, expected)
