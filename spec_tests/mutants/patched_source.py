"""Build the public functions from a changed source of the reference or of the kernels.

Functions that call the changed one are rebuilt too.
"""

import ast
import shutil
import sys
from functools import cache, lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass, isfunction, unwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import reference
from spec_tests.report.messages import unwrap_cached_function

Names = dict[str, Any]
ROOT = Path(reference.__file__).parent
KERNELS = ROOT.parent / "optimized/kernels"


def patched_reference(file: str, old: str, new: str) -> Names:
    """Return the public names of the reference, without checks, with `old` in a file made `new`."""
    home = f"reference.{file.removesuffix('.py').replace('/', '.')}"
    modules = {name: m for name, m in sys.modules.items() if name.startswith("reference.")}
    copies = {name: ModuleType(name, module.__doc__) for name, module in modules.items()}
    for name, module in modules.items():
        vars(copies[name]).update(vars(module))
    twins: dict[int, Any] = {id(module): copies[name] for name, module in modules.items()}
    for name, module in modules.items():
        for value in map(unwrap_cached_function, vars(module).values()):
            if isfunction(value) and value.__module__ == name:
                twins[id(value)] = copy_function(value, vars(copies[name]))
    fresh = changed_statements(file, old, new)
    exec(compile(fresh, str(ROOT / file), "exec"), vars(copies[home]))
    for node in fresh.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            was, made = vars(modules[home])[node.name], vars(copies[home])[node.name]
            if isclass(was) and issubclass(was, tuple):  # annotations require the old class
                made = type(node.name, (was,), {**vars(made)})
            twins[id(was)] = made
    for name, module in modules.items():
        for key, value in vars(module).items():
            if twin := twins.get(id(unwrap_cached_function(value))):
                if value is not unwrap_cached_function(value):
                    twin = lru_cache(**value.cache_parameters())(twin)
                setattr(copies[name], key, twin)
    for twin in filter(isfunction, twins.values()):
        if rules := vars(twin).get("rules"):
            vars(twin)["rules"] = tuple(twins.get(id(rule), rule) for rule in rules)
    specs = {name: unwrap(getattr(reference, name)) for name in reference.__all__}
    return {name: twins.get(id(spec), spec) for name, spec in specs.items()}


def changed_statements(file: str, old: str, new: str) -> ast.Module:
    """Return the statements of a file that differ after `old` is replaced by `new`.

    Raises:
        ValueError: no statement differs. A failed assertion would count as a detection.
    """
    before, _, after = text(ROOT / file).partition(old)
    first = 1 + before.count("\n")
    lines = range(first, first + new.count("\n") + 1)
    fresh = [
        node
        for node in ast.parse(before + new + after).body
        for top in [min(part.lineno for part in [node, *getattr(node, "decorator_list", [])])]
        if top < lines.stop and (node.end_lineno or top) >= lines.start
    ]
    if old == new or not fresh:
        raise ValueError(f"no change: reference/{file} says what {new!r} says")
    return ast.Module(fresh, [])


@cache
def text(file: Path) -> str:
    """Return the text of a file."""
    return file.read_text()


def copy_function(function: FunctionType, names: Names) -> FunctionType:
    """Return a copy of a function with `names` as its globals."""
    copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    for what in ("__kwdefaults__", "__annotations__", "__doc__", "__module__", "__qualname__"):
        setattr(copy, what, getattr(function, what))
    vars(copy).update(vars(function))
    return copy


def patched_kernels(
    file: str, old: str, new: str, block: int, programs: int | None = None
) -> Names:
    """Return the public names as they run on a GPU, with `old` in a kernel file replaced by `new`.

    The kernels are imported again from a changed copy. Functions without a kernel are vectorised.
    """
    import optimized
    from optimized._dispatch import dispatch

    before = text(KERNELS / file)
    if (changed := before.replace(old, new)) == before and old != new:
        raise ValueError(f"no change: optimized/kernels/{file} says what {new!r} says")
    home = TemporaryDirectory()
    COPIES.append(home)
    place = shutil.copytree(KERNELS, Path(home.name) / "kernels")
    (place / file).write_text(changed)
    name = "optimized.kernels"
    spec = spec_from_file_location(name, place / "__init__.py")
    assert spec
    assert spec.loader
    package = module_from_spec(spec)
    others = {key: home for key, home in sys.modules.items() if not key.startswith(f"{name}.")}
    with patch.dict(sys.modules, others | {name: package}, clear=True):
        spec.loader.exec_module(package)
        sizes: Names = dict(BLOCK=block)
        if programs is not None:
            sizes |= dict(PROGRAMS=programs, RESIDENT=programs, multiprocessors=lambda _: 1)
        for key, module in sys.modules.items():
            if key.startswith(f"{name}."):
                vars(module).update({size: n for size, n in sizes.items() if hasattr(module, size)})
    rows = {
        public: dispatch(getattr(reference, public), getattr(package, public))
        for public in package.__all__
    }
    return {public: getattr(optimized, public) for public in reference.__all__} | rows


COPIES: list[TemporaryDirectory] = []
"""The folders of changed kernels: Triton reads their source when they run."""
