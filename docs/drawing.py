"""Tools of the documentation's figures: colours, canvases, kinds of charts, a page's examples.

A colour has one meaning in all pictures of a module, which says it at its top.
"""

import doctest
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

DOCS = Path(__file__).parent
FOLDER = DOCS / "figures"
HUBKV, GRAPHKV, HEX = "hubkv/walk.md", "graphkv/walk.md", "hex/walk.md"
STRONG, WEAK = "#00897b", "#e07b39"
BLUE, PINK = HEADS = ("#4a7fd4", "#b45fae")
PALE = 0.35
"""Opacity of what stands behind."""
NARROW = 5.6  # inches, so that letters stay legible on a phone
TAG = re.compile(r"<[^>]+>")
DECIMAL = re.compile(r"-?\d+\.\d+")
CHANGES = re.compile(rf"{DECIMAL.pattern}|\b[pm][0-9a-f]{{10}}\b")
"""What may differ between processors: fractions, and the ids that are hashes of these."""
UNSEEN = 0.1
"""A difference of coordinates, in points, that another processor makes and nobody sees."""
FIGURES: dict[str, tuple[tuple[float, float], str | None, Callable[..., Any]]] = {}
Told = tuple[str, str]
"""The alternative text of a picture, and its caption."""

mpl.use("svg")
plt.style.use(DOCS.parent / "optimized/study/pictures/figure.mplstyle")
INK: str = mpl.rcParams["text.color"]
COLOURS = (STRONG, WEAK, INK)
KEPT = {"kept": STRONG, "protected": INK, "evicted": "none"}


