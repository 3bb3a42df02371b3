"""The sampler against a plain float64 implementation of llama.cpp's filters, and its random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cera_py.errors import CeraError, InvalidArgumentError
from cera_py.sampling import Sampler, SamplingOptions, largest, pcg4d, random_uniform

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
VOCAB = 64


def logits_of(seed: int, vocab: int = VOCAB) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(vocab) * 2).astype(np.float32)


def expected(logits: np.ndarray, options: SamplingOptions, recent: list[int]) -> np.ndarray:
    """Each token's probability, one filter after the other as llama.cpp applies them."""
    values = logits.astype(np.float64)
    window = recent[-options.repeat_last_n :] if options.repeat_last_n else []
    for token in set(window):
        values[token] *= 1 / options.repeat_penalty if values[token] > 0 else options.repeat_penalty
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    if options.temperature == 0:
        return np.eye(len(values))[order[0]]
    if options.top_k:
        order = order[: options.top_k]
    weights = [math.exp(values[token] - values[order[0]]) for token in order]
    if options.top_p < 1:
        total, reached = 0.0, 0
        while total < options.top_p and reached < len(order):
            total += weights[reached] / sum(weights)
            reached += 1
        order = order[:reached]
    order = [token for token in order if math.exp(values[token] - values[order[0]]) >= options.min_p]
    probabilities = np.zeros(len(values))
    for token in order:
        probabilities[token] = math.exp((values[token] - values[order[0]]) / options.temperature)
    return probabilities / probabilities.sum()


