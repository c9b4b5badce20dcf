"""Why HubKV loses facts on the shipped model: `python docs/shipped_facts.py` measures it.

Writes docs/shipped/facts.json: for KVzip alone and for HubKV with one part after the other taken
away, how many facts are found, and what is left of their values in the heads.
"""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from optimized import HubSettings
from optimized.__main__ import parser
from optimized.models import selection
from optimized.study import command, evaluate
from optimized.study.documents import Document
from optimized.study.rows import trials
from optimized.study.systems import system_named

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
    found, saturated = {}, {}
    with command.threads(model):
        for name, variant in VARIANTS.items():
            found[name], saturated = measured(model, documents, settings, variant)
            print(name, found[name])
    about = {"torch": torch.__version__, "ratio": RATIO, "documents": len(documents)} | saturated
    file = Path(__file__).parent / "shipped" / "facts.json"
    file.write_text(json.dumps({"about": about, "variants": found}, indent=1) + "\n")


def measured(
    model: Any, documents: list[Document], settings: Any, variant: HubSettings | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what one variant does to facts, and how many of KVzip's scores are saturated."""
    masks: list[Tensor] = []
    full: list[Tensor] = []

    def kept(*given: Any) -> Tensor:
        scores = torch.stack([one.scores for one in given[2].scored])
        full.extend((scores >= SATURATED).double().mean(-1).unbind(1))
        masks.append(selection.kept_entries(*given))
        return masks[-1]

    refined = patch.object(selection, "refinement", lambda *_: variant)
    with refined, patch.object(evaluate, "kept_entries", kept):
        trial = trials([system_named("kvzip+hubkv" if variant else "kvzip")], [RATIO])
        row, *_ = evaluate.evaluate(model, documents, trial, settings)
    rows = (mask[:, place] for mask in masks for place in range(mask.shape[1]))
    values = [
        mask[..., place]
        for document, mask in zip(documents, rows, strict=True)
        for place in value_places(document)
    ]
    touched = sum(int(value.any(-1).sum()) for value in values)
    by_head = torch.stack(full).mean(0)
    return {
        "needles": sum(map(sum, row.found)) / len(values),
        "bits_per_byte": sum(row.bits) / len(row.bits),
        "kept": sum(float(value.float().mean()) for value in values) / len(values),
        "whole": sum(int(value.all(-1).sum()) for value in values) / max(1, touched),
    }, {"saturated": float(by_head.mean()), "saturated_in_one_head": float(by_head.max())}


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
