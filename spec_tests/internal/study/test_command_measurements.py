"""The figures that the command measures."""

from copy import copy
from inspect import signature
from itertools import pairwise, product
from math import log
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer

import optimized
import reference
from optimized import Scored, refine
from optimized.models.compress_prompt import compressed
from optimized.models.load import load
from optimized.models.prefill import Prefilled, prefill
from optimized.models.scorer import Scores
from optimized.models.scorers import SCORERS
from optimized.models.selection import kept_entries
from optimized.models.systems import REFINEMENTS, refinement_settings, system_named
from optimized.readings import READINGS
from optimized.study import evaluate
from optimized.study.compared_systems import DEFAULT
from optimized.study.documents import Maker
from optimized.study.forms import request
from optimized.study.measurements import MeasurementSettings, trials
from optimized.study.metrics import DocumentMetrics
from optimized.study.overrides import KINDS, RECORDS, read
from optimized.study.record import SCHEMA
from spec_tests.internal.models.random_model import LATENT
from spec_tests.internal.study.command_runner import TEXT, CommandRunner, save_random_model

TIMES = "seconds"
PAIR = ("--systems", "snapkv", "snapkv+graphkv", "kvzip+hubkv", "--ratios", "0.5")


def timeless(figures: dict) -> dict:
    """Return figures without the entries that may differ between two runs."""
    figures["command"].pop("out")
    for row in figures["rows"]:
        row.pop(TIMES)
    return figures


def test_the_same_seed_gives_the_same_numbers(command):
    runs = [timeless(command.figures(*PAIR, "--seed", "3")) for _ in range(2)]
    assert runs[0] == runs[1]
    other = timeless(command.figures(*PAIR, "--seed", "4"))
    assert other["rows"] != runs[0]["rows"]


def test_both_implementations_keep_the_same_entries(command):
    scorers = ("snapkv+graphkv", "pyramidkv@layer", "h2o", "knorm", "kvzip+hubkv", "cake+hubkv")
    how = ("--systems", *scorers, "hex-3", "kivi-4", "gear", "--ratios", "0.75")
    short = ("--context", "80", "--documents", "2")
    literal = command.figures(*how, *short, "--implementation", "reference")
    fast = command.figures(*how, *short)
    for row, same in zip(literal["rows"], fast["rows"], strict=True):
        assert row["refused"] is same["refused"] is None
        assert row["stored_bytes"] == same["stored_bytes"]
        assert row["bits_per_byte"] == pytest.approx(same["bits_per_byte"], rel=1e-3)
        if row["store"] is None and row["system"] != "full":
            assert row["entries_differing"] == 0
            assert row["digest"] == same["digest"]
            assert same["entries_differing"] is None


def test_a_ratio_of_zero_is_the_full_cache(command):
    every = ("random", "streaming_llm", "kvzip+hubkv", "snapkv+graphkv", "pyramidkv", "h2o", "cake")
    full, *rows = command.figures("--systems", *every, "--ratios", "0")["rows"]
    same = ("stored_percent", "stored_bytes", "bits_by_document", "found_by_document")
    assert len(rows) == len(every)
    for row in rows:
        assert {name: row[name] for name in same} == {name: full[name] for name in same}
        assert row["deviation_worst"] == 0
        assert row["bits_change"] == row["needle_change"] == 0


def test_bytes_are_counted_where_a_character_is_cut(command_model):
    tokenizer = AutoTokenizer.from_pretrained(command_model)
    maker = Maker("Ωμέγα 漢字 🙂\ufffd and more.\n" * 50, tokenizer)
    for made in maker.documents(0, 12, [96, 97, 98], 32, 1):
        assert made.size == len(made.continuation) - 1  # a token is a byte


def test_bits_and_answers_are_those_of_a_model_that_reads_all_at_once(command_model):
    model, tokenizer = load(command_model)
    (made,) = Maker(TEXT, tokenizer).documents(0, 1, [96], 16, 1)
    ids, question = torch.tensor([made.context + made.continuation]), made.questions[0]
    with torch.inference_mode():
        judge = DocumentMetrics(model, prefill(model, ids[:, :96]), [made])
        logits = model(ids[:, :-1]).logits[0, 96:]
        nats = cross_entropy(logits.double(), ids[0, 97:], reduction="sum")
        assert judge.bits() == pytest.approx([float(nats) / log(2) / made.size], rel=1e-4)
        read = torch.tensor([made.context + question.asked])
        answer = [int(model(read).logits[0, -1].argmax())]
        for wrong in (False, True):
            changed = question._replace(answer=[token + wrong for token in answer])
            judge.documents = [made._replace(questions=(changed,))]
            assert judge.found() == [[not wrong]]