def chi_square_is_plausible(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Whether the counts could come from these probabilities, but for one time in about a million."""
    assert not counts[probabilities == 0].any(), "a filtered token was drawn"
    draws = counts.sum()
    frequent = probabilities * draws >= 5
    observed = np.append(counts[frequent], counts[~frequent].sum())
    wanted = np.append(probabilities[frequent], probabilities[~frequent].sum()) * draws
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    freedom = max(len(wanted) - 1, 1)
    chi_square = ((observed - wanted) ** 2 / wanted).sum()
    # Wilson and Hilferty: the cube root of chi-square over its freedom is close to normal.
    z = ((chi_square / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return z < 4.9


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 2.5},
        {"top_k": 1},
        {"top_k": 7},
        {"top_k": VOCAB + 1},
        {"top_p": 0.6},
        {"top_p": 0.01},
        {"top_p": 0.999},
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"repeat_penalty": 1.7},
        {"repeat_penalty": 0.6},
        {"repeat_penalty": 3.0, "repeat_last_n": 4},
        {"repeat_penalty": 3.0, "repeat_last_n": 0},
        {"top_k": 20, "top_p": 0.8, "min_p": 0.1, "temperature": 1.5, "repeat_penalty": 1.3},
        {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    ],
    ids=str,
)
def test_frequencies_match_a_float64_reference(changed: dict) -> None:
    logits = logits_of(1)
    options = SamplingOptions(**{**OFF, **changed}, seed=11)
    recent = [3, 60, 60, *range(10, 20), int(logits.argmax())]
    probabilities = expected(logits, options, recent)
    sampler = Sampler(options, VOCAB)
    for token in recent:
        sampler.accept(token)
    counts = np.bincount([sampler.sample(logits) for _ in range(4000)], minlength=VOCAB)
    assert chi_square_is_plausible(counts, probabilities)


def test_every_filter_keeps_the_reference_set() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        options = SamplingOptions(
            temperature=rng.choice([0, 1e-3, 0.7, 4]),
            top_k=int(rng.integers(0, VOCAB + 5)),
            top_p=float(rng.choice([1, rng.uniform(0.01, 1)])),
            min_p=float(rng.choice([0, rng.uniform(0, 1)])),
            seed=int(rng.integers(1 << 32)),
        )
        logits = np.round(logits_of(int(rng.integers(1000))) * 2) / 2  # many ties
        probabilities = expected(logits, options, [])
        sampler = Sampler(options, VOCAB)
        assert all(probabilities[sampler.sample(logits)] > 0 for _ in range(20))


def test_temperature_0_takes_the_largest_and_of_equals_the_first() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[9, 5, 30]] = 2.0
    assert Sampler(SamplingOptions(temperature=0), VOCAB).sample(logits) == 5


def test_temperature_0_still_penalises() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[5, 9]] = 3.0, 2.9
    sampler = Sampler(SamplingOptions(temperature=0, repeat_penalty=1.1), VOCAB)
    sampler.accept(5)
    before = logits.copy()
    assert sampler.sample(logits) == 9
    np.testing.assert_array_equal(logits, before)  # the caller's array is not written to


def test_the_penalty_window_forgets() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[5, 9]] = 3.0, 2.9
    sampler = Sampler(SamplingOptions(temperature=0, repeat_penalty=2, repeat_last_n=2), VOCAB)
    for token in (5, 1, 2):
        sampler.accept(token)
    assert sampler.sample(logits) == 5


def test_ties_at_the_edge_of_top_k_go_to_the_first() -> None:
    logits = np.array([1, 3, 1, 2, 1, 1], np.float32)
    assert set(largest(logits, 3)) == {1, 3, 0}
    assert set(largest(logits, 99)) == set(range(6))


def test_the_same_seed_draws_the_same_tokens() -> None:
    def draw(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingOptions(seed=seed), VOCAB)
        return [sampler.sample(logits_of(step)) for step in range(50)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(None) != draw(None)
    assert draw(2**64 - 1) != draw(2**32 - 1)  # all 64 bits count


def test_a_random_seed_is_kept_and_repeats() -> None:
    first = Sampler(SamplingOptions(), VOCAB)
    again = Sampler(SamplingOptions(seed=first.seed), VOCAB)
    assert [first.sample(logits_of(1)) for _ in range(20)] == [again.sample(logits_of(1)) for _ in range(20)]


def test_impossible_tokens_are_never_drawn() -> None:
    logits = np.full(VOCAB, -np.inf, np.float32)
    logits[[2, 63]] = 0.0, -1.0
    for changed in ({}, {"top_k": 10}, {"top_p": 0.99}, {"temperature": 1e30}, {"temperature": 1e-300}):
        sampler = Sampler(SamplingOptions(**{**OFF, **changed}, seed=0), VOCAB)
        assert {sampler.sample(logits) for _ in range(200)} <= {2, 63}


def test_a_tiny_temperature_is_greedy_and_a_huge_one_even() -> None:
    logits = logits_of(4)
    cold = Sampler(SamplingOptions(**{**OFF, "temperature": 1e-300}, seed=1), VOCAB)
    assert {cold.sample(logits) for _ in range(50)} == {int(logits.argmax())}
    hot = Sampler(SamplingOptions(**{**OFF, "temperature": 1e300}, seed=1), VOCAB)
    counts = np.bincount([hot.sample(logits) for _ in range(6400)], minlength=VOCAB)
    assert chi_square_is_plausible(counts, np.full(VOCAB, 1 / VOCAB))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_numbers_are_an_error(bad: float) -> None:
    logits = logits_of(0)
    logits[7] = bad
    with pytest.raises(InvalidArgumentError, match="largest logit"):
        Sampler(SamplingOptions(), VOCAB).sample(logits)


def test_no_token_left_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="no token"):
        Sampler(SamplingOptions(), VOCAB).sample(np.full(VOCAB, -np.inf, np.float32))


def test_logits_of_another_vocabulary_are_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="shape"):
        Sampler(SamplingOptions(), VOCAB).sample(np.zeros(VOCAB + 1, np.float32))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_p", 0),
        ("top_p", 7),
        ("top_p", math.nan),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("min_p", math.nan),
        ("repeat_penalty", 0),
        ("repeat_penalty", -1),
        ("repeat_penalty", math.nan),
        ("repeat_last_n", -1),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.0),
    ],
)
def test_a_value_outside_its_range_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{field} is ") as caught:
        SamplingOptions(**{field: value})
    assert isinstance(caught.value, CeraError)
    assert "\n" not in str(caught.value)


def test_numpy_numbers_are_numbers() -> None:
    options = SamplingOptions(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.uint64(2**64 - 1))
    Sampler(options, VOCAB).sample(logits_of(0))


def test_pcg4d_matches_unsigned_32_bit_arithmetic() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 32, (4, 1000), dtype=np.uint32)
    x, y, z, w = words * np.uint32(1664525) + np.uint32(1013904223)
    for round_number in range(2):
        if round_number == 1:
            x, y, z, w = (word ^ (word >> np.uint32(16)) for word in (x, y, z, w))
        x = x + y * w
        y = y + z * x
        z = z + x * y
        w = w + y * z
    for column in range(1000):
        hashed = pcg4d(*(int(word) for word in words[:, column]))
        assert hashed == (int(x[column]), int(y[column]), int(z[column]), int(w[column]))


def test_random_numbers_are_even_over_steps_and_seeds() -> None:
    for numbers in (
        [random_uniform(0, step) for step in range(20000)],
        [random_uniform(seed, 0) for seed in range(20000)],
        [random_uniform(seed << 32, 5) for seed in range(20000)],
    ):
        assert min(numbers) >= 0
        assert max(numbers) < 1
        counts = np.bincount((np.array(numbers) * 100).astype(int), minlength=100)
        assert chi_square_is_plausible(counts, np.full(100, 0.01))
        pairs = (np.array(numbers[::2]) * 10).astype(int) * 10 + (np.array(numbers[1::2]) * 10).astype(int)
        assert chi_square_is_plausible(np.bincount(pairs, minlength=100), np.full(100, 0.01))


def test_random_numbers_stay_what_they_are() -> None:
    # A text made with a seed must come out the same in later releases.
    assert [int(random_uniform(1, step) * 2**24) for step in range(3)] == [736495, 13833917, 16281044]
