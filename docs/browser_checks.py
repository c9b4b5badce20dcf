"""The built site in a real browser: `pytest docs/browser_checks.py` after `mkdocs build`.

Some pages of each kind are opened; `--every-page` opens all. `--site FOLDER` names the site.
"""

import functools
import threading
from code import InteractiveConsole
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from urllib.parse import unquote, urldefrag, urlencode, urljoin, urlsplit

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="extra `browser` is not installed")
axe_api = pytest.importorskip("axe_playwright_python.sync_playwright")

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
  return found
}"""
TYPESET = (
    "() => [...document.querySelectorAll('.arithmatex')].every(x => x.querySelector('.katex'))"
)
NO_INDEX = {
    "config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {"text": {"boost": 1}}},
    "docs": [],
}
RULES = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
}
"""What axe-core checks: the success criteria of WCAG 2.2 up to level AA."""


class Quiet(SimpleHTTPRequestHandler):
    """Serve files, and keep connections and the terminal free of words."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Places(HTMLParser):
    """The ids of a page, and where its links go."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids, self.links = {"", "__skip"}, set[str]()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an id, and the target of a link."""
        known = dict(attrs)
        self.ids.add(known.get("id") or "")
        if tag == "a":
            self.ids.add(known.get("name") or "")
            self.links.add(known.get("href") or "")


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

    def console(message: sync_api.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            told.append(f"console: {message.text}")

    def script(error: sync_api.Error) -> None:
        told.append(f"script: {error}")

    def request(asked: sync_api.Request) -> None:
        if not asked.url.startswith((address, "data:", "blob:")):
            told.append(f"asks another host: {asked.url}")

    listeners = {"console": console, "pageerror": script, "request": request}
    for event, listener in listeners.items():
        page.on(event, listener)  # pyright: ignore[reportCallIssue, reportArgumentType]
    yield told
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


def test_nothing_is_cut_off_and_nothing_complains(
    request: pytest.FixtureRequest,
    page: sync_api.Page,
    address: str,
    page_path: str,
    complaints: list[str],
) -> None:
    found: list[str] = []
    slowly = page_path in SLOW_SAMPLE or request.config.getoption("every_page")
    page.goto(urljoin(address, f"{page_path}/" if page_path else ""))
    page.wait_for_function(TYPESET)
    page.evaluate("document.fonts.ready")
    for scheme, name in SCHEMES.items():
        page.evaluate("scheme => document.body.dataset.mdColorScheme = scheme", scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
            )
            found += [f"{name}, {width} px: {one}" for one in page.evaluate(MEASURE, width > MENUS)]
            if slowly and width == AXE_AT[name]:
                found += [f"{name}, {width} px, axe: {one}" for one in violations(page)]
    assert not found + complaints, "\n".join(["", *found, *complaints])


def violations(page: sync_api.Page) -> Iterator[str]:
    """Yield what axe-core finds wrong with a page for people who cannot see, or not use a mouse."""
    for one in axe_api.Axe().run(page, options=RULES).response["violations"]:
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
def test_what_is_copied_from_a_walk_runs(
    visitor: sync_api.Page, address: str, paper: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_a_search_finds_the_right_page_first(
    visitor: sync_api.Page, address: str, query: str, path: str
) -> None:
    visitor.goto("about:blank")
    visitor.goto(f"{address}?{urlencode({'q': query})}")
    visitor.locator(".md-search__input").focus()
    first = visitor.locator(".md-search-result__item a").first
    found = urlsplit(first.get_attribute("href") or "")
    assert urljoin(address, found.path).removeprefix(address) == path


def test_no_link_is_dead(site: Path) -> None:
    pages = {file: Places(file) for file in site.rglob("index.html")}
    dead = []
    for file, places in pages.items():
        for link in places.links:
            if urlsplit(link).scheme or not link:
                continue
            path, anchor = urldefrag(link)
            target = (file.parent / unquote(path)).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            there = pages.get(target)
            if not target.exists() or (there and unquote(anchor) not in there.ids):
                dead.append(f"{file.relative_to(site)}: {link}")
    assert not dead, "\n".join(["", *dead])
