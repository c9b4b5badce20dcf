"""The verdicts on differences between systems."""

import random
import re
from math import comb

import numpy as np
import pytest
from scipy.stats import permutation_test

pytest.importorskip("transformers")

from optimized.__main__ import experiment, main, parser
from optimized.study import significance, table
from optimized.study.compared_systems import systems_named
from optimized.study.experiments import experiments, of_paper, options_of
from optimized.study.measurements import Row, Trial
from optimized.study.significance import chances, fewest, holm, interval, verdicts


def rows_of(names: list[str], documents: int, seed: int, gain: float = 0.0) -> list[Row]:
    """Return rows of random figures, where all but the first are better by `gain`."""
    draw = random.Random(seed)
    rows = []
    for system in systems_named(names):
        better = gain if rows else 0.0
        bits = [5 + draw.gauss(0, 1) - better for _ in range(documents)]
        found = [[float(draw.random() < 0.5) for _ in range(4)] for _ in range(documents)]
        rows.append(Row(Trial(system, 0.5 if system.evicts else None), bits, found))
    return rows


def judged(*given, **options):
    """Return the verdicts on random rows."""
    return verdicts(rows_of(*given, **options), lambda _: 100.0, 0)


def beyond(bounds):
    """Return whether an interval excludes 0."""
    return bounds.low > 0 or bounds.high < 0


@pytest.mark.parametrize("documents", [2, 3, 5, 8])
def test_a_chance_is_that_of_all_sign_patterns(documents):
    draw = np.random.default_rng(documents)
    samples = draw.standard_normal((4, documents)).round(1)
    expected = permutation_test(
        (samples,),
        lambda x, axis: abs(x.mean(axis)),
        permutation_type="samples",
        vectorized=True,
        alternative="greater",
        n_resamples=1 << documents,
        axis=-1,
    )
    np.testing.assert_allclose(chances(samples.tolist(), 0), expected.pvalue)


def test_up_to_forty_documents_have_every_pattern_and_more_have_some():
    both = [[1.0] * 27 + [-1.0] * 13, [1.0] * 27 + [-1.0] * 14]
    tails = [2 * sum(comb(n, heads) for heads in range(27, n + 1)) / 2**n for n in (40, 41)]
    assert chances(both[:1], 0) == [tails[0]]
    assert chances(both[1:], 0) == pytest.approx(tails[1:], rel=0.05)
    assert chances([[1.0] * 41], 0) == [1 / significance.FLIPS]
    assert chances([[0.1, -0.1, 0.0]], 0) == [1]


def test_holm_is_as_holm_wrote_it():
    # 0.01 x 4, 0.02 x 3, 0.03 x 2 (not below the one before), 0.9
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.5, 0.6]) == [1, 1]


@pytest.mark.parametrize(("tests", "documents"), [(1, 6), (2, 7), (148, 13)])
def test_no_verdict_below_the_documents_it_needs(tests, documents):
    assert fewest(tests) == documents
    least = 2.0 ** (1 - documents)
    assert tests * least <= 0.05 < tests * 2 * least


def test_a_difference_is_seen_by_as_many_documents_as_it_needs():
    assert judged(["kivi-4"], 7, 0, gain=50.0)[0].signs == "+="
    assert judged(["kivi-4"], 7, 0, gain=-50.0)[0].signs == "-="
    assert judged(["kivi-4"], 6, 0, gain=50.0)[0].signs == "??"


def test_systems_that_differ_by_chance_are_seldom_called_different():
    """At most one run of twenty has any false verdict; without correction most runs would."""
    names = ["random", "snapkv", "h2o", "knorm", "cake", "pyramidkv", "kivi-2", "kivi-4", "gear"]
    runs = [judged(names, 12, seed) for seed in range(40)]
    called = sum(any(set(verdict.signs) & {"+", "-"} for verdict in run) for run in runs)
    alone = sum(any(beyond(verdict.bits) for verdict in run) for run in runs)
    assert called <= 4
    assert alone >= 10


def test_an_interval_needs_six_documents():
    assert interval([0.25] * 5, 0) == (0.25, None, None)
    assert interval([0.25] * 6, 0) == (0.25, 0.25, 0.25)
    assert not beyond(interval([-1.0, 2.0, -3.0, 4.0, -5.0, 6.0], 0))
    assert beyond(interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0))


def test_where_all_documents_agree_the_bounds_are_wilsons():
    assert table.widen([0.0, 0.0, 0.0], 256)[1:] == pytest.approx((-0.01478, 0.01478), abs=1e-5)
    assert table.widen([-0.25, -0.25, -0.25], 72)[1:] == pytest.approx((-0.3609, -0.1644), abs=1e-4)
    assert table.widen([0.1, 0.0, 0.2], 72) == [0.1, 0.0, 0.2]


def test_every_table_and_figure_has_options_that_parse_or_a_reason():
    every = experiments()
    assert sum(bool(re.search(r"-(Tab|Fig)\d", name)) for name in every) == 38
    for name, about in every.items():
        assert ("options" in about) + ("run" in about) + ("skip" in about) == 1, name
        if "options" in about:
            assert about["refuted"]
            assert about["points"] >= 0
            given = parser().parse_args(options_of(name))
            assert len(systems_named(given.systems)) > 1
        else:
            with pytest.raises(ValueError, match=f"--experiment {name} is no run"):
                options_of(name)


def test_the_experiments_of_a_paper_are_those_not_finished(tmp_path):
    names = list(of_paper("graphkv", tmp_path))
    assert {name.partition("-")[0] for name in names} == {"GraphKV"}
    (tmp_path / names[0]).mkdir()
    (tmp_path / names[0] / "figures.json").touch()
    assert list(of_paper("graphkv", tmp_path)) == names[1:]
    given = experiment("GraphKV-Fig4", ["--paper", "graphkv", "--seed", "3"], tmp_path / "one")
    assert (given.keep, given.seed, given.out) == ([128], 3, tmp_path / "one")
    assert (given.experiment, given.paper, given.pictures) == ("GraphKV-Fig4", None, False)


def test_a_refused_experiment_of_a_paper_stops_no_other(monkeypatch, tmp_path, capsys):
    asked = []

    def run(given):
        asked.append(given.experiment)
        if len(asked) == 1:
            raise ValueError("too long for the model")
        return len(asked) > 2

    monkeypatch.setattr("optimized.study.command.run", run)
    with pytest.raises(SystemExit) as end:
        main(["--paper", "hubkv", "--out", str(tmp_path)])
    assert end.value.code == 1
    assert asked == list(of_paper("hubkv", tmp_path))
    told = capsys.readouterr().err
    assert f"{asked[0]} is refused: too long for the model" in told
    assert f"nothing was measured in {asked[0]}, {asked[1]}\n" in told


def test_settings_behind_a_name_are_that_systems_alone():
    usual, changed_one = systems_named(["hex-3", "hex-3:hex.heavy=0"])[1:]
    assert (usual.changes, changed_one.changes) == ((), (("hex", "heavy", 0),))
    with pytest.raises(
        ValueError, match="must have settings of hubkv, graphkv, nms, hex or control"
    ):
        systems_named(["snapkv:snapkv.window=16"])
