"""The report of the command: one page that asks nothing of a network."""

import json
import re
import sys
from base64 import b64decode
from errno import EXDEV
from html.parser import HTMLParser
from io import BytesIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from optimized.study.chart import quality, series
from optimized.study.compared import everything
from optimized.study.gallery import embedded
from optimized.study.pictures.drawing import INK, PAGE
from optimized.study.report import verdict_line

LETTER = 5
"""How wide and high a letter is at least, as SVG counts."""
SOME = ("--systems", "random", "snapkv", "snapkv+graphkv", "kivi-4", "--ratios", "0.5", "0.75")


class Page(HTMLParser):
    """Reads a page, and checks that what is opened is closed."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        """Remember an element, and what it asks for."""
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.asked += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        """Remember an element without an inside."""
        del attrs
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element."""
        assert self.open.pop() == tag


@pytest.fixture
def page(command):
    command.figures(*SOME)
    return (command.out / "report.html").read_text()


def test_the_page_is_whole_and_asks_for_nothing(page):
    read = Page()
    read.feed(page)
    assert read.open == []
    assert all(one.startswith("data:") for one in read.asked)
    assert not re.search(r"https?://|url\(|@import|<script", page)


def test_the_page_has_every_system_pictures_and_heat_maps(page):
    read = Page()
    read.feed(page)
    assert read.seen["img"] == 2
    for name in ("full", "random", "snapkv", "snapkv+graphkv", "kivi-4"):
        assert f"<caption>{name}</caption>" in page
    assert "GraphKV against its base" in page
    assert 'name="viewport"' in page


def test_the_figures_are_written_where_they_are_asked_for(command, tmp_path):
    figures = command.figures("--systems", "full", "--json", str(tmp_path / "copy.json"))
    assert json.loads((tmp_path / "copy.json").read_text()) == figures
    assert sorted(one.name for one in command.out.iterdir()) == ["figures.json", "report.html"]


def test_the_copy_of_the_figures_can_be_on_another_disk(command, monkeypatch, tmp_path):
    from optimized.study import command as job

    def replace(source, target):
        if Path(source).parent.parent != Path(target).parent:
            raise OSError(EXDEV, "Invalid cross-device link")
        Path(source).rename(target)

    monkeypatch.setattr(job.os, "replace", replace)
    (tmp_path / "disk").mkdir()
    command.figures("--systems", "full", "--json", str(tmp_path / "disk" / "copy.json"))
    assert [one.name for one in (tmp_path / "disk").iterdir()] == ["copy.json"]


def test_a_terminal_without_greek_letters_gets_the_table(command, monkeypatch):
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    command.figures("--systems", "full")
    assert "? mean" in written.getvalue().decode()


def test_the_table_has_a_line_a_row(command, capsys):
    figures = command.figures(*SOME)
    printed = capsys.readouterr().out.splitlines()
    for row, line in zip(figures["rows"], printed[1:], strict=False):
        assert line.split()[0] == row["system"]
    assert str(command.out / "report.html") in printed[-1]


def test_no_needles_means_no_needles(command):
    figures = command.figures("--systems", "random", "--ratios", "0.5", "--needles", "0")
    assert [row["needle_accuracy"] for row in figures["rows"]] == [None, None]


@pytest.mark.parametrize(
    ("signs", "said"),
    [
        ("==", "no difference seen"),
        ("=-", "needles <span class=worse>worse</span>"),
        ("+=", "text <span class=better>better</span>"),
        ("??", "no verdict, too few documents"),
        ("-", "text <span class=worse>worse</span>"),
    ],
)
def test_a_verdict_says_what_differs_beside_the_ratio(signs, said):
    needles = [0.1, None, None] if len(signs) > 1 else None
    one = dict(system="a+hubkv", ratio=0.5, bits=[0.1, None, None], needles=needles, signs=signs)
    line = verdict_line(one | dict(stored=(50.0, 50.0)), "a+hubkv − a")
    assert f"<td>0.5</td><td class=words>{said}</td>" in line


def test_every_name_stands_in_the_picture_and_covers_no_other():
    row = dict(store=None, scorer="h2o", refinement=None, refused=None, ratio=0.9, bits_change=0.1)
    rows = [row | dict(system=name, stored_percent=9.9) for name in everything()]
    drawn = quality(series(rows, "bits_change"), "bits", 0.0, False) or ""
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
    found = re.findall(r'<text [^>]*\bx="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    places = sorted((float(y), float(x), name) for x, y, name in found if name in everything())
    assert sorted(name for *_, name in places) == sorted(everything())
    for (y, x, name), (below, right, _) in pairwise([*places, (height, 0.0, "")]):
        assert x + LETTER * len(name) < width
        assert below - y > LETTER or x + LETTER * len(name) < right


@pytest.mark.parametrize("refinement", [None, "hubkv"])
def test_lines_are_named_below_the_picture(refinement):
    row = dict(store=None, scorer="h2o", refinement=refinement, refused=None, bits_change=0.1)
    points = [row | dict(ratio=ratio, stored_percent=100 - 100 * ratio) for ratio in (0.5, 0.9)]
    rows = [point | dict(system=name) for name in everything() for point in points]
    drawn = quality(series(rows, "bits_change"), "bits", 0.0, False) or ""
    for name in everything():
        assert f">{name}</text>" in drawn


def test_nothing_stored_stands_at_the_left_end():
    row = dict(system="random", store=None, scorer="random", refinement=None, refused=None)
    rows = [
        row | dict(ratio=ratio, stored_percent=percent, bits_change=percent)
        for ratio, percent in ((0.5, 50.0), (0.999, 0.0))
    ]
    drawn = quality(series(rows, "bits_change"), "bits", 0.0, False) or ""
    assert "nan" not in drawn
    assert quality([], "bits", 0.0, False) is None


def test_a_picture_is_legible_on_light_and_on_dark_pages():
    drawn = embedded(f'<svg fill="{INK}" stroke="{PAGE}"><g/></svg>')
    themed = b64decode(drawn.partition("base64,")[2]).decode()
    assert INK not in themed
    assert PAGE not in themed
    assert "prefers-color-scheme: dark" in themed
