"""The papers' own figures, drawn from the model of a run."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from optimized.models.documents import Document
from optimized.models.pictures import (
    ablations,
    captured,
    columns,
    drawn_graphkv,
    drawn_hex,
    drawn_hubkv,
    graphkv,
    hubkv,
    settings,
)
from optimized.models.pictures.captured import Captured
from optimized.models.pictures.drawing import draw
from optimized.models.rows import Settings


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


Made = tuple[str, str, dict[str, Any]]
"""A drawing, its caption and its numbers."""

REFUSALS = (ValueError, ArithmeticError, RuntimeError)
"""What leaves one picture out, too little memory among it, and never ends a run."""

TITLES = {
    "hubkv_clusters": "Important tokens crowd together (HubKV, Fig. 1)",
    "hubkv_columns": "Columns of attention (HubKV, Fig. 2)",
    "hubkv_density": "Neighbours draw attention alike (HubKV, Fig. 9)",
    "graphkv_likeness": "Likeness of keys, before and after (GraphKV, Fig. 2)",
    "graphkv_planes": "Where the best keys lie, round after round (GraphKV, Fig. 7)",
    "hex_settings": "What each setting costs (HEX, Fig. 3)",
    "hex_ablations": "What each component is good for (HEX, Table 4)",
}


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
        yield from (refused(name, refusal) for name in TITLES)
        return
    longest = captured.longest(documents)
    makers: dict[str, Callable[[], Made]] = {
        "hubkv_clusters": lambda: clustered(caught, how.seed),
        "hubkv_columns": lambda: columned(caught),
        "hubkv_density": lambda: correlated(caught),
        "graphkv_likeness": lambda: likened(caught, how.reading),
        "graphkv_planes": lambda: placed(caught, how.reading),
        "hex_settings": lambda: varied(caught, how.reading),
        "hex_ablations": lambda: ablated(model, longest, how),
    }
    for name, make in makers.items():
        try:
            svg, caption, numbers = make()
            json.dumps(numbers, allow_nan=False)
            yield Picture(name, TITLES[name], svg, caption, numbers)
        except REFUSALS as refusal:
            yield refused(name, refusal)
        step(name)


def refused(name: str, refusal: Exception) -> Picture:
    """Return a picture that cannot be had."""
    return Picture(name, TITLES[name], refused=" ".join(str(refusal).split()))


def clustered(caught: Captured, seed: int) -> Made:
    """Make HubKV's Fig. 1."""
    found = hubkv.clusters(caught.reconstruction, seed)
    drawn = draw(lambda canvas: drawn_hubkv.clusters(canvas, found), 3.1)
    return drawn, hubkv.caption(found), found


def columned(caught: Captured) -> Made:
    """Make HubKV's Fig. 2."""
    found, maps = columns.maps(caught)
    drawn = draw(lambda canvas: drawn_hubkv.columns(canvas, maps), 3.2)
    return drawn, columns.maps_caption(found), found


def correlated(caught: Captured) -> Made:
    """Make HubKV's Fig. 9."""
    found = columns.correlation(caught.density)
    drawn = draw(lambda canvas: drawn_hubkv.density(canvas, found), 2.8)
    return drawn, columns.correlation_caption(found), found


def likened(caught: Captured, reading: str) -> Made:
    """Make GraphKV's Fig. 2."""
    found, shown = graphkv.likeness(caught, reading)
    drawn = draw(lambda canvas: drawn_graphkv.likeness(canvas, found, shown), 3.0)
    return drawn, graphkv.likeness_caption(found), found


def placed(caught: Captured, reading: str) -> Made:
    """Make GraphKV's Fig. 7."""
    found, shown = graphkv.planes(caught, reading)
    drawn = draw(lambda canvas: drawn_graphkv.planes(canvas, shown), 3.2)
    return drawn, graphkv.planes_caption(found), found


def varied(caught: Captured, reading: str) -> Made:
    """Make HEX's Fig. 3."""
    found = settings.settings(caught, reading)
    drawn = draw(lambda canvas: drawn_hex.settings(canvas, found), 4.6)
    return drawn, settings.settings_caption(found), found


def ablated(model: PreTrainedModel, documents: Sequence[Document], how: Settings) -> Made:
    """Make HEX's Table 4."""
    found = ablations.ablations(model, documents, how)
    drawn = draw(lambda canvas: drawn_hex.ablations(canvas, found), 3.6)
    return drawn, ablations.ablations_caption(found), found
