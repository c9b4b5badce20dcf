"""The interactive pages show what the reference computes, and say what is true."""

import functools
import http.server
import json
import re
import shutil
import sys
import threading
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest
import torch

import reference as kv
from spec_tests.index import ROOT

DOCS = ROOT / "docs"
PAPERS = ("hubkv", "graphkv", "hex")
SET = re.compile(r'data-set="([^"]+)"')
BELOW = "/below/here"
SPAN = 8
"""Tokens of HEX's walk that are compressed, and channels of its two heads together."""


@pytest.fixture(scope="module")
def scripts():
    """The scripts of the docs: the one that writes the numbers, and the one that runs a page."""
    pytest.importorskip("matplotlib", reason="needs the docs extra")
    sys.path.insert(0, str(DOCS))
    try:
        numbers, drawing = map(import_module, ("walk_numbers", "drawing"))
    finally:
        sys.path.remove(str(DOCS))
    return SimpleNamespace(numbers=numbers, examples=drawing.examples)


@pytest.fixture(scope="module")
def walks(scripts):
    """The names that the examples of each walk define."""
    return {paper: scripts.examples(DOCS / paper / "walk.md") for paper in PAPERS}


# What the reference says of the settings of a page


def hubkv(walk, gamma=0.5, radius=2, ratio=0.75):
    """Scores, and what is kept and read, at some settings of HubKV."""
    refined = kv.hubkv_refine(walk.scores, ratio, walk.protected, radius=radius, gamma=gamma)
    kept, plain = (
        kv.retain(scores, walk.protected, ratio=ratio, scope="layer")
        for scores in (refined, walk.scores)
    )
    masks = (torch.ones_like(kept), plain, kept)
    return SimpleNamespace(
        before=walk.scores * ~walk.protected,
        after=refined * ~walk.protected,
        kept=kept,
        plain=plain,
        answers=[read(walk, mask, causal=False) for mask in masks],
        bytes=kv.stored_bytes(kv.evict(walk.keys, walk.values, kept)),
    )


def graphkv(walk, count=2, rounds=1, strength=1.0, keep=5, spare_sources=False):
    """Scores, and what is kept and read, at some settings of GraphKV."""
    how: dict[str, Any] = dict(rounds=rounds, strength=strength, spare_sources=spare_sources)
    x = walk.scores, walk.keys, keep, count, walk.protected
    refined = kv.graphkv_refine(*x, **how)
    layer, spared = walk.scores.mean(0), walk.protected[0]
    sources = kv.source_tokens(layer, kv.source_count(keep), spared)
    edges = kv.edges(kv.concatenate_heads(walk.keys), sources)
    near = kv.neighbours(edges, sources, count, spared, spare_sources).any(0)
    near &= rounds > 0
    near[sources] = True
    kept = kv.retain(refined, walk.protected, keep=keep)
    plain = kv.retain(layer, spared, keep=keep).expand(2, -1)
    return SimpleNamespace(
        before=layer[None],
        after=refined[:1] * near,
        kept=kept[:1],
        plain=plain[:1],
        answers=[read(walk, mask) for mask in (torch.ones_like(kept), plain, kept)],
        bytes=kv.stored_bytes(kv.evict(walk.keys, walk.values, kept)),
    )


def read(walk, kept, causal=True):
    """What the last query reads of the first head."""
    cache = kv.evict(walk.keys[:1], walk.values[:1], kept[:1])
    query = walk.queries[:1, 1:]
    return kv.attention(query, cache.keys, cache.values, causal=causal).flatten().tolist()


def hexed(walk: Any, bits=3, expander=1, heavy=1, recent=1):
    """Codes, bytes and errors at some settings of HEX; `expander` is the slider's position."""
    prompt = walk.queries[:, :10], walk.keys[:, :10], walk.values[:, :10]
    density = (0, *range(3, SPAN + 1))[expander] / SPAN
    config = walk.config._replace(bits=bits, density=density, heavy=heavy / SPAN, recent=recent)
    cache = kv.hex_prefill(*prompt, config)
    bare = config._replace(density=0.0, heavy=0.0, recent=0)
    (block,) = cache.blocks
    words = (block.key_words, block.value_words)
    codes = [kv.unpack_bits(part, bits, SPAN).flatten(0, 1).T for part in words]
    static = kv.expander_mask(SPAN, SPAN, density, near=not density)
    kept = kv.hex_mask(static, block.dynamic, 1)[0]
    real = kv.HexConfig(bits, density, heavy / SPAN, recent)
    return SimpleNamespace(
        codes=codes,
        kept=kept,
        whole=walk.marked(block.dynamic),
        bytes=[*kv.hex_bytes(cache)[:-1], kv.hex_bytes(cache).total, 640],
        errors=[moved(walk, one) for one in (cache, kv.hex_prefill(*prompt, bare))],
        large=100 * kv.hex_size(real, 960).total / kv.kv_bytes(960, layers=1),
    )


def moved(walk: Any, cache):
    """How far a cache moves the outputs of the last query of the prompt."""
    queries, keys, values = walk.part(0, 10)
    error = kv.attention_error(queries[:, -1:], keys, values, *kv.hex_read(cache))
    return error.flatten().tolist()


SHOWN = {"hubkv": hubkv, "graphkv": graphkv, "hex": hexed}


def settings(text: str) -> dict[str, Any]:
    """Return the settings that a page writes as `gamma=0.9`."""
    return {name: json.loads(value) for name, value in parse_qsl(text)}


