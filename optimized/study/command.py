"""The command: load a model, make documents, measure every system, write the report."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

import optimized
import reference
from optimized.models.fastkvzip_gates import FILE, load_gates
from optimized.models.layer import count_full_attention_layers
from optimized.models.load import load
from optimized.models.scorers import SCORERS
from optimized.models.systems import System
from optimized.study import documents, evaluate, first_answer, report, table
from optimized.study.compared_systems import systems_named
from optimized.study.measurements import MeasurementSettings, trials
from optimized.study.overrides import changed, read
from optimized.study.progress import Progress
from optimized.study.record import record
from optimized.tiny.tasks import CONTINUE, REPEAT

if TYPE_CHECKING:  # what draws imports matplotlib, which may be missing
    from optimized.study.pictures import Picture

OUT = "kvspec-report"
SMALL = 20_000_000
PICTURE = 7
"""Expected cost of a picture, in steps of the largest batch."""


def device(name: str) -> torch.device:
    """Return the device of this name, after a test computation on it.

    Raises:
        ValueError: the device cannot be used.
    """
    try:
        chosen = torch.device(name)
        torch.ones(1, device=chosen).add(1).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"--device must be usable here, got {name!r}: {reason}") from error
    return chosen


def fits(model: PreTrainedModel, given: argparse.Namespace) -> None:
    """Refuse a context that is longer than the model's positions."""
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and given.context + given.continuation > limit:
        raise ValueError(
            f"--context must leave room for {given.continuation} tokens among the model's {limit} "
            f"positions, got {given.context}"
        )


def report_folder(given: argparse.Namespace) -> Path:
    """Return the folder of the report.

    Raises:
        ValueError: a path given on the command line exists, or one cannot be written to.
    """
    out = given.out or Path(OUT)
    for name, target in (("--json", given.json), ("--out", out)):
        if target is None:
            continue
        if target in (given.json, given.out) and os.path.lexists(target):
            raise ValueError(f"{name} must not exist, got {target}")
        if not target.absolute().parent.is_dir():
            raise ValueError(f"{name} must be in a folder that exists, got {target}")
        with writing(name, target):
            hidden_folder(target).rmdir()
    if given.json is not None and given.json.absolute() == out.absolute():
        raise ValueError(f"--json must not be the folder of the report, got {given.json}")
    return out


@contextmanager
def writing(name: str, target: Path) -> Iterator[None]:
    """Turn an error of writing into one that names the option and the path.

    Raises:
        ValueError: writing fails.
    """
    try:
        yield
    except OSError as error:
        raise ValueError(f"{name} must be where one can write, got {target}: {error}") from error


def hidden_folder(target: Path) -> Path:
    """Return a new hidden folder beside the target, from which a rename to the target works."""
    return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))


def request(tokenizer: Any) -> Callable[[int, Tensor], list[int]]:
    """Return a function that returns the ids of KVzip's request to repeat a chunk."""
    before, after = CONTINUE

    def asking(index: int, chunk: Tensor) -> list[int]:
        first = tokenizer.decode(chunk[:8].tolist(), skip_special_tokens=True)
        text = before + first + after if index else REPEAT
        return tokenizer(text, add_special_tokens=False).input_ids

    return asking


class Prepared(NamedTuple):
    """The model of a run, the documents that it reads, the settings, and the tokenizer."""

    model: PreTrainedModel
    documents: list[documents.Document]
    settings: MeasurementSettings
    tokenizer: Any


def prepare(given: argparse.Namespace) -> Prepared:
    """Return the model, the documents, the settings and the tokenizer of a run.

    Raises:
        ValueError: an option of the command cannot be satisfied.
    """
    if given.pictures and find_spec("matplotlib") is None:
        raise ValueError(
            "--no-pictures must be given without matplotlib: `pip install 'kvspec[models]'` has it"
        )
    on = device(given.device)
    torch.manual_seed(given.seed)
    try:
        model, tokenizer = load(given.model, on)
    except ValueError as error:
        raise ValueError(f"--{error}") from error
    fits(model, given)
    text = documents.held_out() if given.text is None else documents.load_text_file(given.text)
    maker = documents.Maker(text, tokenizer)
    lengths = documents.lengths(given.context)
    made = maker.documents(given.seed, given.documents, lengths, given.continuation, given.needles)
    gates = load_gates(Path(str(model.name_or_path)), count_full_attention_layers(model.config), on)
    kv, other = {
        "optimized": (optimized, None),
        "reference": (reference, optimized),
    }[given.implementation]
    settings = MeasurementSettings(given.readings, given.seed, kv, other, gates, request(tokenizer))
    return Prepared(model, made, settings, tokenizer)


def print_first_answer(given: argparse.Namespace, ready: Prepared) -> None:
    """Print what the model answers about one hidden fact, over the full cache and smaller ones."""
    if given.text is None:
        text, named = first_answer.default_text(), f"Python's {first_answer.FILE}"
    else:
        text, named = documents.load_text_file(given.text), str(given.text)
    maker = documents.Maker(text, ready.tokenizer)
    read = first_answer.document(maker, min(first_answer.TOKENS, given.context))
    found = first_answer.answers(ready.model, ready.tokenizer, read, ready.settings)
    print_lines(
        *first_answer.lines(
            given.model, named, len(read.context), first_answer.fact_for(maker), found
        ),
        f"One question is an anecdote. The table comes next, with means over {given.documents} "
        "documents.\n",
    )


