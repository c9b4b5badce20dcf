"""The papers' figures of a model: their numbers, and the report that shows them."""

import re

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

import optimized
from optimized.study.pictures import (
    PICTURES,
    captured,
    graphkv_keys,
    hubkv_attention_columns,
    hubkv_clusters,
)
from spec_tests.internal.study.test_command_report import elements

DRAWN = ("--pictures", "--systems", "full", "--needles", "0", "--documents", "2")


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def caught() -> captured.Captured:
    """Return two layers and two documents of 64 tokens, with two query heads for each key head."""
    queries, keys, values = noise(2, 2, 4, 64, 8), noise(2, 2, 2, 64, 8), noise(2, 2, 2, 64, 8)
    observed, inner = noise(2, 2, 2, 64).abs(), captured.unprotected_span(64)
    size = inner.stop - inner.start
    density = noise(2, 3, 2, size).abs()
    return captured.Captured((0, 5), queries, keys, values, observed, noise(3, size).abs(), density)


def test_crowded_scores_are_seen_as_crowded():
    scores = 0.4 + 0.1 * torch.rand(1, 256, generator=torch.Generator().manual_seed(0))
    scores[0, 100:140] = torch.linspace(1, 0.9, 40)  # one segment of 4 after another
    found = hubkv_clusters.clustering_figures(scores, seed=0)
    assert found["segments"] == 64
    assert sum(found["gain"]["top"][:40]) == 10
    assert found["coverage"]["top"][39] == 10 / 64
    assert found["coverage"]["even"][63] == 1
    assert found["coverage"]["nms"][39] > 10 / 64
    assert found["autocorrelation"][1] > 0.9
    assert found["autocorrelation_deviation"][1] == 0
    assert "0.9" in hubkv_clusters.caption(found)


def test_density_is_the_mean_of_a_column():
    queries, keys = noise(1, 4, 10, 8), noise(1, 2, 10, 8)
    found = captured.mean_received_attention(queries[:, :, 3:], keys)
    weights = optimized.attention_weights(queries, keys)
    density = optimized.attention_density(weights, torch.arange(10) >= 3)
    torch.testing.assert_close(found, density.unflatten(1, (2, 2)).mean(2))


def test_one_column_that_draws_everything_is_the_strongest():
    density = torch.full((2, 40), 0.01)
    density[0, 7] = density[1, 7] = 10.0
    shares, strong = hubkv_attention_columns.strongest_columns(density)
    assert bool((shares > 0.95).all())
    assert strong[:, 0].tolist() == [7, 7]
    assert hubkv_attention_columns.agreement(
        torch.tensor([[[3, 4], [4, 9], [3, 4]]])
    ) == pytest.approx(4 / 6)


def test_maps_are_attention_of_the_content(caught):
    found, maps = hubkv_attention_columns.maps(caught)
    assert [drawn.layer for drawn in maps] == found["layers"] == [0, 5]
    drawn, inner = maps[0], caught.content
    query = caught.queries[0, 0, drawn.head, inner.stop - 1]
    keys = caught.keys[0, 0, drawn.head // 2, : inner.stop]
    row = (keys @ query / 8**0.5).softmax(0)[inner.start :]
    torch.testing.assert_close(drawn.weights[-1], row)
    assert drawn.weights.triu(1).count_nonzero() == 0


def test_twins_among_the_best_are_alike_until_they_decay(caught):
    keys, observed = caught.keys.clone(), torch.rand(2, 2, 2, 64) * 0.1
    keys[..., 10:19, :] = keys[..., 10:11, :]  # nine tokens with one key, and the highest scores
    observed[..., 10:19] = torch.linspace(1.0, 0.9, 9)
    found, shown = graphkv_keys.best_key_similarity(
        caught._replace(keys=keys, observed=observed), "remedied"
    )
    pairs = shown.before[*torch.triu_indices(10, 10, 1)]
    assert found["before"]["shown"] == pytest.approx(float(pairs.mean()), abs=1e-5)
    assert found["before"]["mean"] > found["every"]["mean"] + 0.5
    assert found["after"]["mean"] < found["before"]["mean"] - 0.2
    for name in ("every", "before", "after"):
        assert sum(found[name]["histogram"]) == pytest.approx(1)
    assert "after the decay: this model" in graphkv_keys.likeness_caption(found)


@pytest.mark.parametrize("reading", ["letter", "remedied"])
def test_without_a_round_the_best_are_the_best(caught, reading):
    found, plane = graphkv_keys.best_key_spread(caught, reading)
    assert found["replaced"][0] == 0
    scores = caught.observed[1, 0, 0] if reading == "remedied" else caught.observed[1, 0].mean(0)
    best = scores[caught.content].topk(found["kept"]).indices
    assert sorted(plane.best[0].tolist()) == sorted(best.tolist())
    apart = plane.places[plane.best[0]].std(0, False).norm() / plane.places.std(0, False).norm()
    assert found["spread_shown"][0] == pytest.approx(float(apart), rel=1e-4)


def test_the_report_holds_every_picture_and_asks_for_nothing(command):
    figures = command.figures(*DRAWN, "--context", "256")
    assert [picture["name"] for picture in figures["pictures"]] == list(PICTURES)
    assert [picture["refused"] for picture in figures["pictures"]] == [None] * len(PICTURES)
    text = (command.out / "report.html").read_text()
    assert elements(text)["img"] == len(PICTURES)
    assert len(text) < 2_000_000
    for picture in figures["pictures"]:
        assert picture["title"] in text.replace("&#x27;", "'")
        assert len(picture["caption"]) > 100


def test_a_picture_that_cannot_be_had_says_why_and_two_runs_are_alike(command, monkeypatch):
    def refuse(*_):
        raise ValueError("no such keys")

    monkeypatch.setitem(PICTURES, "x", PICTURES["hubkv_columns"]._replace(measure=refuse))
    runs = []
    for _ in range(2):
        figures = command.figures(*DRAWN, "--context", "64")
        page = (command.out / "report.html").read_text()
        runs.append((figures["pictures"], re.findall(r'src="([^"]+)"', page)))
    assert runs[0] == runs[1]
    assert [one["name"] for one in runs[0][0] if one["refused"] == "no such keys"] == ["x"]
    assert len(runs[0][1]) == len(PICTURES) - 1


def test_a_context_without_content_has_no_pictures(command):
    figures = command.figures(*DRAWN, "--context", "18")
    assert all("content of at least 16" in picture["refused"] for picture in figures["pictures"])