def test_a_model_of_layers_of_several_kinds_is_measured(tmp_path):
    layers = dict(layer_types=["conv", "full_attention"])
    command = CommandRunner(save_random_model(tmp_path / "model", "lfm2", **layers), tmp_path)
    systems = ("snapkv+hubkv", "kvzip", "hex-4", "kivi-4", "gear")
    full, *rows = command.figures("--systems", *systems, "--ratios", "0.5")["rows"]
    assert [row["refused"] for row in (full, *rows)] == [None] * 6
    assert all(0 < row["stored_bytes"] < full["stored_bytes"] for row in rows)
    assert all(min(row["bits_by_document"]) > 0 for row in rows)


def test_a_model_of_latent_rows_is_measured_where_rows_are_kept_or_freed(tmp_path):
    command = CommandRunner(save_random_model(tmp_path / "model", "minicpm3", **LATENT), tmp_path)
    systems = ("snapkv+hubkv", "kvzip", "hex-4", "kivi-4", "gear")
    full, *rows = command.figures("--systems", *systems, "--ratios", "0.5")["rows"]
    reasons = [row["refused"] for row in rows[2:]]
    assert all("multi-head latent attention" in reason for reason in reasons)
    for row in rows[:2]:
        assert row["refused"] is None
        assert row["stored_percent"] == pytest.approx(50, abs=2)
        assert row["stored_percent"] == pytest.approx(row["kept_percent"], abs=1)
        assert row["bits_by_document"] != full["bits_by_document"]


def test_windows_count_among_the_bytes_in_16_bits_whatever_is_done_beside_them(command, tmp_path):
    window = dict(use_sliding_window=True, sliding_window=17, max_window_layers=1)
    model = save_random_model(tmp_path / "model", "qwen2", **window)
    rows = CommandRunner(model, model).figures("--systems", "knorm", "hex-4", "--ratios", "0.5")
    full, half, hex4 = (row["stored_bytes"] for row in rows["rows"])
    rates = [2 * 2 * 64 * 2 * length for length in rows["documents"]["lengths"]]
    windows = full - sum(rates)
    number = 8  # `transformers` keeps the width of a window as a tensor
    assert windows == 3 * (2 * 2 * 64 * 2 * 16 + number)  # the next token sees 16 before it
    assert half == sum(rates) // 2 + windows
    *_, both = command.figures("--systems", "hex-4")["rows"]  # of two layers without a window
    assert hex4 == both["stored_bytes"] // 2 + windows


def test_the_letter_and_the_remedies_differ_and_are_named(command):
    systems = ("--systems", "snapkv", "snapkv+graphkv", "--ratios", "0.5")
    letter = command.figures(*systems, "--readings", "letter")["rows"]
    remedied = command.figures(*systems)["rows"]
    assert letter[1]["digest"] == remedied[1]["digest"]
    assert letter[2]["digest"] != remedied[2]["digest"]
    assert letter[2]["readings"] == []
    assert "graphkv per_head (E-G11)" in remedied[2]["readings"]
    assert "graphkv fixed count (E-G8)" in remedied[2]["readings"]


def test_what_is_set_is_that_of_the_systems_it_is_of_and_is_named(command, capsys):
    systems = ("--systems", "snapkv", "snapkv+hubkv", "knorm+hubkv", "hex-3", "--ratios", "0.5")
    usual = command.figures(*systems)["rows"]
    capsys.readouterr()
    changes = ("hubkv.gamma=0.9", "hubkv.radius=7", "snapkv.window=9", "hubkv.gamma=0.7")
    figures = command.figures(*systems, *(word for change in changes for word in ("--set", change)))
    hub = {"hubkv.gamma": 0.7, "hubkv.radius": 7}
    named = [{}, {"snapkv.window": 9}, hub | {"snapkv.window": 9}, hub, {}]
    assert [row["settings"] for row in figures["rows"]] == named
    assert [row["settings"] for row in usual] == [{}] * 5
    same = [a["digest"] == b["digest"] for a, b in zip(usual, figures["rows"], strict=True)]
    assert same == [not settings for settings in named]
    assert "hubkv.gamma = 0.7 in snapkv+hubkv, knorm+hubkv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("system", "settings", "twin"),
    [
        ("pyramidkv", ["pyramidkv.exact=False"], ("pyramidkv", "--readings", "letter")),
        ("hex-3", ["hex.bits=4", "hex.scales=None"], ("hex-4",)),
    ],
)
def test_a_system_of_other_settings_is_the_system_that_has_them(command, system, settings, twin):
    options = [word for row in settings for word in ("--set", row)]
    row = command.figures("--systems", system, *options, "--ratios", "0.5")["rows"][1]
    same = command.figures("--systems", *twin, "--ratios", "0.5")["rows"][1]
    assert row["digest"] == same["digest"]
    assert row["stored_bytes"] == same["stored_bytes"]
    assert row["readings"] == same["readings"]


