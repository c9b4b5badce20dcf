"""Several threads use one model: no call changes the result of another running call."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, get_ident

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import models, new_model, prompts


def logits(model, ids):
    """Return the logits of a model without a cache."""
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


@pytest.mark.parametrize("layer", [0, 1])
def test_a_call_that_runs_while_another_thread_attaches_stays_causal(layer):
    """The call waits between two layers for the self-check, and ends before the check does."""
    model, ids = new_model("llama"), prompts()[0]
    alone = logits(model, ids)
    arrived, checking, calls = Event(), Event(), []

    def meet(*_):
        """Continue the call in the middle of the check, and the check after the call."""
        if get_ident() != main_thread:
            arrived.set()
            checking.wait(60)
        elif not checking.is_set():
            checking.set()
            calls[0].result(60)

    main_thread = get_ident()
    model.model.layers[layer].register_forward_pre_hook(meet)
    with ThreadPoolExecutor(1) as pool:
        calls.append(pool.submit(logits, model, ids))
        arrived.wait(60)
        models.attach(model)
        assert_equal(calls[0].result(), alone)


def test_the_first_calls_of_three_threads_compress_as_one_would():
    ids = prompts()[0]
    alone = models.compressed(new_model("llama"), "snapkv", ids, ratio=0.5)
    for _ in range(3):
        model = new_model("llama")
        with ThreadPoolExecutor(3) as pool:
            calls = [
                pool.submit(models.compressed, model, "snapkv", ids, ratio=0.5) for _ in range(3)
            ]
        for call in calls:
            for layer, other in zip(call.result().layers, alone.layers, strict=True):
                assert_equal(layer.keys, other.keys)


def test_two_threads_with_one_model_hear_their_own_prompt():
    model = models.attach(new_model("llama"))
    both = [prompts()[0], prompts()[0].flip(1)]
    alone = [[], []]
    for ids, steps in zip(both, alone, strict=True):
        models.prefill(model, ids, watch=[steps.append])
    # No thread attends in a layer before the other thread has passed its hidden states.
    barrier = Barrier(2, timeout=20)

    def meet(*_) -> None:
        barrier.wait()

    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(meet)
    together = [[], []]
    with ThreadPoolExecutor(2) as pool:
        for ids, steps in zip(both, together, strict=True):
            pool.submit(models.prefill, model, ids, watch=[steps.append])
    for mine, other in zip(together, alone, strict=True):
        assert_equal([step.hidden for step in mine], [step.hidden for step in other])
