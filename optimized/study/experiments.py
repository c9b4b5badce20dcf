"""The papers' tables and figures as runs of the command; experiments.toml says what they claim."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optimized.models.argument_checks import require_known_name

FILE = Path(__file__).with_suffix(".toml")


def experiments() -> dict[str, dict[str, Any]]:
    """Return what experiments.toml says of each table and figure."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def options_of(name: str) -> list[str]:
    """Return the command's options for an experiment.

    Raises:
        ValueError: there is no such experiment, or it is no run of the command.
    """
    known = experiments()
    require_known_name("--experiment", name, known)
    if "options" not in known[name]:
        other = known[name].get("skip") or f"`{known[name]['run']}` shows it"
        raise ValueError(f"--experiment {name} is no run of this command: {other}")
    return known[name]["options"].split()


def of_paper(paper: str, folder: Path) -> Iterator[str]:
    """Yield a paper's experiments that the command runs and that are not finished in `folder`."""
    for name, about in experiments().items():
        finished = folder / name / "figures.json"
        if name.lower().startswith(f"{paper}-") and "options" in about and not finished.exists():
            yield name


def lines() -> Iterator[str]:
    """Yield what each experiment is about, and how it is run."""
    for name, about in experiments().items():
        yield f"{name}: {about.get('claim') or about['skip']}"
        if "options" in about:
            yield f"    {about['options']}"
        elif "run" in about:
            yield f"    {about['run']}"
