from __future__ import annotations

import functools

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from infonce_jax import noise
from infonce_jax.checks import InputError

LANES = 4096
SIZE = 64
# Every statistical test below has a fixed key, so it gives one answer for ever; the false-alarm rate in its comment is
# the chance that a right generator would have been refused when the key was chosen. 5.5 standard deviations: 3.8e-8.
SIGMAS = 5.5
normals = jax.jit(noise.normals, static_argnums=(2, 3))


@functools.cache
def sample(step=0):
    """Normals of one step, shape (SIZE, LANES)."""
    return np.asarray(normals(noise.chain_keys(20, np.arange(LANES)), np.uint32(step), SIZE), np.float64)


def words(seed, count):
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


def test_threefry_is_bit_for_bit_that_of_jax():
    k0, k1, c0, c1 = words(0, (4, 100))
    ours = np.stack(noise.threefry((k0, k1), (c0, c1)))
    for i in range(100):  # JAX takes one key at a time; its counters are the two halves of one array
        theirs = jax.extend.random.threefry_2x32((k0[i], k1[i]), jnp.array([c0[i], c1[i]]))
        np.testing.assert_array_equal(ours[:, i], theirs)


def test_threefry_passes_the_known_answers_of_its_authors():
    # kat_vectors of Random123 (Salmon et al. 2011), threefry 2x32 with 20 rounds: counter, key, result.
    for counter, key, result in (
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ):
        out = noise.threefry(*(tuple(map(jnp.uint32, pair)) for pair in (key, counter)))
        assert tuple(map(int, out)) == result


def test_threefry_is_the_block_behind_the_bits_of_jax_random():
    key = jax.random.key(7, impl="threefry2x32")
    k0, k1 = jax.random.key_data(key)
    high, low = noise.threefry((k0, k1), (jnp.zeros(5, jnp.uint32), jnp.arange(5, dtype=jnp.uint32)))
    np.testing.assert_array_equal(high ^ low, jax.random.bits(key, (5,)))


def test_threefry_broadcasts_steps_over_lanes():
    k0, k1 = words(1, (2, 6))
    step = np.arange(4, dtype=np.uint32)[:, None]
    out, _ = noise.threefry((k0, k1), (jnp.uint32(9), step))
    assert out.shape == (4, 6)
    np.testing.assert_array_equal(out[2, 3], noise.threefry((k0[3:4], k1[3:4]), (jnp.uint32(9), step[2]))[0][0])


def test_keys_of_chains_are_threefry_of_chain_and_stream_under_the_seed():
    seed = 0x123456789ABCDEF0
    chains = np.array([0, 5, 2**32 - 1])
    keys = noise.chain_keys(seed, chains, stream=3)
    assert keys.shape == (2, 3)
    assert keys.dtype == np.uint32
    for column, chain in zip(keys.T, chains, strict=True):
        counter = jnp.array([chain, 3], jnp.uint32)
        theirs = jax.extend.random.threefry_2x32((np.uint32(0x12345678), np.uint32(0x9ABCDEF0)), counter)
        np.testing.assert_array_equal(column, theirs)


def test_a_chain_has_the_same_key_whichever_chains_surround_it():
    many = noise.chain_keys(3, np.arange(1000))
    np.testing.assert_array_equal(noise.chain_keys(3, np.array([17])), many[:, 17:18])


def test_seeds_streams_and_chains_all_change_the_key():
    keys = [noise.chain_keys(s, np.arange(50), stream=t) for s in (0, 1, 2**32, 2**64 - 1) for t in (0, 1)]
    assert len({tuple(k) for k in np.concatenate(keys, axis=1).T}) == 400


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, 1.0, "1", None, True, np.float32(1), jax.random.key(0)])
def test_a_bad_seed_is_refused_in_one_line(seed):
    with pytest.raises(InputError, match=r"^seed: got .*; needs a whole number from 0 to 2\^64 - 1; ") as caught:
        noise.chain_keys(seed, np.arange(4))
    assert "\n" not in str(caught.value)


def test_an_rbg_key_is_refused():
    # rbg ignores all keys but the first under vmap (jax 16792, 21663).
    with pytest.raises(InputError, match="threefry"):
        noise.chain_keys(jax.random.key(0, impl="rbg"), np.arange(4))


def test_the_first_four_moments_are_those_of_a_standard_normal():
    # Four numbers, 1e6 draws: false-alarm rate 1.5e-7. A sum of 12 uniforms, fourth moment 2.9, is 10 deviations off.
    z = np.concatenate([sample(step).ravel() for step in range(4)])
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - mean) < SIGMAS * np.sqrt(variance / z.size), power


