"""The papers' own figures, drawn from the model of a run."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from optimized.study.documents import Document
from optimized.study.pictures import (
    captured,
    graphkv_keys,
    graphkv_plots,
    hex_ablations,
    hex_plots,
    hex_settings,
    hubkv_clusters,
    hubkv_columns,
    hubkv_plots,
)
from optimized.study.pictures.captured import Captured
from optimized.study.pictures.drawing import draw
from optimized.study.rows import Settings


class Picture(NamedTuple):
    """A picture with its caption, or why there is none."""

    name: str
    title: str
    svg: str | None = None
    caption: str = ""
    numbers: dict[str, Any] | None = None
    refused: str | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """What is known of it beside the drawing."""
        known = self._asdict()
        del known["svg"]
        return known


class Drawing(NamedTuple):
    """What a picture shows."""

    svg: str
    caption: str
    numbers: dict[str, Any]


REFUSALS = (ValueError, ArithmeticError, RuntimeError)
"""What leaves one picture out, too little memory among it, and never ends a run."""


class Sitting(NamedTuple):
    """What a picture is made of."""

    caught: Captured
    model: PreTrainedModel
    longest: Sequence[Document]
    how: Settings


PICTURES: dict[str, tuple[str, Callable[[Sitting], Drawing]]] = {
    "hubkv_clusters": (
        "Important tokens crowd together (HubKV, Fig. 1)",
        lambda of: clustered(of.caught, of.how.seed),
    ),
    "hubkv_columns": (
        "Columns of attention (HubKV, Fig. 2)",
        lambda of: columned(of.caught),
    ),
    "hubkv_density": (
        "Neighbours draw attention alike (HubKV, Fig. 9)",
        lambda of: correlated(of.caught),
    ),
    "graphkv_likeness": (
        "Likeness of keys, before and after (GraphKV, Fig. 2)",
        lambda of: likened(of.caught, of.how.reading),
    ),
    "graphkv_planes": (
        "Where the best keys lie, round after round (GraphKV, Fig. 7)",
        lambda of: placed(of.caught, of.how.reading),
    ),
    "hex_settings": (
        "What each setting costs (HEX, Fig. 3)",
        lambda of: varied(of.caught, of.how.reading),
    ),
    "hex_ablations": (
        "What each component is good for (HEX, Table 4)",
        lambda of: ablated(of.model, of.longest, of.how),
    ),
}
"""The title of each picture, and what draws it."""


def pictures(
    model: PreTrainedModel,
    documents: Sequence[Document],
    how: Settings,
    step: Callable[[str], None] = lambda _: None,
) -> Iterator[Picture]:
    """Draw every picture, from some of the documents of a run.

    Args:
        model: the attached model.
        documents: those of the run.
        how: the reading and the seed of the run, and how KVzip asks for a repetition.
        step: called with the name of each picture when it is done.

    Yields:
        The pictures; one that this model or these documents do not allow says why.
    """
    try:
        caught = captured.capture(model, documents, how)
    except REFUSALS as refusal:
        yield from (refused(name, refusal) for name in PICTURES)
        return
    sitting = Sitting(caught, model, captured.longest(documents), how)
    for name, (title, make) in PICTURES.items():
        try:
            drawing = make(sitting)
            json.dumps(drawing.numbers, allow_nan=False)
            yield Picture(name, title, *drawing)
        except REFUSALS as refusal:
            yield refused(name, refusal)
        step(name)


def refused(name: str, refusal: Exception) -> Picture:
    """Return a picture that cannot be had."""
    return Picture(name, PICTURES[name][0], refused=" ".join(str(refusal).split()))


def clustered(caught: Captured, seed: int) -> Drawing:
    """Make HubKV's Fig. 1."""
    found = hubkv_clusters.clusters(caught.reconstruction, seed)
    svg = draw(lambda canvas: hubkv_plots.clusters(canvas, found), 3.1)
    return Drawing(svg, hubkv_clusters.caption(found), found)


def columned(caught: Captured) -> Drawing:
    """Make HubKV's Fig. 2."""
    found, maps = hubkv_columns.maps(caught)
    svg = draw(lambda canvas: hubkv_plots.columns(canvas, maps), 3.2)
    return Drawing(svg, hubkv_columns.maps_caption(found), found)


def correlated(caught: Captured) -> Drawing:
    """Make HubKV's Fig. 9."""
    found = hubkv_columns.correlation(caught.density)
    svg = draw(lambda canvas: hubkv_plots.density(canvas, found), 2.8)
    return Drawing(svg, hubkv_columns.correlation_caption(found), found)


def likened(caught: Captured, reading: str) -> Drawing:
    """Make GraphKV's Fig. 2."""
    found, shown = graphkv_keys.likeness(caught, reading)
    svg = draw(lambda canvas: graphkv_plots.likeness(canvas, found, shown), 3.0)
    return Drawing(svg, graphkv_keys.likeness_caption(found), found)


def placed(caught: Captured, reading: str) -> Drawing:
    """Make GraphKV's Fig. 7."""
    found, shown = graphkv_keys.planes(caught, reading)
    svg = draw(lambda canvas: graphkv_plots.planes(canvas, shown), 3.2)
    return Drawing(svg, graphkv_keys.planes_caption(found), found)


def varied(caught: Captured, reading: str) -> Drawing:
    """Make HEX's Fig. 3."""
    found = hex_settings.settings(caught, reading)
    svg = draw(lambda canvas: hex_plots.settings(canvas, found), 4.6)
    return Drawing(svg, hex_settings.settings_caption(found), found)


def ablated(model: PreTrainedModel, documents: Sequence[Document], how: Settings) -> Drawing:
    """Make HEX's Table 4."""
    found = hex_ablations.ablations(model, documents, how)
    svg = draw(lambda canvas: hex_plots.ablations(canvas, found), 3.6)
    return Drawing(svg, hex_ablations.ablations_caption(found), found)
