"""Triton's interpreter, its programs in another order or at other places than it would run them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import walk_packages
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

import triton.language as tl
from triton.runtime import interpreter

from optimized import kernels

Order = Callable[[int], list[int]]

ORDERS: dict[str, Order] = {
    "backwards": lambda count: [*range(count)][::-1],
    "shuffled": lambda count: Random(count).sample(range(count), count),
}


def patch_once() -> None:
    """Turn Triton's language into the interpreter's for good.

    Done again for every call of every device function, that takes nine tenths of the time.
    """
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda _: SimpleNamespace(restore=lambda: None)


@contextmanager
def programs(order: Order) -> Iterator[None]:
    """Run the programs of every launch in an order, given how many there are."""
    builder = interpreter.interpreter_builder
    places: list[int] = []

    def elsewhere(self, x: int, y: int, z: int) -> None:
        rows, columns, depth = self.grid_dim
        number = (x * columns + y) * depth + z
        if number == 0:
            places[:] = order(rows * columns * depth)
        rest, z = divmod(places[number], depth)
        self.grid_idx = (*divmod(rest, columns), z)

    with patch.object(type(builder), "set_grid_idx", elsewhere):
        yield


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    """Let a program own as few elements, so that small inputs take several of them."""
    places = walk_packages(kernels.__path__, f"{kernels.__name__}.")
    homes = [import_module(place.name) for place in places]
    before = [(home, home.BLOCK) for home in homes if hasattr(home, "BLOCK")]
    try:
        for home, _ in before:
            vars(home)["BLOCK"] = size
        yield
    finally:
        for home, block in before:
            vars(home)["BLOCK"] = block