def test_each_of_the_numbers_of_a_step_has_the_normal_law():
    # Kolmogorov-Smirnov for 64 rows; false-alarm rate 64e-8. Sees a wrong quadrant, sign or radius in any one row.
    assert min(scipy.stats.kstest(row, "norm").pvalue for row in sample()) > 1e-8


def test_all_numbers_together_have_the_normal_law():
    # 2.6e5 numbers; false-alarm rate 1e-7. Refuses an error of .006 in the distribution function.
    assert scipy.stats.kstest(sample().ravel(), "norm").pvalue > 1e-7


def test_tails_are_as_heavy_as_they_should_be():
    # Binomial counts beyond 3 and 4 on both sides; false-alarm rate about 2e-7.
    z = np.concatenate([sample(step).ravel() for step in range(4)])
    for bound in (3, 4):
        p = scipy.special.ndtr(-bound)
        for tail in (z > bound, z < -bound):
            assert abs(tail.sum() - p * z.size) < 6 * np.sqrt(p * z.size)


def test_the_two_numbers_of_a_pair_are_independent():
    # Chi-square on a 16 x 16 grid of equal cells, all pairs; false-alarm rate 1e-7. One word in both would fail wildly.
    first, second = sample()[: SIZE // 2].ravel(), sample()[SIZE // 2 :].ravel()
    cells = [np.minimum((scipy.special.ndtr(z) * 16).astype(int), 15) for z in (first, second)]
    table = np.bincount(cells[0] * 16 + cells[1], minlength=256)
    assert scipy.stats.chisquare(table).pvalue > 1e-7


def test_the_two_numbers_of_a_pair_form_one_box_muller_pair():
    # Deterministic: the radius comes from the first word, the angle from the second.
    keys = noise.chain_keys(4, np.arange(16))
    z = np.asarray(normals(keys, np.uint32(11), 6), np.float64)
    blocks = noise.threefry(tuple(keys), (np.uint32(11), np.arange(3, dtype=np.uint32)[:, None]))
    first, second = (np.asarray(word, np.float64) for word in blocks)
    radius = np.sqrt(-2 * np.log((np.floor(first / 2) + 0.5) / 2**31))
    angle = 2 * np.pi * second / 2**32
    np.testing.assert_allclose(z, np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]), atol=2e-6)


def correlations(a, b):
    """Correlation of the numbers, of their squares and of their sizes, in standard deviations."""
    for f in (lambda z: z, np.square, np.abs):
        u, v = f(a).ravel(), f(b).ravel()
        yield np.corrcoef(u, v)[0, 1] * np.sqrt(u.size)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_consecutive_steps_are_uncorrelated(lag):
    # Three correlations of 2.6e5 pairs each; false-alarm rate 1.2e-7 per lag.
    assert all(abs(c) < SIGMAS for c in correlations(sample(0), sample(lag)))


@pytest.mark.parametrize("distance", [1, 2, 64])
def test_neighbouring_chains_are_uncorrelated(distance):
    # False-alarm rate 1.2e-7 per distance.
    assert all(abs(c) < SIGMAS for c in correlations(sample()[:, distance:], sample()[:, :-distance]))


