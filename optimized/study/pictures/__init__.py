"""The papers' own figures, drawn from the model of a run."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from optimized.study.documents import Document
from optimized.study.measurements import MeasurementSettings
from optimized.study.pictures import captured, graphkv_keys, hubkv_attention_columns, hubkv_clusters
from optimized.study.pictures.captured import Captured
from optimized.study.pictures.drawing import draw


class Picture(NamedTuple):
    """A picture with its caption, or the reason why it could not be drawn."""

    name: str
    title: str
    svg: str | None = None
    caption: str = ""
    numbers: dict[str, Any] | None = None
    refused: str | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """All fields but the drawing."""
        known = self._asdict()
        del known["svg"]
        return known


REFUSALS = (ValueError, ArithmeticError, RuntimeError)
"""Errors that leave out one picture and do not end the run; too little memory is one."""


class Plan(NamedTuple):
    """How a picture is made: functions that measure, draw and write the caption."""

    title: str
    height: float
    measure: Callable[[Captured, MeasurementSettings], Any]
    """Returns the numbers, or the numbers and further inputs of the drawing."""
    paint: Callable[..., None]
    caption: Callable[[dict[str, Any]], str]


PICTURES = {
    "hubkv_clusters": Plan(
        "Important tokens form clusters (HubKV, Fig. 1)",
        3.1,
        lambda caught, how: hubkv_clusters.clustering_figures(caught.reconstruction, how.seed),
        hubkv_clusters.clusters,
        hubkv_clusters.caption,
    ),
    "hubkv_columns": Plan(
        "Columns of attention (HubKV, Fig. 2)",
        3.2,
        lambda caught, _: hubkv_attention_columns.maps(caught),
        hubkv_attention_columns.columns,
        hubkv_attention_columns.maps_caption,
    ),
    "hubkv_density": Plan(
        "Neighbours receive similar attention (HubKV, Fig. 9)",
        2.8,
        lambda caught, _: hubkv_attention_columns.density_autocorrelations(caught.density),
        hubkv_attention_columns.density_autocorrelation,
        hubkv_attention_columns.correlation_caption,
    ),
    "graphkv_likeness": Plan(
        "Similarity of keys before and after the decay (GraphKV, Fig. 2)",
        3.0,
        lambda caught, how: graphkv_keys.best_key_similarity(caught, how.reading),
        graphkv_keys.likeness,
        graphkv_keys.likeness_caption,
    ),
    "graphkv_planes": Plan(
        "Where the best keys lie, round after round (GraphKV, Fig. 7)",
        3.2,
        lambda caught, how: graphkv_keys.best_key_spread(caught, how.reading),
        graphkv_keys.planes,
        graphkv_keys.planes_caption,
    ),
}


def pictures(
    model: PreTrainedModel,
    documents: Sequence[Document],
    how: MeasurementSettings,
    step: Callable[[str], None] = lambda _: None,
) -> Iterator[Picture]:
    """Draw every picture from some documents of a run.

    Args:
        model: the attached model.
        documents: the documents of the run.
        how: the reading and the seed of the run, and KVzip's request for a repetition.
        step: called with the name of each picture when it is done.

    Yields:
        The pictures; one that this model or these documents do not allow holds the reason.
    """
    try:
        caught = captured.capture(model, documents, how)
    except REFUSALS as refusal:
        yield from (refused(name, refusal) for name in PICTURES)
        return
    for name, plan in PICTURES.items():
        try:
            yield drawn(name, plan, caught, how)
        except REFUSALS as refusal:
            yield refused(name, refusal)
        step(name)


def refused(name: str, refusal: Exception) -> Picture:
    """Return a picture without a drawing, with the reason."""
    return Picture(name, PICTURES[name].title, refused=" ".join(str(refusal).split()))


def drawn(name: str, plan: Plan, caught: Captured, how: MeasurementSettings) -> Picture:
    """Return a picture after measuring and drawing."""
    found = plan.measure(caught, how)
    numbers, *shown = found if isinstance(found, tuple) else (found,)
    json.dumps(numbers, allow_nan=False)
    svg = draw(lambda canvas: plan.paint(canvas, numbers, *shown), plan.height)
    return Picture(name, plan.title, svg, plan.caption(numbers), numbers)
