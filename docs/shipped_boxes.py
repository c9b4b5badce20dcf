"""The boxes "Does it work here?" of the docs, and the charts of docs/results.md.

All numbers come from docs/shipped. A sentence that states a cause or a verdict names the figures
that it rests on, and the build fails where they do not hold.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from drawing import FOLDER
from one_prompt import NAMES
from shipped_tables import RUNS, SURE, Figures

from optimized import HubSettings

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
    base, ours = ({r: one.facts(name, r) for r in (0.9, 0.95)} for name in ("kvzip", "kvzip+hubkv"))
    signs = [one.sign(HUBKV, "kvzip+hubkv", r, "facts") for r in (0.5, 0.75, 0.9, 0.95)]
    return given(
        "Not in this run: up to 90 % removed HubKV makes no significant difference to KVzip, with "
        f"{percent(ours[0.9])} of the facts found instead of {percent(base[0.9])}. At 95 % it "
        f"**loses {points(base[0.95], ours[0.95])}**, from {percent(base[0.95])} to "
        f"{percent(ours[0.95])}, and the cause is [the discount](discount.md).",
        no_difference_to_90=signs[:3] == ["="] * 3,
        loss_at_95=signs[3] == "-",
        the_discount_as_cause=discount_alone_loses() and not lost("without neighbours", "0.95"),
    )


def variant(name: str, ratio: str) -> Figures:
    """Return the figures of a variant of HubKV."""
    return read("words", "facts")["ratios"][ratio][name]


def lost(name: str, ratio: str) -> bool:
    """Return whether a variant of HubKV finds significantly fewer facts than KVzip."""
    row = variant(name, ratio)["against KVzip"]
    return row["p of needles"] <= SURE and row["needles"][0] < 0


def discount_alone_loses() -> bool:
    """Return whether the discount without head weights loses facts at 95 % removed."""
    return lost("without head weights", "0.95")


def discount() -> str:
    """Return what the discount does without head weights."""
    alone, base = variant("without head weights", "0.95"), variant("KVzip", "0.95")
    return given(
        f"The discount alone, without head weights, finds {percent(alone['needles'])} of the facts "
        f"at 95 % removed, where KVzip finds {percent(base['needles'])}; up to 90 % it makes no "
        "significant difference. It discounts the neighbours of a hub, which are the rest of the "
        f"fact: of the heads that keep some of a value, {percent(alone['whole'])} keep all of it, "
        f"against {percent(base['whole'])}.",
        loss_at_95=discount_alone_loses(),
        no_loss_to_90=not any(lost("without head weights", ratio) for ratio in ("0.8", "0.9")),
    )


def head_calibration() -> str:
    """Return what head weights do without the discount."""
    found = {
        (name, ratio): percent(variant(name, ratio)["needles"])
        for name in ("KVzip", "without neighbours")
        for ratio in ("0.95", "0.97")
    }
    return given(
        "Head weights alone, without the discount, make no significant difference up to 95 % "
        f"removed: {found['without neighbours', '0.95']} of the facts, where KVzip finds "
        f"{found['KVzip', '0.95']}. At 97 % they **lose** more than half of them, with "
        f"{found['without neighbours', '0.97']} instead of {found['KVzip', '0.97']}.",
        no_loss_to_95=not any(lost("without neighbours", r) for r in ("0.8", "0.9", "0.95")),
        loss_at_97=lost("without neighbours", "0.97"),
        more_than_half=variant("without neighbours", "0.97")["needles"]
        < variant("KVzip", "0.97")["needles"] / 2,
    )


def ratio_gate() -> str:
    """Return what HubKV does where the gate lets little and much through."""
    one, power = run(), HubSettings().power
    moved = {r: one.facts("kvzip+hubkv", r) - one.facts("kvzip", r) for r in (0.5, 0.75, 0.95)}
    return given(
        f"At 50 % and 75 % removed the gate applies {percent(0.5**power)} and "
        f"{percent(0.75**power)} of the correction, and HubKV finds exactly as many facts as "
        "KVzip. "
        f"At 95 % it applies {percent(0.95**power)}, and HubKV **loses {points(0, moved[0.95])}**; "
        "the run does not vary the gate at one ratio.",
        equal_facts=moved[0.5] == moved[0.75] == 0,
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
    as_printed = {
        letter.sign(GRAPHKV, *key[1:], "facts") for key in letter.verdicts if key[0] == GRAPHKV
    }
    alone, ours = (percent(one.facts(name, 0.5)) for name in ("snapkv", "snapkv+graphkv"))
    return given(
        "With the corrections of the [errata](../errata/graphkv.md) GraphKV finds more facts over "
        f"{len(better[0.5])} of {len(bases)} scorers at 50 % removed, such as {ours} instead of "
        f"{alone} over SnapKV, and over {len(better[0.75])} at 75 % ({listed(better[0.75])}). At "
        "90 % and 95 % **no difference is seen**, and as printed it finds more facts at no ratio.",
        none_at_90_and_95=not better[0.9] and not better[0.95],
        none_as_printed=as_printed == {"="},
        none_worse=all(
            one.sign(GRAPHKV, system, ratio, "facts") != "-" for system in bases for ratio in better
        ),
        snapkv="SnapKV" in better[0.5],
    )


def decay() -> str:
    """Return how much of GraphKV's gain comes from its graph."""
    rows = {(row["base"], row["ratio"]): row for row in read("words", "facts")["graph"]}
    snapkv, knorm = rows["snapkv", 0.5], rows["knorm", 0.5]
    base, ours, control = map(percent, snapkv["needles"])
    part = (knorm["needles"][2] - knorm["needles"][0]) / (knorm["needles"][1] - knorm["needles"][0])
    return given(
        f"At 50 % removed SnapKV finds {base} of the facts, and {ours} with decay over the graph "
        f"of its keys; if the keys are assigned to other tokens, {control}. Over KNorm the decay "
        f"of any entries has {percent(part)} of the gain, and with 90 % or more removed there is "
        "**no gain** over any scorer.",
        the_graph_as_cause=snapkv["p of graph against shuffled"] <= SURE,
        no_gain_at_90=all(
            run().sign(GRAPHKV, system, ratio, "facts") != "+"
            for claim, system, ratio in run().verdicts
            if claim == GRAPHKV and ratio is not None and ratio >= 0.9
        ),
    )


