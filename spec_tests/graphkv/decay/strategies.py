"""Strategies for graphs, and for the settings of a signal."""

from operator import itemgetter

from hypothesis import strategies as st

import reference
from spec_tests.from_signature import draw_choices
from spec_tests.graphkv.graph.strategies import few, leads, scores, up_to, weights
from spec_tests.strategies import booleans, importance

rounds = st.sampled_from([1, 2, 3, 0])
strengths = st.sampled_from([0.25, 0.5, 1.0])
rules = draw_choices(reference.decay).map(itemgetter("rule"))


@st.composite
def graph(draw, low=-16):
    """Scores and any graph of them; edges in [low / 16, 1]."""
    lead, count, sources = draw(leads), draw(few), draw(up_to(3))
    return dict(
        scores=draw(importance(*lead, count)),
        weights=draw(importance(*lead, sources, count, low=low)),
        neighbours=draw(booleans(*lead, sources, count)),
        rounds=draw(rounds),
    )


@st.composite
def decay(draw, low=-16, rules=rules):
    """A graph, a strength and a rule to combine sources."""
    return draw(graph(low)) | dict(strength=draw(strengths), rule=draw(rules))


@st.composite
def enhance(draw, low=-16):
    """A graph and a strength."""
    return draw(graph(low)) | dict(strength=draw(strengths))


@st.composite
def banish(draw):
    """A graph without edges, which this signal does not use."""
    drawn = draw(graph())
    return {name: drawn[name] for name in ("scores", "neighbours", "rounds")}


reached = weights > 0
signal = dict(scores=scores, weights=weights, neighbours=reached, rounds=2, strength=0.5)

GOOD = dict(
    decay=signal | dict(rule="sum"),
    enhance=signal,
    banish=dict(scores=scores, neighbours=reached, rounds=2),
)
