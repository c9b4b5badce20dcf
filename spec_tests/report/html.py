"""The report as one self-contained HTML page."""

import re
from html import escape
from typing import Any

from spec_tests.report.fault_diagnosis import LEVELS
from spec_tests.report.report_data import (
    lines_by_paper,
    lines_on_misspelt_names,
    lines_on_tests_not_run,
    verdicts,
)
from spec_tests.report.terminal import count_outcomes, follows_from_clause
from spec_tests.report.tex import as_text

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f23; --paper: #fff; --faint: #57606a; --line: #d0d7de;
  --box: #f6f8fa; --bad: #b42318; --good: #116329; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --faint: #9198a1; --line: #3d444d; --box: #161b22;
    --bad: #ff8d80; --good: #5dd879; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 56rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1.1rem; }
h4 { font-size: 1rem; margin: 1rem 0 .25rem; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: 0 1rem 1rem;
  margin: 1rem 0; }
pre { background: var(--box); border-radius: .375rem; padding: .75rem; overflow-x: auto;
  font-size: .875rem; margin: .5rem 0; }
code, pre { font-family: ui-monospace, monospace; }
pre.answer { white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: normal; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1rem; }
@media (max-width: 40rem) { .pair { grid-template-columns: 1fr; } }
.fails { color: var(--bad); } .passes { color: var(--good); } .faint { color: var(--faint); }
p { margin: .5rem 0; } .equation { font-family: math, serif; font-size: 1.1rem; }
ul { margin: .25rem 0; padding-left: 1.25rem; }
summary { cursor: pointer; }
:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
a { color: inherit; }
"""


def page(data: dict[str, Any]) -> str:
    """Return the report as HTML."""
    suite = f"{data['suite']['name']} {data['suite']['version']}"
    names = ", ".join(module["module"] for module in data["modules"])
    with_what = f"Python {data['python']}, PyTorch {data['torch']}, up to the level {data['level']}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(names)} by {escape(suite)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>Conformance to {escape(suite)}</h1>\n"
        f'<p class="faint">{escape(with_what)}.</p>\n'
        f"{''.join(map(module_section, data['modules'], [data['level']] * len(data['modules'])))}"
        "</main>\n</body>\n</html>\n"
    )


def module_section(data: dict[str, Any], level: str) -> str:
    """Return the section of one module: a table of verdicts, then a card for each function."""
    tested = [card for card in data["functions"] if card["verdict"] != "untested"]
    asked = LEVELS[: LEVELS.index(level) + 1]
    head = "".join(f'<th scope="col">{part}</th>' for part in ("function", *asked, "equations"))
    lines = [
        *lines_by_paper(data["equations"]),
        *lines_on_tests_not_run(data),
        *lines_on_misspelt_names(data["misspelt"]),
    ]
    lacks = ""
    if data["unasked"]:
        names = escape(", ".join(data["unasked"]))
        lacks = f"<p>Tested only with <code>--ours</code>: {names}.</p>\n"
    if data["lacks"]:
        lacks += f"<p>It lacks {len(data['lacks'])} functions of the specification.</p>\n"
    elsewhere = "".join(failure_section(part, 0) for part in data["elsewhere"])
    mended = "".join(
        f"<li>{escape(part['test'])}: passes, though expected to fail "
        f"({escape(part['reason'])})</li>\n"
        for part in data["mended"]
    )
    return (
        f"<section>\n<h2>{escape(data['module'])}</h2>\n"
        f'<div class="wide" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        f"{''.join(table_row(card, level) for card in tested)}</tbody>\n</table></div>\n"
        f"{''.join(f'<p>{escape(line)}</p>{chr(10)}' for line in lines)}"
        f"<p>{escape(count_outcomes(data['tests']))}.</p>\n"
        f"{lacks}{f'<ul>{mended}</ul>' if mended else ''}"
        f"{''.join(function_article(card) for card in tested)}{elsewhere}</section>\n"
    )


def table_row(card: dict[str, Any], level: str) -> str:
    """Return a function's row of the table: its verdict at each level."""
    cells = "".join(f'<td class="{mark}">{mark}</td>' for mark in verdicts(card, level).values())
    ids = escape(", ".join(equation["id"] for equation in card["equations"]))
    name = escape(card["function"])
    return f'<tr><th scope="row"><a href="#{name}">{name}</a></th>{cells}<td>{ids}</td></tr>\n'


