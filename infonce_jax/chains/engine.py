"""The compiled inner loop: thousands of chains, a chunk of steps at a time.

There are three ways to run the same step, all from the same array code of one chain. Small systems go through
`infonce_jax.unroll`: one chain becomes a tuple of scalars and a batch of chains a tuple of vectors. Larger ones keep
their arrays, with the lanes as the last axis (`infonce_jax.trailing`), or as the first (`jax.vmap`) where matrix
products are so large that a library does them best. Each time lanes are spread over the devices of a mesh and, on each,
worked off in tiles that stay in the cache.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from infonce_jax.chains.observers import Observation, Observer
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Integrator
from infonce_jax.lanes import from_columns, lane_examples, to_columns, vectorise
from infonce_jax.noise import Noise, normals, uniforms
from infonce_jax.trailing import largest_array, over_trailing_lanes
from infonce_jax.unroll import CannotUnrollError, count_operations

__all__ = ["advance_chunk", "cast", "lane_count", "look_again", "map_lanes", "start_carry", "start_energies", "unrolls"]

# Lanes come in multiples of this: XLA compiles a batch of one, or one with a ragged end, into other arithmetic.
_LANE_MULTIPLE = 16
# Lanes per tile of a CPU, for scalars and for arrays with the lanes last. Measured on two cores (geodesic Euler on
# rings, float32), ns of one core per chain-step:
#   lanes              16     32     64    128    256   4096
#   (5, 2) scalars    181     73     45     43            48
#   (8, 3) scalars           180    116    113           155
#   (16, 3) lanes last      1564    479    481    519
#   (32, 8) lanes last             2740   2970
# Below 64 LLVM unrolls the loops along the lanes instead of vectorising them; above, vectors leave the first cache, and
# scalars take longer to compile (64 lanes 5 s, 128 lanes 7 s for (8, 3)).
_TILE = 64
# Lanes per batch of array code outside of the loop. XLA orders its sums and products by the size of the batch, so bits
# that do not depend on the number of chains need batches of one size.
_BATCH = _LANE_MULTIPLE
# Lanes per tile with the lanes first on a CPU, where one lane's matrix of pairs fills the second cache: the ring (256,
# 64), us of one core per chain-step: 16 lanes 715, 2 lanes 581, of which the two matrix products are 233.
_MATRIX_TILE = 2
# Lanes per tile of an accelerator.
_WIDE_TILE = 4096
# Scalar operations beyond which unrolling costs more compile time than it saves. Measured, scalars against lanes last:
#   (5, 2)    681 operations    45 against  58 ns,  1.9 against 0.7 s
#   (8, 2)   1410 operations    90 against 118 ns,  5   against 1.0 s
#   (8, 3)   1706 operations   116 against 150 ns,  5   against 1.1 s
#   (16, 3)  5518 operations   386 against 479 ns, 46   against 1.4 s
_MOST_OPERATIONS = 1500
# Entries of the largest array of a step up to which lanes go last. Measured, lanes last against lanes first, us of one
# core per chain-step: (32, 8) with 1024 entries 2.7 against 8.4, (64, 16) with 4096 entries 16 against 21.
_MOST_ENTRIES = 4096


def cast(tree: Any, dtype: np.dtype) -> Any:
    """Floating leaves in the precision of the run, once and not at every step."""
    arrays = jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda a: a.astype(dtype) if np.issubdtype(a.dtype, np.floating) else a, arrays)


def lane_count(num_chains: int, num_devices: int) -> int:
    """Chains padded so that every device gets whole tiles, or whole multiples of `_LANE_MULTIPLE` below one tile.

    A tile of a CPU, that is; larger ones are filled up inside `advance_chunk`.
    """
    per_device = math.ceil(num_chains / num_devices / _LANE_MULTIPLE) * _LANE_MULTIPLE
    if per_device > _TILE:
        per_device = math.ceil(num_chains / num_devices / _TILE) * _TILE
    return per_device * num_devices


def _one_step(
    integrator: Integrator,
    carry: Any,
    noise: Any,
    step: jax.Array,
    beta: jax.Array,
    temperature: jax.Array | None,
    energy: Energy,
    observers: tuple[Observer, ...],
) -> Any:
    """Advance one chain by one step; ordinary array code, whichever way it runs.

    The carry is (state, observers' carries), and a marker where the energy has to be watched: 0, and NaN for ever once
    the energy was not finite.
    """
    state, watched, *marker = carry
    dtype = state.positions.dtype
    if temperature is None:
        state = state._replace(energy=energy)
    else:  # what the integrator cached of the energy belongs to the temperature of the step before
        state = integrator.under(state, energy.with_temperature(temperature))
    new, info = integrator.step(state, noise, beta)
    seen = Observation(step, state.positions, info.energy, info.acceptance)
    watched = tuple(o.update(w, seen) for o, w in zip(observers, watched, strict=True))
    new = new._replace(positions=new.positions.astype(dtype), energy=None)
    finite = jnp.isfinite(info.energy)
    return (new, watched, *(jnp.where(finite, m, jnp.nan) for m in marker))


def map_lanes(function: Any, lanes: Any) -> Any:
    """`jax.vmap` of array code in batches of one size, so that no lane's bits depend on how many others there are."""
    return jax.lax.map(function, lanes, batch_size=_BATCH)


@functools.partial(jax.jit, static_argnames=("integrator",))
def start_carry(x: jax.Array, energy: Energy, observers: tuple[Observer, ...], *, integrator: Integrator) -> Any:
    """Carries of all lanes before the first step, each leaf with a leading lane axis."""

    def one(position: jax.Array) -> Any:
        state = integrator.init(energy, position)._replace(energy=None)
        value = energy(position)
        return state, tuple(o.start(position, value) for o in observers)

    return map_lanes(one, x)


@jax.jit
def start_energies(x: jax.Array, energy: Energy) -> jax.Array:
    """Energies of all lanes, shape (lanes,)."""
    return map_lanes(lambda position: energy(position), x)


@jax.jit
def look_again(observers: tuple[Observer, ...], carry: Any, energy: Energy, step: jax.Array) -> tuple[Any, ...]:
    """Observers' carries after they have seen the final state too, those that want to."""
    state, watched = carry

    def one(lane: tuple[jax.Array, tuple[Any, ...]]) -> tuple[Any, ...]:
        x, carries = lane
        value = energy(x)
        seen = Observation(step, x, value, jnp.ones_like(value))
        return tuple(o.update(w, seen) if o.sees_last else w for o, w in zip(observers, carries, strict=True))

    return map_lanes(one, (state.positions, watched))


def _examples(integrator: Integrator, carry: Any, temperature: bool, energy: Energy, observers: Any) -> tuple[Any, ...]:
    """Shapes of the arguments of `_one_step` for one chain."""
    one = lane_examples(carry)
    position = one[0].positions
    scalar = jax.ShapeDtypeStruct((), position.dtype)
    noise = integrator.noise_example(position.shape, position.dtype)
    shape_of = functools.partial(jax.tree.map, lambda a: jax.ShapeDtypeStruct(np.shape(a), jnp.result_type(a)))
    step = jax.ShapeDtypeStruct((), jnp.int32)
    return one, noise, step, scalar, scalar if temperature else None, shape_of(energy), shape_of(observers)


def unrolls(integrator: Integrator, carry: Any, temperature: bool, energy: Energy, observers: Any) -> bool:
    """Whether this system runs as scalars: its code has a scalar form, and not too large a one to compile."""
    if _size(integrator, carry) > 128:  # beyond this even counting takes long, and matrix products win anyway
        return False
    leaves, tree = jax.tree.flatten(_examples(integrator, carry, temperature, energy, observers))
    return _has_few_operations(integrator, tuple(leaves), tree)


@functools.lru_cache(maxsize=512)  # counting traces the step, which many short runs would pay for each time
def _has_few_operations(integrator: Integrator, leaves: tuple[Any, ...], tree: Any) -> bool:
    step = functools.partial(_one_step, integrator)
    try:
        return count_operations(step, *tree.unflatten(leaves)) <= _MOST_OPERATIONS
    except CannotUnrollError:
        return False


def _size(integrator: Integrator, carry: Any) -> int:
    """Normals that one step of one chain draws."""
    return math.prod(integrator.normals) * math.prod(carry[0].positions.shape[1:])


def _noise(integrator: Integrator, keys: jax.Array, step: jax.Array, size: int, dtype: Any) -> tuple[Any, Any]:
    """Normals of shape (size, lanes) and uniforms of shape (..., lanes), or None, for one step of all lanes."""
    word = step.astype(jnp.uint32)
    normal = normals(keys, word, size, dtype)
    shape = integrator.uniforms
    uniform = None if shape is None else uniforms(keys, word, size, dtype, count=math.prod(shape) if shape else 0)
    return normal, uniform


def _array_loop(integrator: Integrator, carry: Any, keys: Any, energy: Any, observers: Any, clock: Any) -> Any:
    betas, temperatures, first, count = clock
    lanes, n, d = carry[0].positions.shape
    dtype, size = carry[0].positions.dtype, _size(integrator, carry)
    step_all = jax.vmap(
        functools.partial(_one_step, integrator),
        in_axes=(0, Noise(0, 0) if integrator.needs_uniform else 0, None, None, None, None, None),
    )

    def body(i: jax.Array, carry: Any) -> Any:
        normal, uniform = _noise(integrator, keys, first + i, size, dtype)
        normal = normal.T.reshape(lanes, *integrator.normals, n, d)
        noise = Noise(normal, uniform.T) if integrator.needs_uniform else normal
        temperature = None if temperatures is None else temperatures[i]
        return step_all(carry, noise, first + i, betas[i], temperature, energy, observers)

    return jax.lax.fori_loop(0, count, body, carry)


def _trailing_loop(integrator: Integrator, carry: Any, keys: Any, energy: Any, observers: Any, clock: Any) -> Any:
    betas, temperatures, first, count = clock
    lanes, n, d = carry[0].positions.shape
    dtype, size = carry[0].positions.dtype, _size(integrator, carry)
    chain, noise, *shared = _examples(integrator, carry, temperatures is not None, energy, observers)
    step_all = over_trailing_lanes(functools.partial(_one_step, integrator), (chain, noise), tuple(shared))

    def body(i: jax.Array, carry: Any) -> Any:
        normal, uniform = _noise(integrator, keys, first + i, size, dtype)
        normal = normal.reshape(*integrator.normals, n, d, lanes)
        noise = Noise(normal, uniform) if integrator.needs_uniform else normal
        temperature = None if temperatures is None else temperatures[i]
        return step_all(lanes, carry, noise, first + i, betas[i], temperature, energy, observers)

    last = jax.tree.map(lambda a: jnp.moveaxis(a, 0, -1), carry)
    return jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), jax.lax.fori_loop(0, count, body, last))


