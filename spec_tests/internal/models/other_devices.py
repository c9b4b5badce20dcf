"""A stand-in for devices that this machine lacks: tensors in its memory, under a device's rules."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map

CPU = torch.device("cpu")
MOVING = ("to", "copy_", "__getitem__", "__setitem__")


class Away(Tensor):
    """A tensor in the memory of the CPU that counts as one of another device."""

    place: torch.device


class OtherDevices(TorchFunctionMode):
    """Refuse float64 on `mps`, and tensors of two devices in one call, as PyTorch does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function on the CPU, and place its results on the device that it asks for."""
        name = func.__name__ if func.__name__ != "__get__" else func.__self__.__name__
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        given = [x for x in tree_iter((args, kwargs)) if isinstance(x, Tensor)]
        homes = dict.fromkeys(place_of(x) for x in given if x.ndim or isinstance(x, Away))
        if name in ("device", "is_cpu", "is_mps", "is_cuda"):
            home = place_of(args[0])
            return home if name == "device" else name == f"is_{home.type}"
        if name == "numpy" and CPU not in homes:
            raise TypeError(f"can't convert {place_of(args[0])} device type tensor to numpy")
        if len(homes) > 1 and name not in MOVING:
            raise RuntimeError(f"{name} expects all tensors on the same device, got {[*homes]}")
        if name == "__getitem__":  # an index may be on the CPU
            homes = {place_of(args[0]): None}
        if name == "to" and len(given) > 1:
            homes = {place_of(given[1]): None}
        asked = [x for x in (*args, kwargs.get("device")) if isinstance(x, torch.device)]
        asked += [torch.device(x) for x in (kwargs.get("device"), *args[1:2]) if type(x) is str]
        asked += [CPU] if name == "cpu" else []
        home = next(iter([*asked, *homes]), CPU)
        if asked:
            args, kwargs = tree_map(lambda x: CPU if is_place(x) else x, (args, kwargs))
        with DisableTorchFunction():
            result = func(*args, **kwargs)
            if isinstance(result, torch.Size):
                return result
            return tree_map(lambda x: placed(x, home) if isinstance(x, Tensor) else x, result)


def is_place(x: Any) -> bool:
    """Return whether an argument names a device."""
    return isinstance(x, torch.device) or x in ("cpu", "mps") or str(x).startswith("xpu:")


def place_of(x: Tensor) -> torch.device:
    """Return the device that a tensor counts as on."""
    return x.place if isinstance(x, Away) else CPU


def placed(x: Tensor, home: torch.device) -> Tensor:
    """Return a tensor as one of a device."""
    if home == CPU:
        return x.as_subclass(Tensor) if isinstance(x, Away) else x
    if home.type == "mps" and x.dtype == torch.float64:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
    x = x.as_subclass(Away)
    x.place = home
    return x


def move(module: nn.Module, home: str) -> None:
    """Put the parameters and buffers of a module on a device."""
    with DisableTorchFunction():
        for one in module.modules():
            for held in (one._parameters, one._buffers):
                here = {name: x for name, x in held.items() if x is not None}
                held |= {name: placed(x.detach(), torch.device(home)) for name, x in here.items()}