def test_every_setting_can_be_set_to_what_it_is():
    every = {*REFINEMENTS, *SCORERS, "hex"}
    assert every - KINDS.keys() == {"random"}  # its only setting is the run's seed
    usual = {name: record._asdict() for name, record in RECORDS.items()}
    for part, kinds in KINDS.items():
        for function in () if part in RECORDS else SCORERS[part].functions:
            parameters = signature(function).parameters.items()
            defaults = {name: setting.default for name, setting in parameters if name in kinds}
            usual[part] = defaults | usual.get(part, {})
        assert usual[part].keys() == kinds.keys()
        options = [f"{part}.{name}={value}" for name, value in usual[part].items()]
        assert read(options) == tuple((part, *setting) for setting in usual[part].items())


@pytest.mark.parametrize(("word", "value"), [("inf", "inf"), ("3", 3)])
def test_a_setting_that_json_does_not_have_is_named(command, word, value):
    rows = command.figures(
        "--systems", "knorm+hubkv", "--ratios", "0.5", "--set", f"hubkv.maximum={word}"
    )
    assert rows["rows"][1]["settings"] == {"hubkv.maximum": value}


@pytest.mark.parametrize(
    ("reading", "tokens", "lowered"),
    [("letter", 999, 0), ("letter", 2000, 2), ("letter", 20_000, 8), ("remedied", 999, 8)],
)
def test_the_letter_caps_neighbours_by_the_thousands_of_a_document(reading, tokens, lowered):
    scores, keys = torch.ones(1, tokens), torch.ones(1, tokens, 2)
    scores[0, 0] = 2.0
    scored = Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    settings = refinement_settings(system_named("snapkv+graphkv"), reading)
    refined = refine(scored, settings, keep=1, keys=keys)
    assert int((refined < scores).sum()) == lowered


SHARED = ["cake@head", "cake@layer", "cake+hubkv@head", "cake+hubkv@layer"]


@pytest.mark.parametrize(
    ("name", "reading"),
    [*product(["pyramidkv+graphkv"], READINGS), *product(SHARED, ["remedied"])],
)
def test_a_layer_of_a_row_keeps_what_it_would_alone_with_its_budget(name, reading):
    draw, budgets = torch.Generator().manual_seed(0), torch.tensor([[30, 12], [10, 28]])
    raw, keys = torch.rand(2, 2, 2, 40, generator=draw), torch.rand(2, 2, 40, 3, generator=draw)
    protected = torch.zeros_like(raw[0], dtype=torch.bool)
    protected[:, 0, raw[0, 0, 0].argmin()] = True  # protected by one head
    layer_of_keys = SimpleNamespace(whole=(keys, keys))
    cache: Any = SimpleNamespace(whole_layers_but=lambda _: dict.fromkeys(range(2), layer_of_keys))
    ids = torch.zeros(2, 40, dtype=torch.long)
    prompt = Prefilled(cache, None, torch.empty(0), ids)
    system = system_named(name)
    scores = Scores(tuple(Scored(scored, protected) for scored in raw), budgets)
    kept, _ = kept_entries(system, prompt, scores, 0.5, reading, optimized)
    for layer, row in product(range(2), range(2)):
        scored, keep = Scored(raw[layer, row], protected[row]), int(budgets[layer, row])
        vectors = keys[row], keys[row]
        if system.refinement == "graphkv":
            settings = refinement_settings(system, reading)
            length = None if settings.adaptive else 8000
            alone = reference.graphkv_select(*vectors, scored, settings, keep=keep, length=length)
        else:
            select = reference.hubkv_select if system.refinement else reference.select
            keep *= 2 if system.scope == "layer" else 1
            alone = select(*vectors, scored, keep=keep, scope=system.scope)
        assert kept[layer, row].equal(alone)