def _scalar_loop(integrator: Integrator, carry: Any, keys: Any, energy: Any, observers: Any, clock: Any) -> Any:
    betas, temperatures, first, count = clock
    dtype, size = carry[0].positions.dtype, _size(integrator, carry)
    chain, noise, *shared = _examples(integrator, carry, temperatures is not None, energy, observers)
    step_all = vectorise(functools.partial(_one_step, integrator), (chain, noise), tuple(shared))

    def body(i: jax.Array, columns: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        normal, uniform = _noise(integrator, keys, first + i, size, dtype)
        drawn = tuple(normal[j] for j in range(size))
        if uniform is not None:
            drawn += tuple(uniform) if integrator.uniforms else (uniform,)
        temperature = None if temperatures is None else temperatures[i]
        return step_all(columns + drawn, first + i, betas[i], temperature, energy, observers)

    return from_columns(jax.lax.fori_loop(0, count, body, to_columns(carry)), chain)


def _plan(integrator: Integrator, carry: Any, energy: Any, observers: Any, clock: Any, scalars: bool, cpu: bool) -> Any:
    """The loop to run, and the lanes of its tiles."""
    if scalars:
        return _scalar_loop, _TILE if cpu else _WIDE_TILE
    if not cpu:
        return _array_loop, _WIDE_TILE
    examples = _examples(integrator, carry, clock[1] is not None, energy, observers)
    if largest_array(functools.partial(_one_step, integrator), *examples) <= _MOST_ENTRIES:
        return _trailing_loop, _TILE
    return _array_loop, _MATRIX_TILE


def _tiled(run: Any, carry: Any, keys: jax.Array, tile: int) -> Any:
    """Run a function of lanes over those of one device, a tile at a time, the last one filled up with copies."""
    lanes = keys.shape[1]
    tiles = math.ceil(lanes / tile)
    spare = tiles * tile - lanes

    def filled(a: jax.Array) -> jax.Array:
        return jnp.concatenate([a, jnp.broadcast_to(a[:1], (spare, *a.shape[1:]))]) if spare else a

    whole, whole_keys = jax.tree.map(filled, carry), filled(keys.T).T
    if tiles == 1:
        return jax.tree.map(lambda a: a[:lanes], run(whole, whole_keys))
    split = jax.tree.map(lambda a: a.reshape(tiles, tile, *a.shape[1:]), whole)
    split_keys = whole_keys.reshape(2, tiles, tile).transpose(1, 0, 2)
    out = jax.lax.map(lambda pair: run(*pair), (split, split_keys))
    return jax.tree.map(lambda a: a.reshape(tiles * tile, *a.shape[2:])[:lanes], out)


@functools.partial(jax.jit, static_argnames=("integrator", "scalars", "mesh"))
def advance_chunk(
    carry: Any,
    keys: jax.Array,
    energy: Energy,
    observers: tuple[Observer, ...],
    betas: jax.Array,
    temperatures: jax.Array | None,
    first: jax.Array,
    count: jax.Array,
    *,
    integrator: Integrator,
    scalars: bool,
    mesh: Mesh,
) -> tuple[Any, jax.Array]:
    """Advance all lanes by `count` steps.

    Args:
        carry: states and observers' carries, leading axis lanes.
        keys: shape (2, lanes) uint32.
        energy: shared by all lanes.
        observers: their device parts.
        betas: inverse temperatures of the steps, at least `count` of them.
        temperatures: tau of the steps, or None.
        first: index of the first step, int32.
        count: how many steps; a traced number, so one compilation serves chunks of every length.
        integrator: the scheme.
        scalars: run as scalars (`unrolls`).
        mesh: devices.

    Returns:
        The new carry, and for each lane whether its positions are unit rows and its energy is finite, now and at every
        step of the chunk.
    """
    lanes, across = PartitionSpec("chains"), PartitionSpec(None, "chains")
    everywhere = PartitionSpec()
    cpu = mesh.devices.flat[0].platform == "cpu"

    def on_device(carry: Any, keys: Any, energy: Any, observers: Any, clock: Any) -> Any:
        _, temperatures, _, count = clock
        tau = None if temperatures is None else temperatures[jnp.maximum(count - 1, 0)]
        final = energy if tau is None else energy.with_temperature(tau)
        loop, tile = _plan(integrator, carry, energy, observers, clock, scalars, cpu)

        def run(carry: Any, keys: jax.Array) -> Any:
            start = () if energy.gradient_shows_failure else (jnp.zeros(keys.shape[1], carry[0].positions.dtype),)
            state, watched, *marker = loop(integrator, (*carry, *start), keys, energy, observers, clock)
            x = state.positions
            healthy = jnp.all(jnp.abs(jnp.sum(x**2, axis=-1) - 1) < 1e-3, axis=-1) & jnp.isfinite(jax.vmap(final)(x))
            return (state, watched), functools.reduce(lambda good, m: good & (m == 0), marker, healthy)

        return _tiled(run, carry, keys, tile if cpu else min(tile, keys.shape[1]))

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(lanes, across, everywhere, everywhere, everywhere),
        out_specs=(lanes, lanes),
        check_vma=False,
    )(carry, keys, energy, observers, (betas, temperatures, first, count))