def measure(given: argparse.Namespace) -> "tuple[dict[str, Any], list[Picture]]":
    """Measure all systems of a run, and return the figures and the pictures."""
    chosen = changed(systems_named(given.systems), read(given.set or ()))
    ready = prepare(given)
    model, texts, settings, _ = ready
    if settings.gates is None:
        chosen = without_gates(chosen)
    rows = trials(chosen, given.ratios)
    weights = evaluate.weights(texts, rows)
    drawing = import_module("optimized.study.pictures") if given.pictures else None
    weights += [PICTURE * max(weights)] * len(drawing.PICTURES) if drawing else []
    with threads(few=model.num_parameters() < SMALL):
        if given.answer:
            try:
                print_first_answer(given, ready)
            except ValueError as reason:  # a text or a context may do for the table alone
                print(f"python -m optimized: no question first: {reason}", file=sys.stderr)
        with Progress(weights, given.quiet) as progress:
            found = evaluate.evaluate(model, texts, rows, settings, progress.step)
            if found[0].refused is not None:
                raise ValueError(f"the full cache cannot be measured: {found[0].refused}")
            shown = list(drawing.pictures(model, texts, settings, progress.step)) if drawing else []
    command = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(given).items()
    }
    about = {
        "name": given.model,
        "architecture": model.config.model_type,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "dtype": str(model.dtype),
        "cache": "torch.float16" if model.dtype.itemsize > 2 else str(model.dtype),
        "gate": settings.gates is not None,
    }
    return record(found, texts, command, about, [one.figures for one in shown]), shown


@contextmanager
def threads(few: bool) -> Iterator[None]:
    """Compute in one thread within the context, if `few`; small models are faster that way."""
    before = torch.get_num_threads()
    if few:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def without_gates(chosen: list[System]) -> list[System]:
    """Return the systems that need no FastKVzip gate, and print which ones are left out.

    Raises:
        ValueError: no system is left besides the full cache.
    """
    gated = {name for name, scorer in SCORERS.items() if scorer.gated}
    left = [system for system in chosen if system.scorer not in gated]
    if len(left) == 1 < len(chosen):
        raise ValueError(
            f"--systems must include a system without gates, got only systems that need a {FILE} "
            "beside the model"
        )
    if len(left) < len(chosen):
        names = ", ".join(sorted(gated))
        print(f"{names} is left out: there is no {FILE} beside the model", file=sys.stderr)
    return left


def rename_unused(source: Path, target: Path) -> Path:
    """Rename a file or folder to an unused name, and return the name.

    Where `target` exists, the name gets a suffix: `-2`, `-3`, and so on.
    """
    file = source.is_file()
    stem, suffix = (target.stem, target.suffix) if file else (target.name, "")
    others = (target.with_name(f"{stem}-{number}{suffix}") for number in count(2))
    for name in chain((target,), others):
        try:
            name.touch(exist_ok=False) if file else name.mkdir()  # one of two runs fails
        except FileExistsError:
            continue
        try:
            os.replace(source, name)
        except BaseException:
            name.unlink() if file else name.rmdir()
            raise
        return name
    raise AssertionError  # `others` is infinite


def write(
    figures: dict[str, Any], shown: "Sequence[Picture]", out: Path, json_file: Path | None
) -> tuple[Path, Path | None]:
    """Write the report and the figures, all or nothing, and return their paths.

    Raises:
        ValueError: they cannot be written.
    """
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    page = report.page(figures, shown)
    with writing("--out", out), ExitStack() as hidden, ExitStack() as done:
        folder = hidden_folder(out)
        hidden.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "report.html").write_text(page, encoding="utf-8", errors="backslashreplace")
        (folder / "figures.json").write_text(text, encoding="utf-8")
        folder.chmod(0o755)
        if json_file is not None:
            with writing("--json", json_file):
                copy = hidden_folder(json_file) / "figures.json"
                hidden.callback(shutil.rmtree, copy.parent, ignore_errors=True)
                copy.write_text(text, encoding="utf-8")
                json_file = rename_unused(copy, json_file)
                done.callback(json_file.unlink)
        out = rename_unused(folder, out)
        done.pop_all()
    return out, json_file


def print_lines(*lines: str) -> None:
    """Print lines and flush; a closed pipe does not stop the rest of the run."""
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"python -m optimized: the table was not printed: {error}", file=sys.stderr)


def run(given: argparse.Namespace) -> bool:
    """Run the command, and return whether any row besides the full cache was measured.

    Raises:
        ValueError: an option cannot be satisfied, or the report cannot be written.
    """
    out = report_folder(given)
    figures, shown = measure(given)
    print_lines(*table.table(figures), *table.verdict_lines(figures))
    try:
        out, json_file = write(figures, shown, out, given.json)
    except ValueError as error:
        out, _ = write(figures, shown, Path(tempfile.gettempdir()) / OUT, None)
        raise ValueError(f"{error}; the report is {out / 'report.html'} instead") from error
    besides = f" and {json_file}" if json_file else ""
    print_lines(
        f"\nThe report is {out / 'report.html'}, the figures are {out / 'figures.json'}{besides}."
    )
    refused = [row["refused"] is not None for row in figures["rows"][1:]]
    return not refused or not all(refused)
