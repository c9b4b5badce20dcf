"""The command: load a model, make documents, measure every system, write the report."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

import optimized
import reference
from optimized._atomic_files import write_atomically
from optimized.models.argument_checks import require_known_name
from optimized.models.fastkvzip_gates import FILE, load_gates
from optimized.models.layer import count_full_attention_layers
from optimized.models.load import load
from optimized.models.scorers import SCORERS
from optimized.models.systems import System
from optimized.study import first_answer, report, table
from optimized.study.compared_systems import systems_named
from optimized.study.documents import Document, Maker, lengths
from optimized.study.evaluate import BATCH, add, batches, measured, weights
from optimized.study.forms import form_of, request
from optimized.study.haystacks import haystack
from optimized.study.measurements import MeasurementSettings, Trial, trials
from optimized.study.overrides import changed, read
from optimized.study.own_data import own_documents
from optimized.study.progress import Progress
from optimized.study.record import about_documents, record, versions
from optimized.study.results import Results, Shard, merged, rows_of
from optimized.study.tasks import FACT, KINDS

if TYPE_CHECKING:  # what draws imports matplotlib, which may be missing
    from optimized.study.pictures import Picture

OUT, FIGURES = "kvspec-report", "figures.json"
SMALL = 20_000_000
PICTURE = 2
"""Expected cost of a picture, in steps of the largest batch."""


def device(name: str) -> torch.device:
    """Return the device of this name, after a test computation on it.

    Raises:
        ValueError: the device cannot be used.
    """
    rank = os.environ.get("LOCAL_RANK", "0")
    if name == "auto":
        name = f"cuda:{rank}" if torch.cuda.is_available() else "cpu"
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


def check_paths(given: argparse.Namespace, shared: bool) -> None:
    """Refuse a path that is taken or cannot be written to.

    Args:
        given: the options.
        shared: whether other processes use the same folder.
    """
    if given.json is not None:
        if os.path.lexists(given.json):
            raise ValueError(f"--json must not exist, got {given.json}")
        if not given.json.absolute().parent.is_dir():
            raise ValueError(f"--json must be in a folder that exists, got {given.json}")
    out = given.out or Path(OUT)
    try:
        parts = shared or any(out.glob("results-*.jsonl"))
        if given.out is not None and ((out / FIGURES).exists() or (out.exists() and not parts)):
            raise ValueError(f"--out must be new, or hold a run that is not finished, got {out}")
        if not os.access(out if out.exists() else out.absolute().parent, os.W_OK):
            raise OSError("no folder that can be written to")
    except OSError as error:
        raise ValueError(f"--out must be where one can write, got {out}: {error}") from error


def unused_folder(target: Path) -> Path:
    """Return a new folder; where `target` exists, its name gets a suffix: `-2`, `-3`, and so on."""
    others = (target.with_name(f"{target.name}-{number}") for number in count(2))
    for name in chain((target,), others):
        try:
            name.mkdir()  # one of two runs fails
        except FileExistsError:
            continue
        return name
    raise AssertionError  # `others` is infinite


class Prepared(NamedTuple):
    """The model of a run, the documents that it reads, the settings, and the tokenizer."""

    model: PreTrainedModel
    documents: list[Document]
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
    if given.dtype:
        nn.Module.to(model, dtype=getattr(torch, given.dtype))
    fits(model, given)
    made = make_documents(given, tokenizer)
    gates = load_gates(Path(str(model.name_or_path)), count_full_attention_layers(model.config), on)
    kv, other = {
        "optimized": (optimized, None),
        "reference": (reference, optimized),
    }[given.implementation]
    settings = MeasurementSettings(
        given.readings, given.seed, kv, other, gates, request(tokenizer), given.interval
    )
    return Prepared(model, made, settings, tokenizer)


def make_documents(given: argparse.Namespace, tokenizer: Any) -> list[Document]:
    """Return the documents of a run: of a file of tasks, or made from a text."""
    asked = given.tasks or []
    if len(asked) == 1 and asked[0].endswith(".jsonl"):
        return own_documents(Path(asked[0]), Maker("", tokenizer))
    for name in asked:
        require_known_name("--tasks", name, [*KINDS, FACT])
    maker = Maker(haystack(text_name(given, tokenizer)), tokenizer)
    return maker.documents(
        given.seed,
        given.documents,
        lengths(given.context),
        given.continuation,
        given.needles,
        asked,
    )


def text_name(given: argparse.Namespace, tokenizer: Any) -> str:
    """Return the name of the text of a run: by default code for our models, prose for others."""
    return given.text or ("code" if form_of(tokenizer).name == "ours" else "prose")


def print_first_answer(given: argparse.Namespace, ready: Prepared) -> None:
    """Print what the model answers about one hidden fact, over the full cache and smaller ones."""
    text = given.text or text_name(given, ready.tokenizer)
    if given.text is None and text == "code":
        maker, text = Maker(first_answer.default_text(), ready.tokenizer), first_answer.FILE
        named = f"Python's {text}"
    else:
        maker = Maker(haystack(text), ready.tokenizer)
        named = text if given.text else "Python's documentation"
    read = first_answer.document(maker, min(first_answer.TOKENS, given.context))
    found = first_answer.answers(ready.model, ready.tokenizer, read, ready.settings)
    print_lines(
        *first_answer.lines(
            given.model, named, len(read.context), first_answer.task_for(maker), found
        ),
        f"One question is an anecdote. The table comes next, with means over "
        f"{len(ready.documents)} documents.\n",
    )


def about_run(
    given: argparse.Namespace, ready: Prepared, numbered: dict[int, Any]
) -> dict[str, Any]:
    """Return what the files of results and the report say of a run."""
    model = ready.model
    command = {
        name: value if isinstance(value, int | float | str | list | None) else str(value)
        for name, value in vars(given).items()
    }
    return {
        "command": command,
        "versions": versions(),
        "model": {
            "name": given.model,
            "architecture": model.config.model_type,
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "dtype": str(model.dtype),
            "cache": "torch.float16" if model.dtype.itemsize > 2 else str(model.dtype),
            "gate": ready.settings.gates is not None,
        },
        "documents": about_documents(ready.documents, str(given.text)),
        "batches": len(numbered),
    }


def chosen_trials(given: argparse.Namespace, gated: bool) -> list[Trial]:
    """Return the trials of a run, without those that need gates if there are none."""
    chosen = changed(systems_named(given.systems), read(given.set or ()))
    budgets = getattr(given, "keep", None) or given.ratios
    return trials(chosen if gated else without_gates(chosen), budgets)


def measure(
    given: argparse.Namespace, shard: Shard
) -> "tuple[Path, dict[str, Any], list[Picture]]":
    """Measure the batches of a process; return the folder, the figures and the pictures.

    The figures are empty if other processes or a later call must measure what is left.
    """
    changed(systems_named(given.systems), read(given.set or ()))  # refuses wrong options early
    ready = prepare(given)
    model, texts, settings, tokenizer = ready
    size = given.batch or (BATCH if model.num_parameters() < SMALL else 1)
    numbered = batches(texts, 1 if given.interval else size)
    about = about_run(given, ready, numbered)
    plan = chosen_trials(given, settings.gates is not None)
    out = given.out or unused_folder(Path(OUT))
    out.mkdir(exist_ok=True)
    results = Results(out, shard, about)
    mine = {n: batch for n, batch in numbered.items() if n % shard.count == shard.index}
    left = {n: batch for n, batch in mine.items() if n not in results.saved}
    drawing = import_module("optimized.study.pictures") if given.pictures else None
    steps = weights(left, plan)
    steps += [PICTURE * max(weights(mine, plan))] * len(drawing.PICTURES) if drawing else []
    deadline = monotonic() + 60 * given.minutes if given.minutes else inf
    with threads(few=model.num_parameters() < SMALL):
        if given.answer and not results.saved and not shard.index:
            try:
                print_first_answer(given, ready)
            except ValueError as reason:  # a text or a context may do for the table alone
                print(f"python -m optimized: no question first: {reason}", file=sys.stderr)
        with Progress(steps, given.quiet) as progress:
            rows = rows_of(plan, results.saved)
            for n, saved in measured(model, left, rows, settings, progress.step, tokenizer):
                results.append(n, saved)
                add(rows, saved)
                if monotonic() > deadline:
                    break
            if len(results.saved) < len(numbered) and (
                len(results.saved) < len(mine) or shard.count > 1
            ):
                return out, {}, []
            figures = figures_of(plan, about, results.saved)
            shown = list(drawing.pictures(model, texts, settings, progress.step)) if drawing else []
    figures["pictures"] = [picture.figures for picture in shown]
    return out, figures, shown


def figures_of(
    plan: list[Trial], about: dict[str, Any], saved: dict[int, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return the figures of a run from the results of all its batches."""
    rows = rows_of(plan, saved)
    if rows[0].refused is not None:
        raise ValueError(f"the full cache cannot be measured: {rows[0].refused}")
    return record(rows, about)