def figure(
    height: float = 2.6, page: str | None = None, width: float | None = None
) -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that registers a function that draws one figure of the same name.

    The function takes the axes. With a `page` it also takes the names that the page's examples
    define, and returns the alternative text of the picture, and its caption.
    """
    size = width or (NARROW if page else 7.2), height

    def register(draw: Callable[..., Any]) -> None:
        FIGURES[draw.__name__] = (size, page, draw)

    return register


def draw_figures(names: Collection[str] = ()) -> dict[str, str]:
    """Write the named figures, or all, and return the lines that show those of pages."""
    chosen = {name: FIGURES[name] for name in names or FIGURES}
    found = {page: examples(DOCS / page) for _, page, _ in chosen.values() if page}
    shown = {}
    for name, (size, page, draw) in chosen.items():
        canvas, axes = plt.subplots(figsize=size, layout="constrained")
        told = draw(axes, found[page]) if page else draw(axes)
        write(FOLDER / f"{name}.svg", svg_of(canvas))
        if page:
            alternative, caption = told
            shown[name] = f"![{alternative}](figures/{name}.svg)\n\n*{caption}*"
    return shown


def write(file: Path, text: str) -> None:
    """Write a committed file, unless its numbers alone differ, and by less than can be seen."""
    if not file.exists() or not alike(file.read_text(), text):
        file.write_text(text)


def alike(old: str, new: str) -> bool:
    """Whether two texts differ in decimal fractions at most, none by more than `UNSEEN`."""
    same = CHANGES.sub("", old) == CHANGES.sub("", new)
    both = zip(DECIMAL.findall(old), DECIMAL.findall(new), strict=False)
    return same and all(abs(float(one) - float(other)) < UNSEEN for one, other in both)


def svg_of(canvas: Figure) -> str:
    """Return a canvas as SVG that is the same at every run, and close it."""
    out = BytesIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, dpi=100)
    plt.close(canvas)
    return compact(out.getvalue().decode())


def compact(svg: str) -> str:
    """Return SVG without indentation and metadata, its coordinates with two decimals."""
    text = "\n".join(line.strip() for line in svg.splitlines()) + "\n"
    text = re.sub("<metadata>.*?</metadata>\n", "", text, flags=re.DOTALL)
    two = re.compile(r"-?\d+\.\d{3,}")
    return TAG.sub(lambda tag: two.sub(lambda number: f"{float(number[0]):.2f}", tag[0]), text)


def examples(page: Path) -> SimpleNamespace:
    """Run the examples of a page, and return the names that they define."""
    names: dict[str, Any] = {}
    with redirect_stdout(None):
        for example in doctest.DocTestParser().get_examples(page.read_text()):
            exec(compile(example.source, str(page), "exec"), names)
    return SimpleNamespace(**names)


def panels(axes: Axes, columns: int, *, shared: bool = True) -> Sequence[Axes]:
    """Replace the axes by several beside each other, of the same scale if shared."""
    canvas = axes.figure
    axes.remove()
    return canvas.subplots(1, columns, sharex=shared, sharey=shared)


def above(axes: Axes, columns: int) -> None:
    """Put the legend above the axes."""
    axes.legend(ncols=columns, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)


def legend(meanings: Mapping[str, str]) -> None:
    """Write what each colour means above the picture."""
    patches = [Patch(facecolor=face, edgecolor=INK, label=text) for text, face in meanings.items()]
    plt.gcf().legend(handles=patches, ncols=len(patches), loc="outside upper right")


def under(axes: Axes, words: Sequence[str]) -> None:
    """Write the words under the axes."""
    axes.set_xticks(range(len(words)), words, rotation=50, ha="right", rotation_mode="anchor")


def two_levels(axes: Axes) -> None:
    """Name the heights 1 and 0 tokens and channels, without a frame."""
    axes.set_yticks((0, 1), ("channels", "tokens"))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def bars(
    axes: Axes, words: Sequence[str], rows: Mapping[str, torch.Tensor], what: str = ""
) -> None:
    """Draw a bar for each word and row, rows side by side."""
    width = 0.8 / len(rows)
    at = torch.arange(len(words))
    for place, (label, row) in enumerate(rows.items()):
        shift = (place - (len(rows) - 1) / 2) * width
        axes.bar(at + shift, row, width, color=COLOURS[place], label=label)
    axes.set(xlim=(-0.7, len(words) - 0.3), ylabel=what)
    under(axes, words)
    above(axes, len(rows))


def changed(
    axes: Axes, words: Sequence[str], before: torch.Tensor, after: torch.Tensor, said: str
) -> None:
    """Draw scores before a step, and the scores after it in front of them."""
    axes.bar(range(len(words)), before, 0.8, color=INK, alpha=PALE, label="score")
    at, lower = torch.arange(len(words)), after < before
    axes.bar(at[~lower], after[~lower], 0.45, color=STRONG, label=said)
    axes.bar(at[lower], after[lower], 0.45, color=WEAK, label=f"{said}: lower")
    axes.set(ylabel="score")
    under(axes, words)
    above(axes, 3)


def stacked(
    axes: Axes,
    parts: Mapping[str, Sequence[int] | Sequence[float]],
    names: Sequence[str],
    colours: Sequence[str] = COLOURS,
    *,
    numbered: bool = False,
    **how: Any,
) -> None:
    """Draw a horizontal bar for each name, of one piece for each part."""
    left = [0.0] * len(names)
    for (part, sizes), colour in zip(parts.items(), colours, strict=False):
        shown = axes.barh(names, sizes, left=left, color=colour, label=part, **how)
        if numbered:
            said = [str(size) if size else "" for size in sizes]
            axes.bar_label(shown, said, label_type="center", color="white", weight="bold")
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.invert_yaxis()


def labelled(
    axes: Axes,
    names: Sequence[str],
    rows: Mapping[str, Sequence[float]],
    colours: Sequence[Any] = COLOURS,
    form: str = ".2f",
) -> None:
    """Draw a horizontal bar with its number for each name and row."""
    height = 0.8 / len(rows)
    for place, (label, row) in enumerate(rows.items()):
        at = [down + height * (place - (len(rows) - 1) / 2) for down in range(len(row))]
        shown = axes.barh(at, row, 0.9 * height, color=colours[place], label=label)
        axes.bar_label(shown, [format(number, form) for number in row], padding=3, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def tiles(
    axes: Axes,
    columns: Sequence[str],
    rows: Mapping[Any, Sequence[str | None]],
    texts: Iterable[Sequence[str]] = (),
    **style: Any,
) -> None:
    """Draw a row of tiles for each label: filled in a colour, or empty; with texts in them."""
    for down, colours in enumerate(rows.values()):
        for at, colour in enumerate(colours):
            place, face = (at - 0.42, down - 0.4), colour or "none"
            tile = Rectangle(place, 0.84, 0.8, facecolor=face, edgecolor=INK, linewidth=0.6)
            axes.add_patch(tile)
    for down, row in enumerate(texts):
        for at, text in enumerate(row):
            centred(axes, text, at, down, color="white", **style)
    axes.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), list(rows))
    under(axes, columns)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def centred(axes: Axes, text: str, x: float, y: float, **style: Any) -> None:
    """Write a text around a point."""
    axes.annotate(text, (x, y), ha="center", va="center", **style)


def kept_colours(kept: torch.Tensor, protected: torch.Tensor) -> list[str | None]:
    """Return a colour for each token that is kept, and None for the others."""
    pairs = zip(kept.tolist(), protected.tolist(), strict=True)
    return [(INK if spared else STRONG) if stays else None for stays, spared in pairs]


def lines(axes: Axes, rows: Mapping[str, torch.Tensor], first: int = 0) -> None:
    """Draw a line with a colour and a legend entry for each row."""
    for colour, (label, row) in zip(COLOURS, rows.items(), strict=False):
        axes.plot(range(first, first + len(row)), row, "o-", color=colour, label=label)
    axes.set(ylim=(0, None))
    above(axes, len(rows))


def dots(axes: Axes, mask: torch.Tensor, size: float) -> None:
    """Draw the kept entries of a mask, tokens downwards."""
    tokens, channels = mask.nonzero(as_tuple=True)
    axes.scatter(channels, tokens, size, color=STRONG, linewidths=0, rasterized=True)
    axes.set(xlabel="channel", ylabel="token")
    axes.set(xlim=(-1, mask.shape[1]), ylim=(mask.shape[0], -1))


def most(words: Iterable[str], row: torch.Tensor, count: int = 3) -> str:
    """Return a phrase with the words that have the highest numbers of a row."""
    ranked = sorted(zip(row.tolist(), words, strict=True), key=lambda pair: -pair[0])
    return ", ".join(f"“{word}” {number:.2f}" for number, word in ranked[:count])


def listed(words: Iterable[str], marks: torch.Tensor) -> str:
    """Return a phrase with the marked words."""
    return ", ".join(f"“{word}”" for word, mark in zip(words, marks, strict=True) if mark)


def numbers(row: Iterable[float], form: str = ".2f") -> str:
    """Return a phrase with the numbers of a row."""
    return ", ".join(format(number, form) for number in row)
