"""The boxes "Does it work here?" of the docs, and the charts of docs/results.md.

All numbers come from docs/shipped. A sentence that states a cause or a verdict names the figures
that it rests on, and the build fails where they do not hold.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from drawing import FOLDER
from one_prompt import NAMES
from shipped_tables import RUNS, SURE, Figures, hidden

from optimized.study.table import widen

RANKED = {
    name: NAMES[name]
    for name in (
        "streaming_llm",
        "expected_attention",
        "kvzip",
        "fastkvzip",
        "snapkv",
        "pyramidkv",
        "h2o",
        "knorm",
        "cake",
    )
}
"""The scorers that have a page, with their names in prose."""
SECTIONS = {
    "hubkv": "hubkv-against-its-base",
    "graphkv": "graphkv-against-its-base",
    "hex": "hex-and-other-quantisers-against-the-full-cache",
    "scorers": "scorers-against-chance",
}
"""For each folder of pages, the section of docs/results.md that its boxes lead to."""


class Run:
    """The figures of one run of the command, by system and ratio."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.rows = {(row["system"], row["ratio"]): row for row in figures["rows"]}
        self.verdicts = {(v["claim"], v["system"], v["ratio"]): v for v in figures["verdicts"]}

    def facts(self, system: str, ratio: float | None = None) -> float:
        """Return the share of the facts that a system finds."""
        return self.rows[system, ratio]["needle_accuracy"]

    def bits(self, system: str, ratio: float | None = None) -> str:
        """Return the bits per byte above the full cache."""
        return f"{self.rows[system, ratio]['bits_change']:.3f}"

    def stored(self, system: str, ratio: float | None = None) -> str:
        """Return the stored bytes in percent of the full cache."""
        return f"{self.rows[system, ratio]['stored_percent']:.0f} %"

    def sign(self, claim: str, system: str, ratio: float | None, what: str) -> str:
        """Return +, - or = for better, worse, or no significant difference."""
        signs = self.verdicts[claim, system, ratio]["signs"]
        return signs[("text", "facts").index(what)]

    def change(self, claim: str, system: str, ratio: float | None, what: str = "facts") -> str:
        """Return a difference, its interval and whether the run's test calls it significant."""
        one, sign = self.verdicts[claim, system, ratio], self.sign(claim, system, ratio, what)
        if what == "facts":
            return in_points(widen(one["needles"], hidden(self.figures)), sign != "=")
        mean, low, high = one["bits"]
        verdict = "not significant" if sign == "=" else "significant"
        return f"{mean:+.4f} bits per byte ({low:+.4f} … {high:+.4f}; {verdict})"


def in_points(found: Sequence[float], sure: bool) -> str:
    """Return a difference of shares in points, its interval and its verdict."""
    mean, low, high = (100 * number for number in found)
    return f"{mean:+.1f} points ({low:+.1f} … {high:+.1f}; {'' if sure else 'not '}significant)"


@cache
def run(model: str = "words", reading: str = "remedied") -> Run:
    """Return a run of the command on a shipped model."""
    return Run(read(model, reading))


@cache
def read(model: str, name: str) -> Figures:
    """Return a file of docs/shipped."""
    return json.loads((RUNS / model / f"{name}.json").read_text())


def percent(share: float, digits: int = 0) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


def points(more: float, less: float) -> str:
    """Return the difference of two shares in points."""
    return f"{100 * (more - less):.0f} points"


def given(text: str, /, **conditions: bool) -> str:
    """Return a text if the conditions hold that it rests on.

    Raises:
        ValueError: a condition does not hold.
    """
    if failed := [name for name, holds in conditions.items() if not holds]:
        raise ValueError(f"docs/shipped no longer shows {', '.join(failed)}; correct: {text}")
    return text


HUBKV, GRAPHKV, STORES, CHANCE = (
    "HubKV against its base",
    "GraphKV against its base",
    "Quantised against the full cache",
    "Scorers against chance",
)


def hubkv() -> str:
    """Return what HubKV does over KVzip."""
    one = run()
    base, ours = (one.facts(name, 0.95) for name in ("kvzip", "kvzip+hubkv"))
    signs = [one.sign(HUBKV, "kvzip+hubkv", r, "facts") for r in (0.5, 0.75, 0.9, 0.95)]
    return given(
        "Not in this run: at 90 % removed HubKV changes the facts that KVzip finds by "
        f"{one.change(HUBKV, 'kvzip+hubkv', 0.9)}, and at 75 % by "
        f"{one.change(HUBKV, 'kvzip+hubkv', 0.75)}. At 95 % it **loses {points(base, ours)}**, "
        f"from {percent(base)} to {percent(ours)}, and the cause is [the discount](discount.md).",
        no_difference_to_90=signs[:3] == ["="] * 3,
        loss_at_95=signs[3] == "-",
        the_discount_as_cause=lost("without head weights", "0.95")
        and not lost("without neighbours", "0.95"),
    )