def hex_cache() -> str:
    """Return what HEX-4 and HEX-3 lose against the full cache."""
    one, letter = run(), run(reading="letter")
    return given(
        f"HEX-4 finds {percent(one.facts('hex-4'), 1)} of the facts in {one.stored('hex-4')} of "
        "the "
        f"bytes and HEX-3 {percent(one.facts('hex-3'), 1)} in {one.stored('hex-3')}, no "
        "significant "
        f"loss from the full cache's {percent(one.facts('full'), 1)}. HEX-3 **predicts text "
        "worse**, "
        f"by {one.bits('hex-3')} bits per byte; HEX-4's {one.bits('hex-4')} is not significant "
        f"(as printed {letter.bits('hex-4')}, which is), and KIVI-4 loses {one.bits('kivi-4')} in "
        f"{one.stored('kivi-4')} of the bytes.",
        facts=all(one.sign(STORES, name, None, "facts") == "=" for name in ("hex-3", "hex-4")),
        text=one.sign(STORES, "hex-3", None, "text") == "-",
        text_of_hex_4=one.sign(STORES, "hex-4", None, "text") == "=",
        text_of_hex_4_as_printed=letter.sign(STORES, "hex-4", None, "text") == "-",
        text_of_kivi_4=one.sign(STORES, "kivi-4", None, "text") == "=",
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
        "KCVT-3, which has no expander and no heavy hitters, finds "
        f"{percent(one.facts('kcvt-3'), 1)} of the facts in {one.stored('kcvt-3')} of the bytes, "
        "no "
        f"significant loss from {percent(one.facts('full'), 1)}. It **predicts text worse** by "
        f"{one.bits('kcvt-3')} bits per byte, and HEX-3 by {one.bits('hex-3')} in "
        f"{one.stored('hex-3')} of the bytes.",
        facts=one.sign(STORES, "kcvt-3", None, "facts") == "=",
        text=one.sign(STORES, "kcvt-3", None, "text") == "-",
        text_of_hex_3=one.sign(STORES, "hex-3", None, "text") == "-",
    )


def ablation(row: str) -> tuple[float, str]:
    """Return how far attention moves, and the bytes, of a row of HEX's Table 4."""
    shown = {one["name"]: one["numbers"] for one in run().figures["pictures"]}
    found = shown["hex_ablations"]["rows"][row]
    return found["deviation"], f"{found['percent']:.0f} %"


def part_of_hex(name: str, without: str) -> str:
    """Return what HEX loses without one of its parts."""
    (full, nbytes), (less, fewer) = ablation("3-full"), ablation(f"3-{without}")
    full_4, less_4 = ablation("4-full")[0], ablation(f"4-{without}")[0]
    tuned, tuned_bytes = ablation(f"4-{without}-EO")
    closer = "**closer than HEX-4**" if tuned < full_4 else "farther"
    return given(
        f"A little: without {name}, attention moves by {percent(less, 1)} of its length instead of "
        f"{percent(full, 1)} at 3 bits, and by {percent(less_4, 1)} instead of "
        f"{percent(full_4, 1)} "
        f"at 4 bits, in {fewer} of the bytes instead of {nbytes} at 3 bits. Given about as many "
        f"bytes as HEX-4 ({tuned_bytes} and {ablation('4-full')[1]}), HEX-4 without {name} is "
        f"{closer}, with {percent(tuned, 2)} against {percent(full_4, 2)}; this is the mean of "
        f"{run_documents()} documents, without a test.",
        help=less > full and less_4 > full_4,
    )


