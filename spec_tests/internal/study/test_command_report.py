"""The report of the command: one page that needs no network."""

import json
import os
import re
import sys
from base64 import b64decode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from optimized.models.systems import system_named
from optimized.study import command as job
from optimized.study.chart import quality_against_bytes, series, svg_data_url
from optimized.study.command import unused_folder
from optimized.study.compared_systems import everything
from optimized.study.measurements import Row, Trial
from optimized.study.pictures.drawing import INK, PAGE
from optimized.study.record import LEAST, needles_unusable_reason, shares, solved_kinds
from optimized.study.significance import needle_shares
from spec_tests.internal.study.command_runner import main

VOID = ("meta", "link", "br", "img")
LETTER = 5
"""Smallest width and height of a letter in units of the SVG."""
SOME = ("--systems", "random", "snapkv", "snapkv+graphkv", "kivi-4", "--ratios", "0.5", "0.75")


def elements(page: str) -> Counter[str]:
    """Count the elements of a page, each closed, that loads nothing and runs nothing."""
    opened, closed = (Counter(re.findall(mark + r"([a-z]\w*)", page)) for mark in ("<", "</"))
    assert opened - closed == Counter({tag: opened[tag] for tag in VOID})
    assert not re.search(r"https?://|url\(|@import|<script|(src|href)=\"(?!data:)", page)
    return opened


def test_the_page_has_every_system_pictures_and_heat_maps(command, monkeypatch):
    command.counting_needles(monkeypatch)
    command.figures(*SOME)
    page = (command.out / "report.html").read_text()
    assert elements(page)["img"] == 2
    for name in ("full", "random", "snapkv", "snapkv+graphkv", "kivi-4"):
        assert f"<caption>{name}</caption>" in page
    assert "GraphKV against its base" in page
    assert 'name="viewport"' in page


def test_the_figures_are_written_where_they_are_asked_for(command, tmp_path):
    figures = command.figures("--systems", "full", "--json", str(tmp_path / "copy.json"))
    assert json.loads((tmp_path / "copy.json").read_text()) == figures
    assert sorted(one.name for one in command.out.iterdir()) == [
        "figures.json",
        "report.html",
        "results-1of1.jsonl",
    ]


def test_of_many_runs_none_takes_the_folder_of_another(tmp_path):
    with ThreadPoolExecutor(8) as runs:
        names = list(runs.map(lambda _: unused_folder(tmp_path / "out.txt"), range(40)))
    assert len(set(names)) == 40
    assert tmp_path / "out.txt-3" in names


def test_the_table_is_printed_before_anything_is_written(command, monkeypatch):
    shown, terminal = [], BytesIO()

    def write(*_):
        shown.append(terminal.getvalue().decode())

    monkeypatch.setattr(sys, "stdout", TextIOWrapper(terminal, encoding="utf-8"))
    monkeypatch.setattr(job, "write", write)
    main(command.arguments("--systems", "kivi-4", "--out", str(command.folder / "out")))
    assert "bits/byte" in shown[0]
    assert "Quantised against the full cache" in shown[0]


def closed_pipe():
    """Return a writable pipe whose reading end is closed."""
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w")


@pytest.mark.parametrize("terminal", [closed_pipe, partial(open, "/dev/full", "w")])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_table_that_nobody_reads_costs_no_report(command, monkeypatch, terminal):
    with terminal() as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        command.figures("--systems", "full")
    assert (command.out / "report.html").exists()


def test_a_terminal_without_greek_letters_gets_the_table(command, monkeypatch):
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    command.figures("--systems", "full")
    assert "? mean" in written.getvalue().decode()


@pytest.mark.parametrize(("hidden", "share"), [("0", None), ("1", 0)])
def test_what_means_nothing_is_left_out_and_text_is_not(command, capsys, hidden, share):
    figures = command.figures(*SOME, "--needles", hidden)
    page = (command.out / "report.html").read_text()
    assert figures["rows"][0]["needle_accuracy"] == share
    for text in (capsys.readouterr().out, page.partition("How this was measured")[0]):
        rest = text.replace(figures["no_needles"], "")
        assert "bits per byte" in rest
        assert "needles" not in rest.lower()
    assert {verdict["signs"] for verdict in figures["verdicts"]} == {"?"}
    assert elements(page)["img"] == 1


@pytest.mark.parametrize(("found", "compared"), [(15, False), (16, True), (20, True)])
def test_a_kind_of_task_counts_if_the_full_cache_solves_four_fifths(found, compared):
    scores = [[float(n < found), 0.0] for n in range(20)]
    row = Row(Trial(system_named("full"), None), found=scores)
    every = shares(row, [["word", "labels"]] * 20)
    assert every == {"word": found / 20, "labels": 0}
    assert solved_kinds(every, LEAST) == ({"word": found / 20} if compared else {})
    assert (needles_unusable_reason(every, LEAST) is None) is compared
    row.counted = [[True, False]] * 20
    assert needle_shares(row) == [float(n < found) for n in range(20)]


def test_every_name_stands_in_the_picture_and_covers_no_other():
    row = dict(store=None, scorer="h2o", refinement=None, refused=None, ratio=0.9, bits_change=0.1)
    rows = [row | dict(system=name, stored_percent=9.9) for name in everything()]
    drawn = quality_against_bytes(series(rows, "bits_change"), "bits", 0.0, False) or ""
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
    found = re.findall(r'<text [^>]*\bx="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    places = sorted((float(y), float(x), name) for x, y, name in found if name in everything())
    assert sorted(name for *_, name in places) == sorted(everything())
    for (y, x, name), (below, right, _) in pairwise([*places, (height, 0.0, "")]):
        assert x + LETTER * len(name) < width
        assert below - y > LETTER or x + LETTER * len(name) < right


def test_nothing_stored_stands_at_the_left_end():
    row = dict(system="random", store=None, scorer="random", refinement=None, refused=None)

    def marks(*stored: float) -> int:
        rows = [row | dict(stored_percent=percent, bits_change=0.1) for percent in stored]
        drawn = quality_against_bytes(series(rows, "bits_change"), "bits", 0.0, False) or ""
        return drawn.count("<use ")

    assert marks(50.0, 0.0) == marks(50.0, 50.0)
    assert quality_against_bytes([], "bits", 0.0, False) is None


def test_a_picture_is_legible_on_light_and_on_dark_pages():
    drawn = svg_data_url(f'<svg fill="{INK}" stroke="{PAGE}"><g/></svg>')
    themed = b64decode(drawn.partition("base64,")[2]).decode()
    assert INK not in themed
    assert PAGE not in themed
    assert "prefers-color-scheme: dark" in themed