def variant(name: str, ratio: str) -> Figures:
    """Return the figures of a variant of HubKV."""
    return read("words", "facts")["ratios"][ratio][name]


def against_kvzip(name: str, ratio: str) -> str:
    """Return how many facts a variant of HubKV finds more than KVzip."""
    row = variant(name, ratio)["against KVzip"]
    return in_points(widen(row["needles"], hidden(run().figures)), row["p of needles"] <= SURE)


def lost(name: str, ratio: str) -> bool:
    """Return whether a variant of HubKV finds significantly fewer facts than KVzip."""
    row = variant(name, ratio)["against KVzip"]
    return row["p of needles"] <= SURE and row["needles"][0] < 0


def discount() -> str:
    """Return what the discount does without head weights."""
    alone, base = variant("without head weights", "0.95"), variant("KVzip", "0.95")
    return given(
        f"The discount alone, without head weights, finds {percent(alone['needles'])} of the facts "
        f"at 95 % removed, where KVzip finds {percent(base['needles'])}; at 90 % the difference is "
        f"{against_kvzip('without head weights', '0.9')}. It discounts the neighbours of a hub, "
        "which are the rest of the fact: of the heads that keep some of a value, "
        f"{percent(alone['whole'])} keep all of it, against {percent(base['whole'])}.",
        loss_at_95=lost("without head weights", "0.95"),
        no_loss_to_90=not any(lost("without head weights", ratio) for ratio in ("0.8", "0.9")),
    )


def head_calibration() -> str:
    """Return what head weights do without the discount."""
    base, alone = (variant(name, "0.97")["needles"] for name in ("KVzip", "without neighbours"))
    return given(
        "Head weights alone, without the discount, change the facts that KVzip finds at 95 % "
        f"removed by {against_kvzip('without neighbours', '0.95')}. At 97 % they **lose** more "
        f"than half of them, with {percent(alone)} instead of {percent(base)}.",
        loss_at_97=lost("without neighbours", "0.97"),
        more_than_half=alone < base / 2,
    )


def graphkv() -> str:
    """Return over which scorers GraphKV finds more facts."""
    one, letter = run(), run(reading="letter")
    bases = [system for claim, system, ratio in one.verdicts if claim == GRAPHKV and ratio == 0.5]
    better = {
        ratio: [
            RANKED[system.removesuffix("+graphkv")]
            for system in bases
            if one.sign(GRAPHKV, system, ratio, "facts") == "+"
        ]
        for ratio in (0.5, 0.75, 0.9, 0.95)
    }
    few = [(system, ratio) for system in bases for ratio in (0.9, 0.95)]
    most = max(few, key=lambda key: one.verdicts[GRAPHKV, *key]["needles"][0])
    as_printed = {
        letter.sign(GRAPHKV, *key[1:], "facts") for key in letter.verdicts if key[0] == GRAPHKV
    }
    alone, ours, chance = (
        percent(one.facts(name, 0.5)) for name in ("snapkv", "snapkv+graphkv", "random")
    )
    return given(
        "As printed, no: over SnapKV at 50 % removed it changes the facts found by "
        f"{letter.change(GRAPHKV, 'snapkv+graphkv', 0.5)}, and **no comparison finds significantly "
        "more**. With five corrections of ours ([errata](../errata/graphkv.md)) it finds more over "
        f"{len(better[0.5])} of {len(bases)} scorers at 50 %, such as {ours} instead of {alone} "
        f"over SnapKV, where a random choice finds {chance}, and over {len(better[0.75])} at 75 % "
        f"({listed(better[0.75])}). At 90 % and 95 % no comparison is significant; the largest "
        f"difference is {one.change(GRAPHKV, *most)}, of `{most[0]}`.",
        none_at_90_and_95=not better[0.9] and not better[0.95],
        none_as_printed=as_printed == {"="},
        snapkv="SnapKV" in better[0.5],
    )


