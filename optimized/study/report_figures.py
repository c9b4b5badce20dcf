"""The papers' figures on the page of the report."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape

from optimized.study.pictures import Picture
from optimized.study.pictures.drawing import INK, PAGE

# An SVG in an `img` has no access to the page's colours, but knows the light or dark scheme.
THEMED = (
    "<style>svg { --ink: #4b5563; --page: #ffffff; } "
    "@media (prefers-color-scheme: dark) { svg { --ink: #aeb7c4; --page: #14171d; } }</style>"
)


def papers(shown: Sequence[Picture]) -> Iterator[str]:
    """Yield the HTML of the papers' figures, drawn from the model."""
    if shown:
        yield "<h2>The papers' figures, drawn from this model</h2>"
    for one in shown:
        yield f"<h3>{escape(one.title)}</h3>"
        if one.svg is None:
            yield f"<p class=soft>Not drawn: {escape(one.refused or '')}</p>"
            continue
        yield figure(one.svg, one.caption, one.title)


def figure(svg: str, caption: str, title: str) -> str:
    """Return the HTML of a picture above its caption."""
    return (
        f'<figure><div class=wide><img src="{svg_data_url(svg)}" alt="{escape(title)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def svg_data_url(svg: str) -> str:
    """Return a data URL of a picture whose greys fit light and dark pages."""
    themed = (
        svg.replace(">", f">{THEMED}", 1).replace(INK, "var(--ink)").replace(PAGE, "var(--page)")
    )
    return f"data:image/svg+xml;base64,{b64encode(themed.encode()).decode()}"
