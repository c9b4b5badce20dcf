"""The model class that docs/models.md shows for lm_eval, on a task of two kinds."""

import json
import re
from pathlib import Path

import pytest
import torch

from spec_tests.accuracy import assert_near

models = pytest.importorskip("optimized.models")
why = "lm_eval has an environment of its own: see nightly.yml"
lm_eval = pytest.importorskip("lm_eval", reason=why)
HFLM = pytest.importorskip("lm_eval.models.huggingface", reason=why).HFLM
TaskManager = pytest.importorskip("lm_eval.tasks", reason=why).TaskManager

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
TASKS = {
    "choose": dict(output_type="multiple_choice", doc_to_choice="{{choices}}", doc_to_target=0),
    "say": dict(
        output_type="generate_until",
        doc_to_target="{{choices[0]}}",
        generation_kwargs=dict(until=["."], max_gen_toks=6),
    ),
}
TEXT = "The red key is under the old stone. The cat sleeps on the roof. " * 6


def shown_class():
    """Return the class of the page."""
    block = re.search(r"```python\n(import torch\nfrom lm_eval.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names = {}
    exec(compile(block[1], str(PAGE), "exec"), names)
    return names["Compressed"]


@pytest.fixture(scope="module")
def loaded():
    return dict(zip(("pretrained", "tokenizer"), models.load("words"), strict=True))


@pytest.fixture
def tasks(tmp_path):
    """Return a manager of the tasks, whose files are written first."""
    rows = [
        dict(text=TEXT + "The red key is under the old", choices=[" stone", " roof"]),
        dict(text=TEXT + "The cat sleeps on the", choices=[" roof", " stone"]),
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    for name, how in TASKS.items():
        both = dict(path="json", kwargs=dict(data_files=dict(test=str(data))))
        said = dict(
            task=name,
            dataset_path=both["path"],
            dataset_kwargs=both["kwargs"],
            test_split="test",
            doc_to_text="{{text}}",
            target_delimiter="",
            **how,
        )
        (tmp_path / f"{name}.yaml").write_text(json.dumps(said))  # JSON is YAML
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


def answers(model, tasks):
    """Return what a model says in each task: log-likelihoods, and generated texts."""
    out = lm_eval.simple_evaluate(model, tasks=list(TASKS), task_manager=tasks, bootstrap_iters=0)
    return {name: [x["filtered_resps"] for x in out["samples"][name]] for name in TASKS}


def test_a_cache_that_loses_nothing_has_the_scores_of_the_harness(loaded, tasks):
    own, ours = HFLM(**loaded), shown_class()("full", {}, **loaded)
    plain, compressed = answers(own, tasks), answers(ours, tasks)
    assert compressed["say"] == plain["say"]
    for one, other in zip(compressed["choose"], plain["choose"], strict=True):
        assert_near(torch.tensor(one), torch.tensor(other))


@pytest.mark.parametrize("system", ["random", "kcvt-3"])
def test_a_compressed_context_changes_the_scores(loaded, tasks, system):
    budget = {} if system == "kcvt-3" else dict(ratio=0.9)
    plain = answers(HFLM(**loaded), tasks)
    ours = answers(shown_class()(system, budget, **loaded), tasks)
    assert ours["choose"] != plain["choose"]