def decay() -> str:
    """Return how much of GraphKV's gain comes from its graph."""
    rows = {(row["base"], row["ratio"]): row for row in read("words", "facts")["graph"]}
    cake, knorm = rows["cake", 0.75], rows["knorm", 0.5]
    base, ours, control = (percent(share, 1) for share in cake["needles"])
    return given(
        f"With our corrections, CAKE at 75 % removed finds {base} of the facts, and {ours} with "
        f"decay over the graph of its keys; if the keys are assigned to other tokens, {control}. "
        f"The graph's own share is {own_share(cake)}. Over KNorm at 50 % it is {own_share(knorm)}, "
        f"of {in_points(run().verdicts[GRAPHKV, 'knorm+graphkv', 0.5]['needles'], True)} in all. "
        "With 90 % or more removed **no gain** is significant.",
        the_graph_as_cause=cake["p of graph against shuffled"] <= SURE,
        no_gain_at_90=all(
            run().sign(GRAPHKV, system, ratio, "facts") != "+"
            for claim, system, ratio in run().verdicts
            if claim == GRAPHKV and ratio is not None and ratio >= 0.9
        ),
    )


def own_share(row: Figures) -> str:
    """Return what GraphKV finds with its graph more than with keys of other tokens."""
    return in_points(row["graph against shuffled"], row["p of graph against shuffled"] <= SURE)


def hex_cache() -> str:
    """Return what HEX-4 and HEX-3 lose against the full cache."""
    one, letter = run(), run(reading="letter")
    return given(
        f"The full cache finds {percent(one.facts('full'), 1)} of the facts. With HEX-4, in "
        f"{one.stored('hex-4')} of the bytes, the difference is "
        f"{one.change(STORES, 'hex-4', None)}, with HEX-3, in {one.stored('hex-3')}, "
        f"{one.change(STORES, 'hex-3', None)}. HEX-3 **predicts text worse**, "
        f"by {one.change(STORES, 'hex-3', None, 'text')}; HEX-4 by "
        f"{one.change(STORES, 'hex-4', None, 'text')}, and as printed "
        f"{letter.change(STORES, 'hex-4', None, 'text')}. KIVI-4 has "
        f"{one.change(STORES, 'kivi-4', None, 'text')} in {one.stored('kivi-4')} of the bytes. The "
        "tests of a run are corrected for all of them together; the two readings were not "
        "compared.",
        text=one.sign(STORES, "hex-3", None, "text") == "-",
    )


def hex_modes() -> str:
    """Return what recompression does to attention."""
    modes = read("words", "facts")["modes"]["HEX-4"]
    append, full, oracle = (
        percent(modes[name]["deviation"][0], 1) for name in ("append", "full", "oracle")
    )
    return given(
        f"When half a prompt comes token by token, HEX-4 moves attention by {append} of its length "
        f"if blocks are appended. Recompressing in full is **worse**, {full}, and {oracle} if the "
        "originals are compressed again.",
        worse=modes["full"]["against append"]["p of deviation"] <= SURE
        and modes["full"]["deviation"][0] > modes["append"]["deviation"][0],
    )


def kcvt() -> str:
    """Return what codes of 3 bits cost without an expander or heavy hitters."""
    one = run()
    return given(
        "KCVT-3, which has no expander and no heavy hitters, changes the facts found by "
        f"{one.change(STORES, 'kcvt-3', None)} in {one.stored('kcvt-3')} of the bytes. It "
        f"**predicts text worse** by {one.change(STORES, 'kcvt-3', None, 'text')}, and HEX-3 by "
        f"{one.bits('hex-3')} in {one.stored('hex-3')} of the bytes.",
        text=one.sign(STORES, "kcvt-3", None, "text") == "-",
    )


def scorer(system: str) -> Callable[[], str]:
    """Return a function that tells what a scorer finds, beside a random choice."""

    def told() -> str:
        one = run()
        words = {"+": "more than", "-": "**fewer than**", "=": "beside"}
        half, tenth = (
            f"{percent(one.facts(system, ratio))} of the facts, "
            f"{words[one.sign(CHANCE, system, ratio, 'facts')]} a random choice "
            f"({percent(one.facts('random', ratio))}), {one.change(CHANCE, system, ratio)}"
            for ratio in (0.5, 0.9)
        )
        return (
            f"At 50 % removed {RANKED[system]} finds {half}, and at 90 % removed {tenth}; the full "
            f"cache finds {percent(one.facts('full'))}. Text at 90 %, against a random choice: "
            f"{one.change(CHANCE, system, 0.9, 'text')}, where less is better."
        )

    return told


