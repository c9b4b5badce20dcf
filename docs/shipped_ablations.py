"""Ablations beyond the default run: `python docs/shipped_ablations.py [words | bytes]`.

The script writes docs/shipped/words/facts.json. It measures KVzip, HubKV without each of its parts,
and each of the two with the head budgets of the other. For these it reports the facts found, the
difference from KVzip with its interval, and how much of the facts the heads keep. It also measures
each mode of HEX on documents whose second half is decoded token by token.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized import HubSettings, Scored
from optimized.__main__ import parser
from optimized.models.prefill import Step, prefill
from optimized.models.selection import kept_entries
from optimized.models.systems import System, correct_hex, system_named
from optimized.study import command
from optimized.study.compared_systems import PAIRS
from optimized.study.documents import Document
from optimized.study.evaluate import Batch, batches
from optimized.study.measurements import MeasurementSettings, Row, Trial
from optimized.study.metrics import DocumentMetrics
from optimized.study.significance import chances, differences, holm, interval, needle_shares
from optimized.study.stage_clock import Clock

RATIOS = (0.8, 0.9, 0.95, 0.97)
DOCUMENTS = {"words": ("--documents", "32", "--needles", "8"), "bytes": ()}

LEVEL: dict[str, Any] = {"minimum": 1.0, "maximum": 1.0}
WEAK = HubSettings(gamma=0.999)
BASE, HUBKV = system_named("kvzip"), system_named("kvzip+hubkv")
SYSTEMS = {
    "KVzip": BASE,
    "HubKV": HUBKV,
    "without head weights": HUBKV._replace(settings=HubSettings(**LEVEL)),
    "without neighbours": HUBKV._replace(settings=HubSettings(radius=0)),
    "without either": HUBKV._replace(settings=HubSettings(radius=0, **LEVEL)),
    "with a discount of 0.999": HUBKV._replace(settings=WEAK),
    "with that, without head weights": HUBKV._replace(settings=WEAK._replace(**LEVEL)),
}
ORDER_OF = {
    "HubKV, as many of each head as KVzip": (HUBKV, BASE),
    "KVzip, as many of each head as HubKV": (BASE, HUBKV),
}
"""The system that ranks the entries of a head, and the system whose head budgets are used."""
GRAPH_BASES = (*PAIRS["graphkv"], "expected_attention")
GRAPH_RATIOS = (0.5, 0.75)
SHUFFLED = ", shuffled"
"""Suffix of GraphKV with a graph of keys that are shuffled among the tokens."""
PRESETS = ("HEX-4", "HEX-3")
MODES = {"at once": "append", "append": "append", "full": "full", "oracle": "oracle"}
NEAR = 0.999
"""Scores of KVzip above this are near 1: some query gives the entry nearly all its attention."""


def main(name: str) -> None:
    """Measure every variant, and write the results."""
    given = parser().parse_args(["--model", name, *DOCUMENTS[name]])
    model, documents, settings, _ = command.prepare(given)
    with command.threads(few=True), torch.inference_mode():
        found = measured(model, documents, settings, given.ratios)
        found["modes"] = streamed(model, documents, settings)
        found["graph"] = graphs(model, documents, settings)
    needles = len(documents[0].questions)
    about = {"torch": torch.__version__, "documents": len(documents), "needles": needles}
    file = Path(__file__).parent / "shipped" / name / "facts.json"
    file.write_text(json.dumps({"about": about} | found, indent=1) + "\n")


class Ablated(Batch):
    """A batch in which a system may use the head budgets of another one, or shuffled keys."""

    def kept(self, trial: Trial, kv: Any, clock: Clock) -> Tensor:
        """Return a mask of the entries that a trial keeps."""
        if trial.system.name in ORDER_OF:
            return self.with_budgets_of(*ORDER_OF[trial.system.name], trial, clock)
        if trial.system.name.endswith(SHUFFLED):
            return self.with_shuffled_keys(trial)
        return super().kept(trial, kv, clock)

    def with_budgets_of(self, ranks: System, counts: System, trial: Trial, clock: Clock) -> Tensor:
        """Keep what one system ranks first, and as many in each head as another one keeps."""
        kv = self.settings.kv
        budgets = super().kept(trial._replace(system=counts), kv, clock).sum(-1, keepdim=True)
        layers = self.panel.scores(self.prompt, trial._replace(system=BASE), kv)[0].scored
        scored = Scored(*map(torch.stack, zip(*layers, strict=True)))
        order = scored.scores
        if ranks is HUBKV:
            order = kv.hubkv_refine(order, trial.ratio, scored.protected)
        order = order.masked_fill(scored.protected, torch.inf)
        ranked = order.argsort(dim=-1, descending=True, stable=True)
        return ranked.argsort(-1) < budgets

    def with_shuffled_keys(self, trial: Trial) -> Tensor:
        """Keep what GraphKV keeps whose graph is built from the keys of other tokens."""
        assert trial.ratio is not None
        kv, reading = self.settings.kv, self.settings.reading
        scores, _ = self.panel.scores(self.prompt, trial, kv)
        draw = torch.Generator().manual_seed(self.settings.seed)
        order = torch.randperm(self.prompt.input_ids.shape[1], generator=draw)
        layers = [
            SimpleNamespace(whole=(keys[:, :, order], values))
            for keys, values in (layer.whole for layer in self.cache.whole_layers())
        ]
        cache = SimpleNamespace(whole_layers=lambda: layers)
        prompt: Any = SimpleNamespace(
            cache=cache, valid=self.prompt.valid, queries=self.prompt.queries
        )
        return kept_entries(trial.system, prompt, scores, trial.ratio, reading, kv)


Rows = dict[tuple[str, float], Row]
Asked = tuple[dict[str, Any], str, list[float]]
"""The dictionary for a result, the result's name, and a difference for each document."""


