"""The report as one self-contained HTML page: the lines of the terminal, with every input whole."""

from collections.abc import Iterable
from html import escape

from spec_tests.report.report_data import Data
from spec_tests.report.terminal import Line, card_lines, failure_lines, verdict_lines

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f23; --paper: #fff; --line: #d0d7de;
  --light: #57606a; --red: #b42318; --green: #116329; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #3d444d;
    --light: #9198a1; --red: #ff8d80; --green: #5dd879; } }
body { margin: 0 auto; padding: 1rem; max-width: 64rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; }
pre { border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; overflow-x: auto;
  font: .875rem/1.5 ui-monospace, monospace; }
.red { color: var(--red); } .green { color: var(--green); } .light { color: var(--light); }
.bold { font-weight: bold; } :focus-visible { outline: 2px solid currentColor; }
"""


def page(data: Data) -> str:
    """Return the report as HTML."""
    suite = f"{data['suite']['name']} {data['suite']['version']}"
    names = ", ".join(module["module"] for module in data["modules"])
    with_what = f"Python {data['python']}, PyTorch {data['torch']}, up to the level {data['level']}"
    sections = "".join(section(module, data["level"]) for module in data["modules"])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(names)} by {escape(suite)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>Conformance to {escape(suite)}</h1>\n<p>{escape(with_what)}.</p>\n"
        f"{sections}</main>\n</body>\n</html>\n"
    )


def section(module: Data, level: str) -> str:
    """Return the section of a module: its verdicts, then a card for each failing function."""
    cards = [card for card in module["functions"] if card["failures"]]
    blocks = [
        f"<h2>{escape(module['module'])}</h2>\n",
        block(verdict_lines(module, level, named=True, complete=False)),
        *(f"<h3>{escape(c['function'])}</h3>\n{block(card_lines(c, whole=True))}" for c in cards),
        *(block(failure_lines(1, failure, whole=True)) for failure in module["elsewhere"]),
    ]
    return f"<section>\n{''.join(blocks)}</section>\n"


def block(lines: Iterable[Line]) -> str:
    """Return coloured lines as HTML."""
    parts = [
        f'<span class="{" ".join(colour)}">{escape(text)}</span>' if colour else escape(text)
        for text, colour in lines
    ]
    return f'<pre tabindex="0">{chr(10).join(parts).strip()}</pre>\n'