BOXES: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "hubkv": (hubkv, ("hubkv/walk", "hubkv/refine", "hubkv/compress")),
    "discount": (discount, ("hubkv/discount",)),
    "head_calibration": (head_calibration, ("hubkv/head_calibration",)),
    "graphkv": (graphkv, ("graphkv/walk", "graphkv/refine", "graphkv/compress")),
    "decay": (decay, ("graphkv/decay",)),
    "hex": (hex_cache, ("hex/walk", "hex/compress")),
    "hex_cache": (hex_modes, ("hex/cache",)),
    "kcvt": (kcvt, ("hex/kcvt",)),
} | {name: (scorer(name), (f"scorers/{name}",)) for name in RANKED}
"""For each box what it says, and the pages that it stands on."""


def boxes() -> dict[str, str]:
    """Return the boxes by the names of the files that the pages include."""
    return {f"works_{name}": box(told(), pages[0]) for name, (told, pages) in BOXES.items()}


def box(text: str, page: str) -> str:
    """Return a box with a text, and the link to the place in the results."""
    place = SECTIONS[page.partition("/")[0]]
    return (
        f'!!! question "Does it work here?"\n\n    {text} [The run](../results.md#{place}) is of '
        f"the shipped model of words: {described(run().figures)}.\n"
    )


def described(figures: Figures) -> str:
    """Return how large a run and its model are."""
    documents, tests = len(figures["documents"]["lengths"]), figures["tests"]["count"]
    return (
        f"{figures['model']['parameters'] / 1e6:.1f} million parameters, trained mostly to look "
        f"facts up; {hidden(figures)} facts in {documents} documents; remedied unless it is said; "
        f"{tests} tests, corrected together"
    )


def listed(names: list[str]) -> str:
    """Return names as a phrase."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def charts() -> dict[str, str]:
    """Draw the report's charts, and return each below its conclusion."""
    try:
        from optimized.study import chart
    except ImportError as reason:
        return {name: f"**{one[3]()}**\n\nNot drawn: {reason}.\n" for name, one in CHARTS.items()}
    said = {}
    for name, (model, figure, chosen, conclusion) in CHARTS.items():
        one = run(model)
        rows = [row for row in one.figures["rows"] if row["refused"] is None and chosen(row)]
        needles = figure == "needle_accuracy"
        svg = chart.quality_against_bytes(
            chart.series(rows, figure),
            "facts found" if needles else "bits per byte above the full cache",
            one.facts("full") if needles else 0.0,
            needles,
        )
        if svg is None:
            raise ValueError(f"no row of docs/shipped/{model} is in chart {name}")
        (FOLDER / f"{name}.svg").write_text(svg)
        text = conclusion()
        said[name] = f"**{text}**\n\n![{text.replace('`', '')}](figures/{name}.svg){{ .figure }}\n"
    return said


def every(_: Figures) -> bool:
    """Return whether a row is in the charts of every system."""
    return True


def pairs_of(refinement: str) -> Callable[[Figures], bool]:
    """Return whether a row is a system of a refinement, or one that it refines."""

    def chosen(row: Figures) -> bool:
        bases = {
            system.removesuffix(f"+{refinement}")
            for system, _ in run().rows
            if system.endswith(f"+{refinement}")
        }
        return row["store"] is None and row["system"].removesuffix(f"+{refinement}") in bases

    return chosen


def stores(row: Figures) -> bool:
    """Return whether a row stores all entries."""
    return row["store"] is not None


def within(one: Run, most: float) -> Iterator[tuple[str, float, float]]:
    """Yield system, facts and bits of each row that stores at most some percent of the bytes."""
    for (system, _), row in one.rows.items():
        if row["refused"] is None and row["stored_percent"] <= most:
            yield system, row["needle_accuracy"], row["bits_change"]


def conclude_facts(model: str) -> Callable[[], str]:
    """Return a function that concludes which systems find facts in a tenth of the bytes."""

    def told() -> str:
        one = run(model)
        found = {name: one.facts(name, 0.9) for name in ("kvzip", "fastkvzip")}
        others = [
            (facts, name)
            for name, facts, _ in within(one, 10.5)
            if name.partition("+")[0] not in found
        ]
        best, name = max(others)
        return given(
            f"In a tenth of the bytes KVzip finds {percent(found['kvzip'])} and FastKVzip "
            f"{percent(found['fastkvzip'])} of the facts, and the best of the others "
            f"(`{name}`) {percent(best)}; with HubKV, KVzip's "
            f"{percent(one.facts('kvzip', 0.95))} in a twentieth become "
            f"{percent(one.facts('kvzip+hubkv', 0.95))}.",
            loss=one.facts("kvzip+hubkv", 0.95) < one.facts("kvzip", 0.95),
        )

    return told