def run_documents() -> int:
    """Return the number of documents of the ablations of HEX."""
    shown = {one["name"]: one["numbers"] for one in run().figures["pictures"]}
    return shown["hex_ablations"]["documents"]


def scorer(system: str) -> Callable[[], str]:
    """Return a function that tells what a scorer finds, beside a random choice."""

    def told() -> str:
        one = run()
        words = {
            "+": "more than",
            "-": "**fewer than**",
            "=": "not significantly different from",
        }
        half, tenth = (
            f"{percent(one.facts(system, ratio))} of the facts, "
            f"{words[one.sign(CHANCE, system, ratio, 'facts')]} a random choice "
            f"({percent(one.facts('random', ratio))})"
            for ratio in (0.5, 0.9)
        )
        text = {
            "+": "better than",
            "-": "**worse** than",
            "=": "not significantly differently from",
        }[one.sign(CHANCE, system, 0.9, "text")]
        return (
            f"At 50 % removed {RANKED[system]} finds {half}, and at 90 % removed "
            f"{tenth}; the full cache finds {percent(one.facts('full'))}. Text is predicted {text} "
            f"over a random choice at 90 %: {one.bits(system, 0.9)} bits per byte above the full "
            f"cache, against {one.bits('random', 0.9)}."
        )

    return told


BOXES: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "hubkv": (hubkv, ("hubkv/walk", "hubkv/refine", "hubkv/compress")),
    "discount": (discount, ("hubkv/discount",)),
    "head_calibration": (head_calibration, ("hubkv/head_calibration",)),
    "ratio_gate": (ratio_gate, ("hubkv/ratio_gate",)),
    "graphkv": (graphkv, ("graphkv/walk", "graphkv/refine", "graphkv/compress")),
    "decay": (decay, ("graphkv/decay",)),
    "hex": (hex_cache, ("hex/walk", "hex/compress")),
    "hex_cache": (hex_modes, ("hex/cache",)),
    "kcvt": (kcvt, ("hex/kcvt",)),
    "heavy_hitters": (lambda: part_of_hex("heavy hitters", "expander"), ("hex/heavy_hitters",)),
    "expander": (lambda: part_of_hex("the expander", "H2O"), ("hex/expander",)),
} | {name: (scorer(name), (f"scorers/{name}",)) for name in RANKED}
"""For each box what it says, and the pages that it stands on."""


def boxes() -> dict[str, str]:
    """Return the boxes by the names of the files that the pages include."""
    return {f"works_{name}": box(told(), pages[0]) for name, (told, pages) in BOXES.items()}


def box(text: str, page: str) -> str:
    """Return a box with a text, and the link to the place in the results."""
    place = SECTIONS[page.partition("/")[0]]
    return (
        f'!!! question "Does it work here?"\n\n    {text} [The run on the shipped model of words]'
        f"(../results.md#{place}) has intervals and tests.\n"
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
        ratios = {ratio for _, ratio in one.rows if ratio is not None}
        worse = [r for r in ratios if one.sign(CHANCE, "knorm", r, "text") == "-"]
        return given(
            f"In a tenth of the bytes `{name}` predicts text best, {bits:.3f} bits per byte above "
            "the "
            f"full cache, and a random choice {one.bits('random', 0.9)} above; KNorm is "
            f"significantly worse than a random choice at {len(worse)} of {len(ratios)} ratios.",
            knorm=len(worse) > 0,
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
        "HubKV finds significantly more facts nowhere, and at 95 % removed loses "
        f"{listed(losses)}.",
        no_gain=not gained,
        two_losses=len(losses) == 2,
    )


def conclude_graphkv() -> str:
    """Conclude where GraphKV finds more facts."""
    one = run()
    gained = {
        key[2] for key in one.verdicts if key[0] == GRAPHKV and one.sign(*key, "facts") == "+"
    }
    return given(
        "GraphKV lifts scorers that find few facts in half or a quarter of the bytes, at most from "
        f"{percent(one.facts('knorm', 0.5))} to {percent(one.facts('knorm+graphkv', 0.5))} "
        "(KNorm), "
        "and none in a tenth or less.",
        ratios=gained == {0.5, 0.75},
        most_for_knorm=max(
            (one.facts(key[1], key[2]) - one.facts(key[1].removesuffix("+graphkv"), key[2]), key[1])
            for key in one.verdicts
            if key[0] == GRAPHKV
        )[1]
        == "knorm+graphkv",
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
            f"Text is significantly worse with {listed(worse)}; HEX-4 loses {one.bits('hex-4')} "
            f"bits per byte in {one.stored('hex-4')} of the bytes, and KIVI-4 "
            f"{one.bits('kivi-4')} in {one.stored('kivi-4')}."
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
    said = {"words": "The model of words:\n\n", "bytes": "The model of bytes:\n\n"}
    for model, _, _, conclusion in CHARTS.values():
        said[model] += f"- {conclusion()}\n"
    return "\n".join(said.values())