def merge(folders: list[Path], out: Path) -> bool:
    """Write the report of a run whose parts are in several folders, or in one.

    Raises:
        ValueError: parts are missing or of different runs, or the report cannot be written.
    """
    about, saved = merged(folders)
    given = argparse.Namespace(**about["command"])
    figures = figures_of(chosen_trials(given, about["model"]["gate"]), about, saved)
    if (out / FIGURES).exists():
        raise ValueError(f"--out must hold no report, got {out}")
    out.mkdir(exist_ok=True)
    return finish(figures, [], out, None)


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


def write(
    figures: dict[str, Any], shown: "Sequence[Picture]", out: Path, copy: Path | None
) -> None:
    """Write the report and the figures into the folder of a run.

    Raises:
        ValueError: they cannot be written.
    """
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    page = report.page(figures, shown).encode(errors="backslashreplace")
    try:
        write_atomically(out / "report.html", page)
        write_atomically(out / FIGURES, text)
        if copy is not None:
            write_atomically(copy, text)
    except OSError as error:
        raise ValueError(f"the report must be where one can write, got {out}: {error}") from error


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
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    shard = given.shard or Shard()
    if ranks > 1:  # started by torchrun: each rank is a part
        torch.distributed.init_process_group("gloo")
        shard = Shard(torch.distributed.get_rank(), ranks)
        given.out = given.out or Path(OUT)
    check_paths(given, shard.count > 1)
    out, figures, shown = measure(given, shard)
    if ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        return shard.index > 0 or merge([out], out)
    if not figures:
        print_lines(f"Results so far are in {out / shard.file}.", *how_to_go_on(given, out))
        return True
    return finish(figures, shown, out, given.json)


def how_to_go_on(given: argparse.Namespace, out: Path) -> Iterator[str]:
    """Yield what to type next where a process has not measured all of a run."""
    if given.minutes:
        yield f"The same command with --out {out} goes on."
    if given.shard:
        yield f"When all parts are done: python -m optimized merge {out}"


def finish(
    figures: dict[str, Any], shown: "Sequence[Picture]", out: Path, copy: Path | None
) -> bool:
    """Print the table and write the report; return whether any row was measured."""
    print_lines(*table.table(figures), *table.verdict_lines(figures))
    write(figures, shown, out, copy)
    besides = f" and {copy}" if copy else ""
    print_lines(f"\nThe report is {out / 'report.html'}, the figures are {out / FIGURES}{besides}.")
    refused = [row["refused"] is not None for row in figures["rows"][1:]]
    return not refused or not all(refused)