@pytest.mark.parametrize("distance", [1, SIZE // 2])
def test_the_numbers_of_one_step_are_uncorrelated(distance):
    # False-alarm rate 1.2e-7 per distance; SIZE/2 is the partner in the pair.
    assert all(abs(c) < SIGMAS for c in correlations(sample()[distance:], sample()[:-distance]))


def test_chains_and_steps_never_share_their_numbers():
    # vmapped paths came out identical in diffrax 531.
    z = np.stack([sample(step) for step in range(4)])
    assert len(np.unique(z[:, 0])) > 0.999 * z[:, 0].size  # single precision repeats a few values by chance


def test_streams_of_one_chain_are_uncorrelated():
    # False-alarm rate 1.2e-7.
    other = np.asarray(normals(noise.chain_keys(20, np.arange(LANES), stream=1), np.uint32(0), SIZE), np.float64)
    assert all(abs(c) < SIGMAS for c in correlations(sample(), other))


def test_double_precision_normals_are_the_single_ones_with_less_rounding():
    keys = noise.chain_keys(20, np.arange(LANES))
    with jax.enable_x64(True):
        double = np.asarray(normals(keys, np.uint32(0), SIZE, jnp.float64))
    assert double.dtype == np.float64
    radius = np.tile(np.hypot(double[: SIZE // 2], double[SIZE // 2 :]), (2, 1))
    # A relative error eps of u moves r = sqrt(-2 log u) by eps/r: only the smallest radii feel it.
    assert np.all(np.abs(double - sample()) < 2e-7 * (radius + 1 / radius))
    assert np.quantile(np.abs(double - sample()), 0.99) < 3e-7


def test_normals_of_a_lane_do_not_depend_on_the_lanes_beside_it():
    # For the multiples of 16 lanes that the engine uses; one bit would break "a chain is a function of (seed, chain)".
    keys = noise.chain_keys(5, np.arange(512))
    many = np.asarray(normals(keys, np.uint32(3), 15))
    for first, lanes in ((0, 16), (48, 16), (16, 32), (256, 256)):
        few = np.asarray(normals(keys[:, first : first + lanes], np.uint32(3), 15))
        np.testing.assert_array_equal(few, many[:, first : first + lanes])


def test_pair_i_is_the_same_for_every_even_size():
    # The docstring's promise: pair i comes from the block (step, i). First halves are cosines, second halves sines.
    keys = noise.chain_keys(6, np.arange(16))
    small, large = (np.asarray(normals(keys, np.uint32(0), size)) for size in (4, 10))
    np.testing.assert_array_equal(small[:2], large[:2])
    np.testing.assert_array_equal(small[2:], large[5:7])


def test_an_odd_size_leaves_out_the_last_number():
    keys = noise.chain_keys(6, np.arange(16))
    odd, even = (np.asarray(normals(keys, np.uint32(0), size)) for size in (5, 6))
    assert odd.shape == (5, 16)
    np.testing.assert_array_equal(odd, even[:5])


def test_the_uniform_number_has_the_uniform_law_and_its_own_block():
    # Kolmogorov-Smirnov, 65536 numbers, false-alarm rate 1e-7; eight correlations with its step's normals, 3e-7.
    keys = noise.chain_keys(7, np.arange(2**16))
    u = np.asarray(noise.uniforms(keys, np.uint32(0), 4), np.float64)
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-7
    z = np.asarray(normals(keys, np.uint32(0), 4), np.float64)
    assert all(abs(np.corrcoef(u, f(row))[0, 1]) * 2**8 < SIGMAS for row in z for f in (np.abs, lambda a: a))


@pytest.mark.parametrize("word", [0, 1, 2**31 - 1, 2**31, 2**32 - 64, 2**32 - 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_uniform_number_is_strictly_inside_the_unit_interval(monkeypatch, word, dtype):
    # In single precision the largest words round to 1, and `uniform < 1` would reject a move of probability one.
    monkeypatch.setattr(noise, "threefry", lambda *_: (jnp.full(16, word, jnp.uint32),) * 2)
    with jax.enable_x64(dtype == np.float64):
        u = np.asarray(noise.uniforms(np.zeros((2, 16), np.uint32), np.uint32(0), 4, dtype))
    assert np.all((u > 0) & (u < 1))


@pytest.mark.parametrize("word", [0, 1, 2**32 - 1])
def test_normals_are_finite_and_bounded_at_the_extreme_words(monkeypatch, word):
    monkeypatch.setattr(noise, "threefry", lambda *_: (jnp.full((2, 16), word, jnp.uint32),) * 2)
    z = np.asarray(noise.normals(np.zeros((2, 16), np.uint32), np.uint32(0), 4))
    assert np.all(np.abs(z) <= np.sqrt(64 * np.log(2)) * (1 + 1e-6))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-7), (np.float64, 2e-15)])
def test_cosine_and_sine_of_turns_are_accurate_on_a_dense_grid_and_at_the_edges(dtype, tolerance):
    edges = (
        np.arange(9)[:, None] * 2**29 + np.arange(-300, 301)
    ).ravel() % 2**32  # octants: branches switch at odd ones
    grid = np.concatenate([edges, np.arange(0, 2**32, 4099)]).astype(np.uint32)
    angle = 2 * np.pi * grid.astype(np.float64) / 2**32
    with jax.enable_x64(dtype == np.float64):
        cosine, sine = noise._cos_sin_turns(jnp.asarray(grid), np.dtype(dtype))
    assert cosine.dtype == dtype
    cosine, sine = np.asarray(cosine, np.float64), np.asarray(sine, np.float64)
    assert np.max(np.abs(cosine - np.cos(angle))) < tolerance
    assert np.max(np.abs(sine - np.sin(angle))) < tolerance


def test_axes_are_hit_exactly():
    quarters = jnp.arange(4, dtype=jnp.uint32) << 30
    cosine, sine = noise._cos_sin_turns(quarters, np.dtype(np.float32))
    np.testing.assert_array_equal(cosine, [1, 0, -1, 0])
    np.testing.assert_array_equal(sine, [0, 1, 0, -1])