def function_article(card: dict[str, Any]) -> str:
    """Return the card of a function."""
    name = escape(card["function"])
    ids = "".join(
        f"<li>{escape(part['id'])}: {escape(part['title'])} "
        f'<span class="faint">({escape(part["where"])})</span></li>\n'
        for part in card["equations"]
    )
    printed = "".join(
        f'<p class="equation">{escape(as_text(tex))}</p>\n' for tex in card["printed"]
    )
    if card["failures"]:
        words = f"fails {card['failed']} of {card['failed'] + card['passed']} tests"
    else:
        words = f"passes {card['passed']} tests{' of more' * (card['verdict'] != 'passes')}"
    return (
        f'<article id="{name}">\n<h3><code>{name}</code> '
        f'<span class="{card["verdict"]}">{words}</span></h3>\n'
        f"<ul>{ids}</ul>\n{printed}"
        f"{''.join(failure_section(part, at) for at, part in enumerate(card['failures'], 1))}"
        "</article>\n"
    )


def failure_section(data: dict[str, Any], number: int) -> str:
    """Return one failure: the minimal example, the likely cause, other examples of that cause."""
    first, *others = data["claims"]
    if data["follows"]:
        return f"<p>It {escape(follows_from_clause(data))}.</p>\n{folded_claims(data['claims'])}"
    heading = data["heading"][:1].upper() + data["heading"][1:]
    count = f"{number}. " if number else ""
    likely = "".join(f"<li>{escape(cause)}</li>" for cause in data["causes"])
    return (
        f"<section>\n<h4>{count}{escape(heading)} "
        f'<span class="faint">(level: {data["level"]})</span>'
        f"</h4>\n{claim_html(first)}"
        f"{f'<p>Likely cause:</p><ul>{likely}</ul>{chr(10)}' if likely else ''}"
        f"{folded_claims(others)}</section>\n"
    )


def folded_claims(others: list[dict[str, Any]]) -> str:
    """Return further examples of the same cause, folded."""
    if not others:
        return ""
    one = len(others) == 1
    count = "1 more failure" if one else f"{len(others)} more failures"
    return f"<details><summary>{count}</summary>\n{''.join(map(claim_html, others))}</details>\n"


def claim_html(data: dict[str, Any]) -> str:
    """Return a failing claim: its sentence, the program, the expected and the actual result."""
    sentence = code_in_backticks(data["claim"][:1].upper() + data["claim"][1:])
    where = escape("; ".join(f"{part['id']}, {part['where']}" for part in data["equations"]))
    parts = [f'<p>{sentence}. <span class="faint">{where}</span></p>\n']
    if data["expected_to_fail"] is not None:
        parts.append(f"<p>Expected to fail: {escape(data['expected_to_fail'])}</p>\n")
    if data["snippet"]:
        parts.append(f'<pre tabindex="0"><code>{escape(data["snippet"])}</code></pre>\n')
    if data["expected"]:
        path = f" <code>{escape(data['where'])}</code>" if data["where"] else ""
        parts.append(
            f'<div class="pair"><div class="passes">Expected{path}'
            f'<pre class="answer">{escape(data["expected"])}</pre></div>'
            f'<div class="fails">Got{path}<pre class="answer">{escape(data["got"])}</pre></div>'
            "</div>\n"
        )
    else:
        parts.append(f'<pre class="answer">{escape(data["message"])}</pre>\n')
    return "".join(parts)


def code_in_backticks(sentence: str) -> str:
    """Return a sentence as HTML, with names between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(sentence))