def test_where_every_system_is_refused_the_exit_status_says_so(command, capsys):
    with pytest.raises(SystemExit) as ended:
        command.figures("--systems", "kvzip", "--ratios", "0.5", "--interval", "8")
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "kvzip refused at 0.5: scorer of a system with an interval" in " ".join(said.out.split())
    assert said.err == "python -m optimized: every system was refused\n"
    assert (command.out / "figures.json").exists()


def test_a_budget_below_the_protected_entries_keeps_these_as_compressed_does(command):
    with pytest.warns(UserWarning, match="below its number of protected entries"):
        rows = command.figures("--systems", "kvzip", "--ratios", "0.99")["rows"]
    assert rows[1]["kept_percent"] > 5  # the ratio alone would leave 1 %


@pytest.mark.parametrize("name", ["full", "h2o", "h2o+hubkv@layer", "hex-4", "kivi-2"])
def test_text_is_read_on_over_a_cache_that_is_compressed_again(name):
    """As token by token over the cache of `compressed`, and then one generated answer."""
    model, tokenizer = load("words")
    text = " ".join(f"the value of x{n} is {n % 7} and not y" for n in range(40))
    (read,) = Maker(text * 4, tokenizer).documents(0, 1, [160], 48, 2)
    (trial,) = trials([system_named(name)], [0.5])
    settings = MeasurementSettings("letter", 0, optimized, None, None, request(tokenizer), 16)
    (row,) = evaluate.evaluate(model, [read], [trial], settings)
    options: Any = dict(ratio=0.5, interval=16) if trial.ratio else {}
    cache = compressed(model, name, torch.tensor([read.context]), **options)
    seen, nats = read.context[cache.get_seq_length() :], 0.0
    with torch.inference_mode():
        if seen:
            model(torch.tensor([seen]), past_key_values=cache)
        for token, after in pairwise(read.continuation):
            logits = model(torch.tensor([[token]]), past_key_values=cache).logits[0, -1]
            nats -= float(logits.log_softmax(-1)[after])
        assert row.bits == pytest.approx([nats / log(2) / read.size], rel=1e-4)
        for question, found in zip(read.questions, row.found[0], strict=True):
            said, new = [], read.continuation[-1:] + question.asked
            branch = copy(cache)
            while len(said) < len(question.answer):
                logits = model(torch.tensor([new]), past_key_values=branch).logits[0, -1]
                new = [int(logits.argmax())]
                said += new
            assert found == (said == question.answer)
    assert name != "full" or row.found == [[1.0, 1.0]]
    assert name != "full" or row.nbytes == cache.full_nbytes // 2  # 16 bits for 32


def test_figures_have_their_schema(command, monkeypatch):
    command.counting_needles(monkeypatch)
    figures = command.figures(*PAIR)
    assert figures["schema"] == SCHEMA
    assert {"python", "torch", "transformers"} <= set(figures["versions"])
    names = {frozenset(row) for row in figures["rows"]}
    assert len(names) == 1
    assert [row["system"] for row in figures["rows"]][1:] == list(PAIR[1:4])
    assert figures["documents"]["lengths"] == [64, 96, 128]
    assert all(row["seconds"]["selecting"] > 0 for row in figures["rows"][1:])
    assert {verdict["signs"] for verdict in figures["verdicts"]} == {"??"}  # of three documents


def test_the_default_compares_what_the_papers_do(command):
    rows = command.figures("--ratios", "0.5")["rows"]
    found = [row["system"] for row in rows]
    assert found == [name for name in DEFAULT if not name.startswith("fastkvzip")]
    assert not any(row["refused"] for row in rows)


def test_chance_differs_between_batches_of_one_length(command, monkeypatch):
    seen = []

    def kept(*given):
        seen.append(kept_entries(*given)[0])
        return seen[-1], {}

    monkeypatch.setattr(evaluate, "kept_entries", kept)
    command.figures("--systems", "random", "--ratios", "0.5", "--documents", "48")
    alike = [(first, second) for first, second in pairwise(seen) if first.shape == second.shape]
    assert alike
    assert not any(first.equal(second) for first, second in alike)