def conclude_text(model: str) -> Callable[[], str]:
    """Return a function that concludes what text costs in a tenth of the bytes."""

    def told() -> str:
        one = run(model)
        bits, name = min((bits, name) for name, _, bits in within(one, 10.5))
        return (
            f"In a tenth of the bytes `{name}` predicts text best, {bits:.3f} bits per byte above "
            f"the full cache, and a random choice {one.bits('random', 0.9)} above. KNorm is worse "
            f"than a random choice by {one.change(CHANCE, 'knorm', 0.9, 'text')}."
        )

    return told


def conclude_hubkv() -> str:
    """Conclude what HubKV does to facts."""
    one = run()
    losses = [
        f"{points(one.facts(base, 0.95), one.facts(f'{base}+hubkv', 0.95))} over {RANKED[base]}"
        for base in ("kvzip", "fastkvzip")
        if one.sign(HUBKV, f"{base}+hubkv", 0.95, "facts") == "-"
    ]
    gained = [key for key in one.verdicts if key[0] == HUBKV and one.sign(*key, "facts") == "+"]
    return given(
        "In no comparison does HubKV find significantly more facts. At 90 % removed the difference "
        f"from KVzip is {one.change(HUBKV, 'kvzip+hubkv', 0.9)}; at 95 % HubKV loses "
        f"{listed(losses)}.",
        no_gain=not gained,
        two_losses=len(losses) == 2,
    )


def conclude_graphkv() -> str:
    """Conclude where GraphKV finds more facts."""
    one = run()
    rows = {(row["base"], row["ratio"]): row for row in read("words", "facts")["graph"]}
    knorm = rows["knorm", 0.5]
    base, ours, control = (percent(share, 1) for share in rows["cake", 0.75]["needles"])
    few, more, other = map(percent, knorm["needles"])
    gained = {
        key[2] for key in one.verdicts if key[0] == GRAPHKV and one.sign(*key, "facts") == "+"
    }
    return given(
        "With five corrections of ours GraphKV finds significantly more facts over some scorers in "
        f"half or a quarter of the bytes, and over none in a tenth or less. CAKE rises from {base} "
        f"to {ours} in a quarter, and to {control} with keys of other tokens; KNorm from {few} to "
        f"{more} in half, and to {other} with such keys: the graph's own share there is "
        f"{own_share(knorm)}. As printed, over SnapKV in half of the bytes: "
        f"{run(reading='letter').change(GRAPHKV, 'snapkv+graphkv', 0.5)}.",
        ratios=gained == {0.5, 0.75},
    )


def conclude_stores(model: str) -> Callable[[], str]:
    """Return a function that concludes what codes cost in text."""

    def told() -> str:
        one = run(model)
        worse = [
            f"`{system}`"
            for claim, system, ratio in one.verdicts
            if claim == STORES and one.sign(claim, system, ratio, "text") == "-"
        ]
        return (
            f"Text is significantly worse with {listed(worse)}; with HEX-4 by "
            f"{one.change(STORES, 'hex-4', None, 'text')} in {one.stored('hex-4')} of the bytes, "
            f"and with KIVI-4 by {one.change(STORES, 'kivi-4', None, 'text')} in "
            f"{one.stored('kivi-4')}."
        )

    return told


CHARTS: dict[str, tuple[str, str, Callable[[Figures], bool], Callable[[], str]]] = {
    "words_chart_facts": ("words", "needle_accuracy", every, conclude_facts("words")),
    "words_chart_text": ("words", "bits_change", every, conclude_text("words")),
    "words_chart_hubkv": ("words", "needle_accuracy", pairs_of("hubkv"), conclude_hubkv),
    "words_chart_graphkv": ("words", "needle_accuracy", pairs_of("graphkv"), conclude_graphkv),
    "words_chart_quantised": ("words", "bits_change", stores, conclude_stores("words")),
    "bytes_chart_facts": ("bytes", "needle_accuracy", every, conclude_facts("bytes")),
    "bytes_chart_text": ("bytes", "bits_change", every, conclude_text("bytes")),
}
"""For each chart: model, figure, the rows that it shows, and its conclusion."""


def texts() -> dict[str, Any]:
    """Return the boxes and the charts by the names of the files that the docs include."""
    return boxes() | charts() | {"findings": findings()}


def findings() -> str:
    """Return the conclusions of the charts as a list for each model."""
    said = {
        model: f"The model of {model} ({described(run(model).figures)}):\n\n"
        for model in ("words", "bytes")
    }
    for model, _, _, conclusion in CHARTS.values():
        said[model] += f"- {conclusion()}\n"
    return "\n".join(said.values())