def read(
    model: Any, documents: Sequence[Document], settings: MeasurementSettings, rows: Rows
) -> Iterator[tuple[Ablated, Sequence[Document]]]:
    """Measure the rows on each batch of documents, and yield it with them."""
    for some in batches(documents):
        batch = Ablated(model, some, [row.trial for row in rows.values()], settings)
        batch.measure(list(rows.values()), lambda _: None)
        yield batch, some


def measured(
    model: Any,
    documents: Sequence[Document],
    settings: MeasurementSettings,
    judged: Sequence[float],
) -> dict[str, Any]:
    """Return the share of KVzip's scores near 1, and the facts that each variant finds.

    `judged` holds the ratios at which the command's run compares HubKV with KVzip.
    """
    systems = SYSTEMS | {name: BASE._replace(name=name) for name in ORDER_OF}
    rows = {
        (name, ratio): Row(Trial(systems[name], ratio)) for ratio, name in product(RATIOS, systems)
    }
    values: dict[tuple[str, float], list[Tensor]] = {key: [] for key in rows}
    near: list[Tensor] = []
    correlation: list[Tensor] = []
    for batch, some in read(model, documents, settings, rows):
        for key, row in rows.items():
            masks = batch.kept(row.trial, settings.kv, Clock(model.device)).unbind(1)
            for mask, document in zip(masks, some, strict=True):
                values[key] += [mask[..., place] for place in value_places(document)]
        scored = batch.panel.scores(batch.prompt, rows["KVzip", RATIOS[0]].trial, settings.kv)[0]
        scores = torch.stack([one.scores for one in scored.scored])
        near += (scores >= NEAR).double().mean(-1).unbind(1)
        series = optimized.content_series(scores.float().mean((0, 2)), sinks=4)
        correlation += optimized.autocorrelation(series, 1)[:, 1].unbind()
    by_head = torch.stack(near).mean(0)
    crowded = interval([float(each) for each in correlation], settings.seed)
    ratios = {
        str(ratio): {name: figures(rows[name, ratio], values[name, ratio]) for name in systems}
        for ratio in RATIOS
    }
    compare(rows, ratios, judged, settings.seed)
    sizes = [[len(one.answer) - 1 for one in document.questions] for document in documents]
    for (name, ratio), row in rows.items():
        base = rows["KVzip", ratio]
        ratios[str(ratio)][name]["by tokens"] = by_tokens(row, base, sizes, settings.seed)
    return {
        "near_1": float(by_head.mean()),
        "near_1_in_one_head": float(by_head.max()),
        "autocorrelation": list(crowded),
        "ratios": ratios,
    }


def figures(row: Row, values: list[Tensor]) -> dict[str, Any]:
    """Return the shares of facts that a variant finds, and of their values that heads keep."""
    touched = sum(int(value.any(-1).sum()) for value in values)
    return {
        "needles": sum(map(sum, row.found)) / len(values),
        "bits_per_byte": sum(row.bits) / len(row.bits),
        "kept": sum(float(value.double().mean()) for value in values) / len(values),
        "whole": sum(int(value.all(-1).sum()) for value in values) / max(1, touched),
    }


def by_tokens(
    row: Row, base: Row, sizes: Sequence[Sequence[int]], seed: int
) -> dict[int, dict[str, Any]]:
    """Return the facts found and the difference from KVzip, by the number of tokens of values."""
    told = {}
    for size in sorted({one for some in sizes for one in some}):
        documents = [
            [(this, that) for this, that, tokens in zip(*facts, strict=True) if tokens == size]
            for facts in zip(row.found, base.found, sizes, strict=True)
        ]
        found = [this for pairs in documents for this, _ in pairs]
        change = [sum(a - b for a, b in pairs) / len(pairs) for pairs in documents if pairs]
        told[size] = {
            "facts": len(found),
            "needles": sum(found) / len(found),
            "against KVzip": list(interval(change, seed)),
        }
    return told


def compare(
    rows: Rows, ratios: dict[str, dict[str, Any]], judged: Sequence[float], seed: int
) -> None:
    """Add the differences of variants from KVzip and HubKV that the command's run does not have."""
    asked: list[Asked] = []
    for (name, ratio), row in rows.items():
        for against in ("KVzip", "HubKV"):
            owned = name == "HubKV" and ratio in judged
            if name not in (against, "KVzip") and not owned:
                into = ratios[str(ratio)][name].setdefault(f"against {against}", {})
                asked += facts_and_bits(into, row, rows[against, ratio])
    answer(asked, seed)