def attempts(paper: str) -> list[str]:
    """Return the settings that a page says to try."""
    return SET.findall((DOCS / paper / "move.md").read_text().replace("&amp;", "&"))


def three(errors: list[list[float]]) -> list[list[str]]:
    """Return numbers as the page of HEX writes them."""
    return [[f"{x:.3f}" for x in row] for row in errors]


def test_the_numbers_are_those_of_the_walks(scripts):
    assert scripts.numbers.FILE.read_text() == scripts.numbers.text(), "run docs/walk_numbers.py"


# In a browser


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serves the interactive pages, without the theme, and their scripts below a path."""

    def do_GET(self) -> None:
        """Send a page, or a file of the docs."""
        self.path = self.path.removeprefix(BELOW)
        if not self.path.endswith("/move/"):
            return super().do_GET()
        text = (DOCS / self.path[1:-1]).with_suffix(".md").read_text()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(f'<!doctype html><link rel="icon" href="data:,">{text}'.encode())
        return None

    def log_message(self, format: str, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site():
    """The address of a site that has the three pages, below a path of its host."""
    handler = functools.partial(Pages, directory=str(DOCS))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}{BELOW}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    """Chromium, as the system has it."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = shutil.which("chromium") or pytest.skip("needs chromium")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=PAPERS)
def page(request, browser, site):
    """An interactive page, which must not write an error or ask another host."""
    wrong = []
    tab = browser.new_page()
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(error))
    tab.on("request", lambda asked: asked.url.startswith(site) or wrong.append(asked.url))
    tab.paper = request.param
    tab.goto(f"{site}/{tab.paper}/move/")
    tab.wait_for_selector("#move.moving")
    yield tab
    tab.close()
    assert not wrong


def shows(page, at) -> None:
    """Assert that a page shows what the reference computes."""
    (hex_shows if page.paper == "hex" else tokens_show)(page, at)


TOKENS = """tokens => tokens.map(token => {
    const share = (name) => token.querySelector("." + name).style.getPropertyValue("--share")
    const is = (name) => token.classList.contains(name)
    return [is("kept"), is("plain"), Number(share("before")), Number(share("after"))]
})"""
CHART = 0.5
"""The score at the top of the chart."""


def tokens_show(page, at) -> None:
    """Assert that columns of tokens have the scores and marks of the reference."""
    rows = page.locator("fieldset.move-tokens").all()
    assert len(rows) == len(at.before)
    for row, *expected in zip(rows, at.kept, at.plain, at.before, at.after, strict=True):
        found = zip(*row.locator(".move-token").evaluate_all(TOKENS), strict=True)
        kept, plain, *heights = map(list, found)
        assert [kept, plain] == [mask.tolist() for mask in expected[:2]]
        scores = torch.tensor(heights) * CHART
        torch.testing.assert_close(scores, torch.stack(expected[2:]))
    assert numbers(page, 0) == [[f"{x:.2f}" for x in answer] for answer in at.answers]
    assert f"{at.bytes} bytes with their positions, of " in page.locator(".move-said").inner_text()


CELLS = """tables => tables.map(table => [...table.tBodies[0].rows].map(row =>
    [...row.querySelectorAll("td")].map(cell => cell.textContent)))"""


def numbers(page, table: int) -> list[list[str]]:
    """Return the numbers of a table with bars, row by row."""
    return page.locator(".move-table").evaluate_all(CELLS)[table]


def hex_shows(page, at) -> None:
    """Assert that the entries of the cache, its bytes and errors are those of the reference."""
    tables = page.locator(".move-entries").evaluate_all(CELLS)
    for table, codes in zip(tables, at.codes, strict=True):
        cells = [row[:SPAN] for row in table[:SPAN]]
        shown = [["kept" if "kept" in text else int(text) for text in row] for row in cells]
        pairs = zip(codes.tolist(), at.kept.tolist(), strict=True)
        expected = [
            ["kept" if kept else code for code, kept in zip(*pair, strict=True)] for pair in pairs
        ]
        assert shown == expected
    assert numbers(page, 0) == three(at.errors)
    assert numbers(page, 1) == [[str(x)] for x in at.bytes]
    said = page.locator(".move-said").inner_text()
    assert f"take {at.large:.0f} %" in said
    assert all(f"“{word}”" in said for word in at.whole)


SLIDERS = {
    "hubkv": ("Discount γ", 8, dict(gamma=0.9)),
    "graphkv": ("Rounds T", 2, dict(rounds=3)),
    "hex": ("Bits b of a code", 3, dict(bits=6)),
}
"""A slider's label, how often the arrow key is pressed on it, and the settings that follow."""


def test_a_page_shows_what_the_reference_computes(page, walks):
    show, walk = SHOWN[page.paper], walks[page.paper]
    shows(page, show(walk))
    label, times, reached = SLIDERS[page.paper]
    page.get_by_label(label, exact=True).focus()
    for _ in range(times):
        page.keyboard.press("ArrowRight")
    shows(page, show(walk, **reached))
    for text, button in zip(attempts(page.paper), page.locator(".move-try").all(), strict=True):
        button.click()
        shows(page, show(walk, **settings(text)))
    page.get_by_role("button", name="As in the walk").click()
    shows(page, show(walk))


def test_tokens_are_reached_with_the_keyboard(page):
    start = page.locator(".move-detail").inner_text()
    page.locator('input[type="radio"]:checked').focus()
    page.keyboard.press("ArrowRight")
    then = page.locator(".move-detail").inner_text()
    assert then != start
    page.keyboard.press("ArrowLeft")
    assert page.locator(".move-detail").inner_text() == start
