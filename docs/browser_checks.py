"""The built site in a real browser: `pytest docs/browser_checks.py` after `mkdocs build`.

Some pages of each kind are opened; `--every-page` opens all. `--site FOLDER` names the site.
"""

import functools
import json
import re
import threading
from code import InteractiveConsole
from collections.abc import Iterator
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from shutil import which
from typing import Any
from urllib.parse import parse_qsl, unquote, urldefrag, urlencode, urljoin, urlsplit

import pytest
import torch

import reference as kv
from docs.drawing import examples

sync_api = pytest.importorskip("playwright.sync_api", reason="extra `browser` is not installed")
axe_api = pytest.importorskip("axe_playwright_python.sync_playwright")

DOCS = Path(__file__).parent
WIDTHS = (1920, 1440, 1280, 420)
MENUS = 1220
"""The narrowest window in which the theme shows the menus, and nothing may scroll sideways."""
SCHEMES = {"default": "light", "slate": "dark"}
SLOW_SAMPLE = ("", "hubkv/discount", "errata")
"""Pages of the sample that axe-core looks at too, which takes three times as long as the rest."""
AXE_AT = {"light": 1280, "dark": 420}
"""The width at which axe-core looks at a page in each scheme."""
SAMPLE = [
    "",
    "glossary",
    "hubkv/walk",
    "hubkv/discount",
    "hubkv/move",
    "graphkv/refine",
    "graphkv/key_analysis",
    "hex/walk",
    "hex/kcvt",
    "scorers/pyramidkv",
    "scorers/fastkvzip",
    "quantizers/size",
    "models",
    "puzzles",
    "results",
    "small_model",
    "kinds",
    "errata",
    "laws/hubkv/discount/test_laws",
]
"""A page of each kind, and those with the widest equations, source and tables."""
QUESTIONS = {
    "how do I compress a cache": "compress/",
    "what is a sink": "scorers/streaming_llm/",
    "gamma": "hubkv/discount/",
    "quantize": "hex/kcvt/",
    "eviction": "evict/",
    "quantization": "hex/kcvt/",
    "perplexity": "command/",
    "tutorial": "hubkv/walk/",
    "GQA": "attention/",
}
"""What somebody types into the search, and the page that should come first."""
MEASURE = """menus => {
  const found = [], cut = box => box.scrollWidth - box.clientWidth
  const boxes = {equation: "div.arithmatex", block: "pre > code", table: ".md-typeset__scrollwrap"}
  for (const [kind, selector] of Object.entries(boxes))
    for (const box of document.querySelectorAll(selector)) {
      if (!box.checkVisibility() || cut(box) <= 0) continue
      const style = getComputedStyle(box)
      const scrolls = style.overflowX === "auto" && style.maskImage !== "none" && box.tabIndex === 0
      if (!scrolls || (menus && kind !== "table"))
        found.push(`${kind} cut by ${cut(box)} px: ${box.textContent.trim().slice(0, 70)}`)
    }
  for (const box of document.querySelectorAll("div.arithmatex"))
    if (box.scrollHeight > box.clientHeight)
      found.push(`equation cut below: ${box.textContent.slice(0, 70)}`)
  for (const formula of document.querySelectorAll(".arithmatex"))
    if (!formula.querySelector(".katex") || formula.querySelector(".katex-error"))
      found.push(`not typeset: ${formula.textContent}`)
  if (cut(document.documentElement) > 0) found.push("the page is wider than the window")
  for (const image of document.querySelectorAll("p > img"))
    if (!image.parentElement.nextElementSibling?.querySelector(":scope > em:first-child"))
      found.push(`no caption: ${image.src}`)
  return found
}"""
TOGETHER = """() => [...document.querySelectorAll(".doc-function, .doc-class")].flatMap(card => {
  const formula = card.querySelector("div.arithmatex")
  const code = card.querySelector(".doc-source code")
  if (!formula || !code) return []
  const box = code.getBoundingClientRect(), lines = code.textContent.trimEnd().split("\\n").length
  const end = box.top + box.height * Math.min(1, 20 / lines)
  const tall = Math.round(end - formula.getBoundingClientRect().top)
  return tall > 800 ? [`${card.querySelector("h2").textContent}: ${tall} px`] : []
})"""
"""Functions whose formula and first twenty lines of code do not fit on a screen of 900 pixels."""
TYPESET = (
    "() => [...document.querySelectorAll('.arithmatex')].every(x => x.querySelector('.katex'))"
)
NO_INDEX = {
    "config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {"text": {"boost": 1}}},
    "docs": [],
}
PAINTED = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]
RULES = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
}
"""What axe-core checks: the success criteria of WCAG 2.2 up to level AA."""
CONTRAST = {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": PAINTED}}
"""What it checks in the dark scheme: the colours, which alone differ, and sizes on a phone."""


class Quiet(SimpleHTTPRequestHandler):
    """Serve files, and keep connections and the terminal free of words."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `page_path` the pages that were asked for."""
    if "page_path" in metafunc.fixturenames:
        site = Path(str(metafunc.config.getoption("site")))
        whole = metafunc.config.getoption("every_page")
        every = sorted(str(file.parent.relative_to(site)) for file in site.rglob("index.html"))
        chosen = ["" if one == "." else one for one in every] if whole else SAMPLE
        metafunc.parametrize("page_path", chosen, ids=lambda path: path or "front")


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> Path:
    """Return the folder of the site, which must have been built."""
    folder = Path(str(request.config.getoption("site")))
    assert (folder / "index.html").exists(), f"--site {folder} has no index.html: `mkdocs build`"
    return folder.resolve()


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Yield the address at which the site is served to this machine alone."""
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[sync_api.Browser]:
    """Yield Chromium: the system's, or the one that `playwright install chromium` brings."""
    with sync_api.sync_playwright() as playwright:
        path = which("chromium") or which("chromium-browser") or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("no chromium: install Debian's, or run `playwright install chromium`")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """Yield a page that searches nothing: the index is slow to load."""
    context = browser.new_context(color_scheme="light", reduced_motion="reduce")
    context.route("**/search_index.json", lambda route: route.fulfill(json=NO_INDEX))
    yield context.new_page()
    context.close()


@pytest.fixture
def complaints(page: sync_api.Page, address: str) -> Iterator[list[str]]:
    """Yield a list to which go errors of the console and of scripts, and requests to others."""
    told: list[str] = []
    here = (address, "data:", "blob:")
    listeners = {
        "console": lambda one: one.type in ("error", "warning") and told.append(one.text),
        "pageerror": lambda error: told.append(f"script: {error}"),
        "request": lambda one: one.url.startswith(here) or told.append(f"asks: {one.url}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)  # pyright: ignore[reportCallIssue, reportArgumentType]
    yield told
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


def test_nothing_is_cut_off_and_nothing_complains(request, page, address, page_path, complaints):
    found = []
    slowly = page_path in SLOW_SAMPLE or request.config.getoption("every_page")
    page.goto(urljoin(address, f"{page_path}/" if page_path else ""))
    page.wait_for_function(TYPESET)
    page.evaluate("document.fonts.ready")
    for scheme, name in SCHEMES.items():
        page.evaluate("scheme => document.body.dataset.mdColorScheme = scheme", scheme)
        for width in WIDTHS if name == "light" else (AXE_AT[name],):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
            )
            found += [f"{name}, {width} px: {one}" for one in page.evaluate(MEASURE, width > MENUS)]
            if width == 1440:
                found += page.evaluate(TOGETHER)
            if slowly and width == AXE_AT[name]:
                told = violations(page, name, whole=page_path in SAMPLE)
                found += [f"{name}, {width} px, axe: {one}" for one in told]
    assert not found + complaints, "\n".join(["", *found, *complaints])


def violations(page: sync_api.Page, scheme: str, whole: bool) -> Iterator[str]:
    """Yield what axe-core finds wrong with a page for people who cannot see, or not use a mouse.

    Blocks of code are alike on all pages and take most of its time: it reads them if `whole`.
    """
    rules = RULES if scheme == "light" else CONTRAST
    apart = None if whole else {"exclude": [["pre"]]}
    for one in axe_api.Axe().run(page, apart, rules).response["violations"]:
        nodes = [str(node["target"]) for node in one["nodes"]]
        yield f"{one['id']} ({one['help']}), {len(nodes)} times: {', '.join(nodes[:3])}"


@pytest.fixture(scope="session")
def visitor(browser: sync_api.Browser, address: str) -> Iterator[sync_api.Page]:
    """Yield a page of somebody who searches and copies."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("paper", ["hubkv", "graphkv", "hex"])
def test_what_is_copied_from_a_walk_runs(visitor, address, paper, capsys):
    visitor.goto(urljoin(address, f"{paper}/walk/"))
    console = InteractiveConsole()
    buttons = visitor.get_by_title("Copy to clipboard").all()
    assert len(buttons) > 5
    for button in buttons:
        button.click()
        copied = visitor.evaluate("navigator.clipboard.readText()")
        assert copied
        assert ">>>" not in copied
        assert not copied.startswith(("tensor(", "(", "[")), "what an example prints"
        for line in [*copied.splitlines(), ""]:
            console.push(line)
    told = capsys.readouterr()
    assert not told.err, told.err
    assert "tensor(" in told.out


@pytest.mark.parametrize(("query", "path"), QUESTIONS.items())
def test_a_search_finds_the_right_page_first(visitor, address, query, path):
    visitor.goto("about:blank")
    visitor.goto(f"{address}?{urlencode({'q': query})}")
    visitor.locator(".md-search__input").focus()
    first = visitor.locator(".md-search-result__item a").first
    found = urlsplit(first.get_attribute("href") or "")
    assert urljoin(address, found.path).removeprefix(address) == path


def test_no_link_is_dead(site: Path) -> None:
    pages = {file: file.read_text() for file in site.rglob("index.html")}
    ids = {file: {"", "__skip", *attributes("id|name", text)} for file, text in pages.items()}
    dead = []
    for file, text in pages.items():
        for link in attributes("a [^>]*?href", text):
            if urlsplit(link).scheme:
                continue
            path, anchor = urldefrag(link)
            target = (file.parent / unquote(path)).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or unquote(anchor) not in ids.get(target, {unquote(anchor)}):
                dead.append(f"{file.relative_to(site)}: {link}")
    assert not dead, "\n".join(["", *dead])


def attributes(name: str, page: str) -> set[str]:
    """Return the values of an attribute, whose name is a pattern, on a page of HTML."""
    return {unescape(value) for value in re.findall(rf'[\s<](?:{name})="?([^"\s>]*)', page)}


# The interactive pages show what the reference computes, at the settings of their sliders


def hubkv(walk, ratio=0.75, prompt=1, **settings):
    """Return what is kept and read at some settings of HubKV, and the scores."""
    walk = walk if prompt == 1 else examples(DOCS / "hubkv/move.md")
    refined = kv.hubkv_refine(walk.scores, ratio, walk.protected, **settings)
    kept, plain = (
        kv.retain(scores, walk.protected, ratio=ratio, scope="layer")
        for scores in (refined, walk.scores)
    )
    scores = (walk.scores * ~walk.protected, refined * ~walk.protected)
    answers = answered(walk, plain, kept, causal=False)
    return dict(kept=kept.tolist(), plain=plain.tolist(), answers=answers), scores


def graphkv(walk, count=2, rounds=1, strength=1.0, keep=5, spare_sources=False):
    """Return what is kept and read at some settings of GraphKV, and the scores."""
    how: Any = dict(rounds=rounds, strength=strength, spare_sources=spare_sources)
    refined = kv.graphkv_refine(walk.scores, walk.keys, keep, count, walk.protected, **how)
    layer, spared = walk.scores.mean(0), walk.protected[0]
    sources = kv.source_tokens(layer, kv.source_count(keep), spared)
    edges = kv.edges(kv.concatenate_heads(walk.keys), sources)
    near = kv.neighbours(edges, sources, count, spared, spare_sources).any(0) & (rounds > 0)
    near[sources] = True
    kept = kv.retain(refined, walk.protected, keep=keep)[:1]
    plain = kv.retain(layer, spared, keep=keep)[None]
    answers = answered(walk, plain, kept, causal=True)
    scores = (layer[None], refined[:1] * near)
    return dict(kept=kept.tolist(), plain=plain.tolist(), answers=answers), scores


def answered(walk, plain, kept, causal):
    """Return what the last query reads of the first head: of all, by Top-K, and by the method."""
    caches = (
        kv.evict(walk.keys[:1], walk.values[:1], mask[:1])
        for mask in (torch.ones_like(kept), plain, kept)
    )
    query = walk.queries[:1, 1:]
    read = (kv.attention(query, one.keys, one.values, causal=causal).flatten() for one in caches)
    return [[f"{x:.2f}" for x in row.tolist()] for row in read]


def hexed(walk, bits=3, expander=1, heavy=1, recent=1):
    """Return codes and bytes at some settings of HEX; `expander` is the slider's position."""
    tried = json.loads((DOCS / "js/walks.json").read_text())["hex"]["expanders"]
    density = tried[expander]["degree"] / SPAN
    config = walk.config._replace(bits=bits, density=density, heavy=heavy / SPAN, recent=recent)
    prompt = (x[:, :18].half() for x in (walk.queries, walk.keys, walk.values))
    cache = kv.hex_prefill(*prompt, config=config)
    (block,) = cache.blocks
    static = kv.expander_mask(SPAN, SPAN, density, near=not density)
    kept = kv.hex_mask(static, block.dynamic, 1)[0]
    parts = (
        kv.unpack_bits(words, bits, SPAN).flatten(0, 1).T
        for words in (block.key_words, block.value_words)
    )
    entries = [codes.masked_fill(kept, KEPT).tolist() for codes in parts]
    sizes = kv.hex_bytes(cache)
    return dict(entries=entries, bytes=[[str(x)] for x in (*sizes[:-1], sizes.total, 1152)]), ()


TOKENS = """tokens => tokens.map(token => {
    const share = (name) => token.querySelector("." + name).style.getPropertyValue("--share")
    const is = (name) => token.classList.contains(name)
    return [is("kept"), is("plain"), Number(share("before")), Number(share("after"))]
})"""
CHART = 0.5
"""The score at the top of the chart."""
CELLS = """tables => tables.map(table => [...table.tBodies[0].rows].map(row =>
    [...row.querySelectorAll("td")].map(cell => cell.textContent)))"""
SPAN, KEPT = 16, 255
"""Tokens of HEX's walk that are compressed, channels of its heads together; no code of theirs."""


def tokens_shown(page):
    """Return what a page of columns of tokens shows."""
    rows = [
        [*zip(*row.locator(".move-token").evaluate_all(TOKENS), strict=True)]
        for row in page.locator("fieldset.move-tokens").all()
    ]
    kept, plain = ([[*row[at]] for row in rows] for at in (0, 1))
    answers = page.locator(".move-table").evaluate_all(CELLS)[0]
    scores = tuple(CHART * torch.tensor([row[at] for row in rows]) for at in (2, 3))
    return dict(kept=kept, plain=plain, answers=answers), scores


def entries_shown(page):
    """Return what the page of HEX shows."""
    entries = [
        [[KEPT if "kept" in text else int(text) for text in row[:SPAN]] for row in table[:SPAN]]
        for table in page.locator(".move-entries").evaluate_all(CELLS)
    ]
    sizes = page.locator(".move-table").evaluate_all(CELLS)[1]
    return dict(entries=entries, bytes=sizes), ()


MOVED: dict[str, Any] = {
    "hubkv": (hubkv, tokens_shown, "Discount γ", 8, dict(gamma=0.9)),
    "graphkv": (graphkv, tokens_shown, "Rounds T", 2, dict(rounds=3)),
    "hex": (hexed, entries_shown, "Bits b of a code", 3, dict(bits=6)),
}
"""A slider's label, how often the arrow key is pressed on it, and the settings that follow."""


@pytest.mark.parametrize("paper", MOVED)
def test_an_interactive_page_shows_what_the_reference_computes(page, address, paper, complaints):
    reference, shown, label, times, reached = MOVED[paper]
    walk = examples(DOCS / paper / "walk.md")

    def agrees(**settings):
        (said, scores), (expected, right) = shown(page), reference(walk, **settings)
        assert said == expected
        torch.testing.assert_close(scores, right)

    page.goto(f"{address}{paper}/move/")
    page.wait_for_selector("#move.moving")
    agrees()
    page.get_by_label(label, exact=True).focus()
    for _ in range(times):
        page.keyboard.press("ArrowRight")
    agrees(**reached)
    tried = {}
    attempts = re.findall(r'data-set="([^"]+)"', (DOCS / paper / "move.md").read_text())
    for text, button in zip(attempts, page.locator(".move-try").all(), strict=True):
        button.click()
        tried = {name: json.loads(value) for name, value in parse_qsl(unescape(text))}
        agrees(**tried)
        assert button.get_attribute("aria-pressed") == "true"
    page.reload()  # the address has the settings
    page.wait_for_selector("#move.moving")
    agrees(**tried)
    page.get_by_role("button", name="As in the walk").click()
    agrees()
    start = page.locator(".move-detail").inner_text()
    page.locator('input[type="radio"]:checked').focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".move-detail").inner_text() != start
    page.keyboard.press("ArrowLeft")
    assert page.locator(".move-detail").inner_text() == start
    assert not complaints


def test_all_sliders_of_hubkv_s_page_together_show_what_the_reference_computes(page, address):
    walk, draw = examples(DOCS / "hubkv/walk.md"), Random(0)
    for prompt in 6 * [1, 2]:
        page.goto(f"{address}hubkv/move/")
        page.get_by_label("Prompt").select_option(str(prompt))
        settings: dict[str, Any] = {"prompt": prompt}
        for slider in page.locator('input[type="range"]').all():
            low, high, step = (float(slider.get_attribute(x) or 0) for x in ("min", "max", "step"))
            at = low + draw.randint(0, round((high - low) / step)) * step
            settings[str(slider.get_attribute("name"))] = int(at) if step == 1 else round(at, 2)
            slider.fill(f"{at:.2f}")
        (said, scores), (expected, right) = tokens_shown(page), hubkv(walk, **settings)
        assert said == expected, settings
        torch.testing.assert_close(scores, right)
        assert dict(parse_qsl(urlsplit(page.url).query)).get("prompt", "1") == str(prompt)