def facts_and_bits(into: dict[str, Any], row: Row, other: Row) -> list[Asked]:
    """Return the differences of two rows in facts and in bits."""
    facts = differences(needle_shares(row), needle_shares(other))
    return [(into, "needles", facts), (into, "bits", differences(row.bits, other.bits))]


def answer(asked: Sequence[Asked], seed: int) -> None:
    """Write mean differences with intervals, and p-values corrected for all comparisons."""
    corrected = holm(chances([sample for *_, sample in asked], seed))
    for (into, what, sample), p in zip(asked, corrected, strict=True):
        into[what] = list(interval(sample, seed))
        into[f"p of {what}"] = p


def graphs(
    model: Any, documents: Sequence[Document], settings: MeasurementSettings
) -> list[dict[str, Any]]:
    """Return how GraphKV differs from its base, and from GraphKV with the keys of other tokens."""
    rows: Rows = {}
    for base, ratio in product(GRAPH_BASES, GRAPH_RATIOS):
        system = system_named(f"{base}+graphkv")
        shuffled = system._replace(name=system.name + SHUFFLED)
        for one in (system_named(base), system, shuffled):
            rows[one.name, ratio] = Row(Trial(one, ratio))
    for _ in read(model, documents, settings, rows):
        pass
    found: list[dict[str, Any]] = []
    samples: list[Asked] = []
    for base, ratio in product(GRAPH_BASES, GRAPH_RATIOS):
        names = base, f"{base}+graphkv", f"{base}+graphkv{SHUFFLED}"
        alone, graph, shuffled = shares = [needle_shares(rows[name, ratio]) for name in names]
        told = {"base": base, "ratio": ratio, "needles": [sum(one) / len(one) for one in shares]}
        found.append(told)
        samples.append((told, "shuffled against base", differences(shuffled, alone)))
        samples.append((told, "graph against shuffled", differences(graph, shuffled)))
    answer(samples, settings.seed)
    return found


def streamed(
    model: Any, documents: Sequence[Document], settings: MeasurementSettings
) -> dict[str, Any]:
    """Return what each mode of HEX costs if the second half of a document comes token by token."""
    rows = {(preset, mode): Row(Trial(BASE, None)) for preset in PRESETS for mode in MODES}
    rows["full", ""] = Row(Trial(BASE, None))
    for some in batches(documents):
        steps: list[Step] = []
        ids = torch.tensor([document.context for document in some], device=model.device)
        prompt = prefill(model, ids, watch=[steps.append])
        judge = DocumentMetrics(model, prompt, some)
        for (preset, mode), row in rows.items():
            with prompt.cache.undone():
                for layer, step in zip(prompt.cache.evictable(), steps, strict=True):
                    if mode:
                        config = optimized.hex_preset(preset)._replace(mode=MODES[mode])
                        layer.keys, layer.values = decoded(
                            step, mode, correct_hex(config, "remedied")
                        )
                row.bits += judge.bits()
                row.found += judge.found()
                moved, size = judge.deviations()
                row.relative += (moved.mean(1) / size.mean(1)).tolist()
    return modes_of(rows, settings.seed)


def modes_of(rows: dict[tuple[str, str], Row], seed: int) -> dict[str, Any]:
    """Return what each mode of HEX costs, and how it differs from appending."""
    found: dict[str, Any] = {preset: {} for preset in PRESETS}
    asked: list[Asked] = []
    for preset, mode in product(PRESETS, MODES):
        row, append, full = rows[preset, mode], rows[preset, "append"], rows["full", ""]
        told: dict[str, Any] = {
            "deviation": list(interval(row.relative, seed)),
            "bits": list(interval(differences(row.bits, full.bits), seed)),
            "needles": list(interval(differences(needle_shares(row), needle_shares(full)), seed)),
        }
        found[preset][mode] = told
        if row is not append:
            into = told["against append"] = {}
            asked.append((into, "deviation", differences(row.relative, append.relative)))
            asked += facts_and_bits(into, row, append)
    answer(asked, seed)
    return found


def decoded(step: Step, mode: str, config: optimized.HexConfig) -> tuple[Tensor, Tensor]:
    """Return a layer's restored keys and values; the second half is appended or prefilled."""
    parts = step.queries.half(), step.keys.half(), step.values.half()
    half = parts[1].shape[-2] // (1 if mode == "at once" else 2)
    cache = optimized.hex_prefill(*(x[..., :half, :] for x in parts), config=config)
    if mode != "at once":
        cache = optimized.hex_append(cache, *(x[..., half:, :] for x in parts))
    return optimized.hex_read(cache)


def value_places(document: Document) -> list[slice]:
    """Return the positions of the values of a document's facts."""
    places, context = [], document.context
    for question in document.questions:
        value = question.answer[:-1]  # without the end of the line
        at = round(question.depth * len(context))
        while context[at : at + len(value)] != value:
            at += 1
        places.append(slice(at, at + len(value)))
    return places


if __name__ == "__main__":
    main(*sys.argv[1:] or ["words"])
