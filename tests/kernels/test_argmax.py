"""Greedy choice on the GPU: argmax over slices, then the best of all advances the state of the step."""

import numpy as np
import pytest

from cera_py.kernels import argmax

SLICE = 256 * argmax.N_GROUPS  # logits that all workgroups look at in one go


def choose(gpu, run_kernel, logits, n_outputs=1, n_tokens=1, position=0, steps_done=0):
    """The chosen id, the state of the step, and the ring of results, after both kernels."""
    step = np.full(16 + 2 * n_tokens, 99, np.uint32)
    step[:4] = n_tokens, n_tokens - n_outputs, n_outputs, steps_done
    step[17::2] = position + np.arange(n_tokens)
    best = np.zeros((argmax.N_GROUPS, 2), np.uint32)
    shader = argmax.shader(gpu, logits.shape[1])
    best = run_kernel(shader, argmax.grid(), {"step": step, "logits": logits, "best": best}, "best")
    results = np.full(argmax.N_RESULTS, 77, np.uint32)
    buffers = {"best": best, "step": step, "results": results}
    step, results = run_kernel(argmax.advance_shader(gpu), (1, 1, 1), buffers, "step", "results")
    return int(step[16]), step, results


def noise(vocab, n_outputs=1, seed=0):
    return np.random.default_rng([vocab, seed]).standard_normal((n_outputs, vocab)).astype(np.float32)


@pytest.mark.parametrize("vocab", [1, 2, 255, 515, SLICE - 1, SLICE, SLICE + 1, 49152, 128_257])
def test_largest(gpu, run_kernel, vocab):
    logits = noise(vocab)
    assert choose(gpu, run_kernel, logits)[0] == argmax.reference(logits)


@pytest.mark.parametrize("at", [0, 1, 255, 256, SLICE - 1, SLICE, 40_000, 49_151])
def test_wherever_it_is(gpu, run_kernel, at):
    logits = noise(49_152)
    logits[0, at] = 100
    assert choose(gpu, run_kernel, logits)[0] == at


@pytest.mark.parametrize(
    "ties", [(3, 4), (255, 256), (10, 10 + SLICE), (300, 5), (SLICE + 1, 300), (16_383, 16_384, 49_151), (0, 49_151)]
)
def test_the_lowest_id_wins_a_tie(gpu, run_kernel, ties):
    logits = noise(49_152)
    logits[0, list(ties)] = 100
    assert choose(gpu, run_kernel, logits)[0] == min(ties) == argmax.reference(logits)


def test_all_equal(gpu, run_kernel):
    assert choose(gpu, run_kernel, np.full((1, 40_000), -3, np.float32))[0] == 0


@pytest.mark.parametrize("vocab", [100, 40_000])
def test_tokens_ruled_out(gpu, run_kernel, vocab):
    logits = np.full((1, vocab), -np.inf, np.float32)
    logits[0, 77] = -3.4e38
    assert choose(gpu, run_kernel, logits)[0] == 77
    logits[0, 99] = np.inf
    assert choose(gpu, run_kernel, logits)[0] == 99


@pytest.mark.parametrize("vocab", [100, 40_000])
def test_all_ruled_out_gives_a_token_all_the_same(gpu, run_kernel, vocab):
    logits = np.full((1, vocab), -np.inf, np.float32)
    assert choose(gpu, run_kernel, logits)[0] == argmax.reference(logits)


def test_of_several_outputs_the_last(gpu, run_kernel):
    logits = noise(515, n_outputs=5)
    found = choose(gpu, run_kernel, logits, n_outputs=3, n_tokens=9)[0]
    assert found == argmax.reference(logits[:3])


def test_the_step_advances(gpu, run_kernel):
    logits = noise(515, n_outputs=2)
    token, step, results = choose(
        gpu, run_kernel, logits, n_outputs=2, n_tokens=7, position=40, steps_done=argmax.N_RESULTS + 5
    )
    assert token == argmax.reference(logits)
    assert list(step[:4]) == [1, 0, 1, argmax.N_RESULTS + 6]
    assert list(step[16:18]) == [token, 47]  # the last token was at 46
    assert results[5] == token
    assert np.count_nonzero(results == 77) == argmax.N_RESULTS - 1
