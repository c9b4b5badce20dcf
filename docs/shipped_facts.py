"""Why HubKV loses facts on the shipped model: `python docs/shipped_facts.py` measures it.

Writes docs/shipped/facts.json: for KVzip alone and for HubKV with one part after the other taken
away, how many facts are found, and what is left of their values in the heads.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from optimized import HubSettings
from optimized.__main__ import parser
from optimized.models.systems import system_named
from optimized.study import command
from optimized.study.clock import Clock
from optimized.study.documents import Document
from optimized.study.evaluate import Batch, batches
from optimized.study.rows import Row, Settings, Trial

RATIO = 0.95


WEAK = HubSettings(gamma=0.999)
LONE = HubSettings(radius=0)
LEVEL: dict[str, Any] = {"minimum": 1.0, "maximum": 1.0}
VARIANTS = {
    "KVzip alone": None,
    "HubKV": HubSettings(),
    "without calibration": HubSettings(**LEVEL),
    "with a discount of 0.999": WEAK,
    "with that, without calibration": WEAK._replace(**LEVEL),
    "without neighbours (radius 0)": LONE,
    "without neighbours or calibration": LONE._replace(**LEVEL),
}
SATURATED = 0.999
"""KVzip's score of an entry that some query gives nearly all its attention."""


def main() -> None:
    """Measure every variant on the documents of the default run, and write what was found."""
    model, documents, settings = command.prepared(parser().parse_args([]))
    with command.threads(model), torch.inference_mode():
        saturated, found = measured(model, documents, settings)
    about = {"torch": torch.__version__, "ratio": RATIO, "documents": len(documents)} | saturated
    file = Path(__file__).parent / "shipped" / "facts.json"
    file.write_text(json.dumps({"about": about, "variants": found}, indent=1) + "\n")


def measured(
    model: Any, documents: Sequence[Document], settings: Settings
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return how many of KVzip's scores are saturated, and what each variant does to facts."""
    alone, refined = system_named("kvzip"), system_named("kvzip+hubkv")
    systems = (refined._replace(settings=one) if one else alone for one in VARIANTS.values())
    rows = {name: Row(Trial(one, RATIO)) for name, one in zip(VARIANTS, systems, strict=True)}
    values: dict[str, list[Tensor]] = {name: [] for name in VARIANTS}
    saturated: list[Tensor] = []
    for some in batches(documents):
        batch = Batch(model, some, [row.trial for row in rows.values()], settings)
        batch.measure(list(rows.values()), lambda _: None)
        for name, row in rows.items():
            masks = batch.kept(row.trial, settings.kv, Clock(model.device)).unbind(1)
            places = zip(masks, map(value_places, some), strict=True)
            values[name] += [mask[..., place] for mask, each in places for place in each]
        scores, _ = batch.panel.scores(batch.prompt, rows["KVzip alone"].trial, settings.kv)
        full = torch.stack([one.scores >= SATURATED for one in scores.scored])
        saturated += full.double().mean(-1).unbind(1)
    by_head = torch.stack(saturated).mean(0)
    about = {"saturated": float(by_head.mean()), "saturated_in_one_head": float(by_head.max())}
    return about, {name: figures(rows[name], values[name]) for name in VARIANTS}


def figures(row: Row, values: list[Tensor]) -> dict[str, float]:
    """Return what one variant did to facts, and what it kept of their values in the heads."""
    touched = sum(int(value.any(-1).sum()) for value in values)
    return {
        "needles": sum(map(sum, row.found)) / len(values),
        "bits_per_byte": sum(row.bits) / len(row.bits),
        "kept": sum(float(value.float().mean()) for value in values) / len(values),
        "whole": sum(int(value.all(-1).sum()) for value in values) / max(1, touched),
    }


def value_places(document: Document) -> list[slice]:
    """Return where the values of a document's facts stand; its tokens are bytes."""
    text = bytes(min(token, 255) for token in document.context)
    places = []
    for question in document.questions:
        start = text.index(b"= ", round(question.depth * len(text))) + 2
        places.append(slice(start, text.index(b"\n", start)))
    return places


if __name__ == "__main__":
    main()
