"""Tools of the documentation's figures: colours, canvases, and the examples of a page."""

import doctest
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
FOLDER = DOCS / "figures"
STRONG, WEAK = "#00897b", "#e07b39"
FIGURES: dict[str, tuple[tuple[float, float], str | None, Callable[..., Any]]] = {}

mpl.use("svg")
plt.style.use(DOCS.parent / "optimized/study/pictures/figure.mplstyle")
INK: str = mpl.rcParams["text.color"]


def figure(
    width: float = 7.2, height: float = 2.6, page: str | None = None
) -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that registers a function that draws one figure of the same name.

    The function takes the axes. With a `page` it also takes the names that the page's examples
    define, and returns the alternative text of the picture, or that and a caption.
    """

    def register(draw: Callable[..., Any]) -> None:
        FIGURES[draw.__name__] = ((width, height), page, draw)

    return register


def draw_figures(names: Collection[str] = ()) -> None:
    """Write the named figures, or all; for a page's figure also write the line that includes it."""
    chosen = {name: FIGURES[name] for name in names or FIGURES}
    found = {page: examples(DOCS / page) for _, page, _ in chosen.values() if page}
    for name, (size, page, draw) in chosen.items():
        canvas, axes = plt.subplots(figsize=size, layout="constrained")
        text = draw(axes, found[page]) if page else draw(axes)
        canvas.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        plt.close(canvas)
        if page:
            alternative, caption = (text, "") if isinstance(text, str) else text
            up = "../" * page.count("/")
            line = f"![{alternative}]({up}figures/{name}.svg){{ .figure }}\n"
            if caption:
                caption = f"<figcaption markdown>{caption}</figcaption>\n"
                line = f"<figure markdown>\n{line}{caption}</figure>\n"
            (FOLDER / f"{name}.txt").write_text(line)


def svg_of(canvas: Figure) -> str:
    """Return a canvas as SVG that is the same at every run, and close it."""
    out = BytesIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, dpi=100)
    plt.close(canvas)
    return "\n".join(line.rstrip() for line in out.getvalue().decode().splitlines()) + "\n"


def examples(page: Path) -> SimpleNamespace:
    """Run the examples of a page, and return the names that they define."""
    names: dict[str, Any] = {}
    with redirect_stdout(None):
        for example in doctest.DocTestParser().get_examples(page.read_text()):
            exec(compile(example.source, str(page), "exec"), names)
    return SimpleNamespace(**names)
