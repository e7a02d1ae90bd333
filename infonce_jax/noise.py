"""Counter-based randomness: a number is a function of (seed, chain, step, index) and of nothing else.

Threefry-2x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") with the key of chain c and the
counter (step, i) gives two 32-bit words, and both feed one Box-Muller pair. No state is carried, so the number of
chains, the chunks of a run, the devices and a resume cannot change a trajectory by one bit.

Everything here is elementwise over the trailing lanes, one lane per chain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import refuse

__all__ = ["Noise", "chain_keys", "normals", "threefry", "uniforms"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA  # the constant of Threefish's key schedule


class Noise(NamedTuple):
    """The random numbers of one step of one chain.

    Attributes:
        normal: standard normals, shape (n, d), or (R, n, d) for a step that moves R copies.
        uniform: one number in (0, 1) for steps that accept or reject, or a vector of them.
    """

    normal: Any
    uniform: Any


def threefry(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds on uint32 arrays that broadcast: two words of key and of counter to two words.

    Bit for bit the block function behind `jax.random` with the same key and counter.
    """
    k0, k1 = key
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(_PARITY))
    x0, x1 = counter[0] + k0, counter[1] + k1
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << jnp.uint32(bits)) | (x1 >> jnp.uint32(32 - bits)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def chain_keys(seed: int, chains: np.ndarray, stream: int = 0) -> np.ndarray:
    """Keys of chains, shape (2, len(chains)) uint32: Threefry of (chain, stream) under the 64-bit seed.

    Args:
        seed: 0 <= seed < 2^64.
        chains: chain indices, below 2^32.
        stream: which of a chain's independent streams; 0 drives the dynamics.

    Raises:
        InputError: the seed is not such a whole number. Typed keys of other generators are refused: `rbg` ignores all
            keys but the first under vmap.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        raise refuse(
            "seed", repr(seed), "a whole number from 0 to 2^64 - 1", "chains derive their threefry keys from it"
        )
    words = np.uint32(int(seed) >> 32), np.uint32(int(seed) & 0xFFFFFFFF)
    counters = np.asarray(chains, np.uint32), np.full(np.shape(chains), stream, np.uint32)
    return np.stack([np.asarray(word) for word in _compiled_threefry(words, counters)])


_compiled_threefry = jax.jit(threefry)  # a hundred operations one by one take longer than thousands of chains at once


def _unit(word: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """A word as a number in (0, 1): 31 bits, since signed conversion is native where unsigned is not."""
    return ((word >> jnp.uint32(1)).astype(jnp.int32).astype(dtype) + 0.5) * dtype.type(2.0**-31)


def _cos_sin_turns(word: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of 2 pi word/2^32.

    The quadrant is two integer bits and the remainder lies within pi/4, where short Taylor polynomials are exact to
    single precision; the library functions of XLA cost several times as much on a CPU.
    """
    quarter = (word + jnp.uint32(1 << 29)) >> jnp.uint32(30)
    rest = (word - (quarter << jnp.uint32(30))).astype(jnp.int32).astype(dtype) * dtype.type(2 * np.pi / 2**32)
    if dtype == jnp.float32:
        square = rest * rest
        sine = rest * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square / 362880))))
        cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40320)))
    else:
        sine, cosine = jnp.sin(rest), jnp.cos(rest)
    odd = (quarter & jnp.uint32(1)) == 1
    sine, cosine = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    sine = jnp.where((quarter & jnp.uint32(2)) == 2, -sine, sine)
    cosine = jnp.where(((quarter + jnp.uint32(1)) & jnp.uint32(2)) == 2, -cosine, cosine)
    return cosine, sine


def normals(keys: jax.Array, step: jax.Array, size: int, dtype: Any = jnp.float32) -> jax.Array:
    """Standard normals of one step.

    Pair i of chain c comes from the block (step, i): r = sqrt(-2 log u) from one word, the angle from the other (Box
    and Muller 1958). The largest value possible is sqrt(2 * 32 log 2) = 6.66. The float64 numbers are the float32 ones
    with less rounding, so a run can be repeated in double precision on the same noise.

    Args:
        keys: shape (2, lanes), uint32.
        step: the step, uint32 scalar.
        size: how many numbers per chain.
        dtype: float32 or float64.

    Returns:
        Shape (size, lanes).
    """
    dtype = jnp.dtype(dtype)
    pairs = (size + 1) // 2
    index = jnp.arange(pairs, dtype=jnp.uint32)[:, None]
    first, second = threefry((keys[0], keys[1]), (step, index))
    radius = jnp.sqrt(-2 * jnp.log(_unit(first, dtype)))
    cosine, sine = _cos_sin_turns(second, dtype)
    # One kernel of XLA's has one output, and the block is most of the work: as two arrays the pair would compute it
    # twice. As one complex array, held by the barrier, it costs 4.4 ns on a core instead of 6.0.
    pair = jax.lax.optimization_barrier(jax.lax.complex(radius * cosine, radius * sine))
    return jnp.concatenate([jnp.real(pair), jnp.imag(pair)])[:size]


def uniforms(keys: jax.Array, step: jax.Array, size: int, dtype: Any = jnp.float32, count: int = 0) -> jax.Array:
    """Numbers in (0, 1) for a step that draws `size` normals, from the blocks after theirs.

    Args:
        keys: shape (2, lanes), uint32.
        step: the step, uint32 scalar.
        size: how many normals the step draws.
        dtype: float32 or float64.
        count: how many numbers per chain; 0 for a single one without an axis of its own.

    Returns:
        Shape (lanes,), or (count, lanes).
    """
    dtype, start = jnp.dtype(dtype), jnp.uint32((size + 1) // 2)
    if count:
        index = start + jnp.arange((count + 1) // 2, dtype=jnp.uint32)[:, None]
        word = jnp.concatenate(jax.lax.optimization_barrier(threefry((keys[0], keys[1]), (step, index))))[:count]
    else:
        word, _ = threefry((keys[0], keys[1]), (step, start))
    # In single precision the 64 largest words round to one.
    return jnp.minimum(_unit(word, dtype), dtype.type(1) - jnp.finfo(dtype).epsneg)
