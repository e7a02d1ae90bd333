"""The compiled inner loop: thousands of chains, a chunk of steps at a time.

There are two ways to run the same step. Small systems go through `infonce_jax.unroll`: one chain becomes a tuple of
scalars and a batch of chains a tuple of vectors. Larger ones keep their arrays under `jax.vmap`. Either way lanes are
spread over the devices of a mesh and, on each, worked off in tiles that stay in the cache.
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
from infonce_jax.integrators.protocol import Integrator, State
from infonce_jax.lanes import from_columns, lane_examples, to_columns, vectorise
from infonce_jax.noise import Noise, normals, uniforms
from infonce_jax.unroll import CannotUnrollError, count_operations

__all__ = ["advance_chunk", "cast", "lane_count", "look_again", "map_lanes", "start_carry", "start_energies", "unrolls"]

# Lanes come in multiples of this: XLA compiles a batch of one, or one with a ragged end, into other arithmetic.
_LANE_MULTIPLE = 16
# Lanes per tile of the scalar loop: vectors of a state with a few dozen entries fit in a megabyte of cache.
_TILE = 4096
# Lanes per tile of array code on a CPU. XLA orders its sums and products by the size of the batch, so bits that do not
# depend on the number of chains need batches of one size; the smallest is also the fastest there.
_ARRAY_TILE = _LANE_MULTIPLE
# Scalar operations beyond which unrolling costs more compile time than it saves (about 20 s at this size on two cores).
_MOST_OPERATIONS = 20_000


def cast(tree: Any, dtype: np.dtype) -> Any:
    """Floating leaves in the precision of the run, once and not at every step."""
    arrays = jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda a: a.astype(dtype) if np.issubdtype(a.dtype, np.floating) else a, arrays)


def lane_count(num_chains: int, num_devices: int) -> int:
    """Chains padded so that every device gets whole tiles, or whole multiples of `_LANE_MULTIPLE` below one tile."""
    per_device = math.ceil(num_chains / num_devices / _LANE_MULTIPLE) * _LANE_MULTIPLE
    if per_device > _TILE:
        per_device = math.ceil(num_chains / num_devices / _TILE) * _TILE
    return per_device * num_devices


def _one_step(
    integrator: Integrator,
    carry: tuple[State, tuple[Any, ...]],
    noise: Any,
    step: jax.Array,
    beta: jax.Array,
    temperature: jax.Array | None,
    energy: Energy,
    observers: tuple[Observer, ...],
) -> tuple[State, tuple[Any, ...]]:
    """Advance one chain by one step; ordinary array code, used by both ways."""
    state, watched = carry
    dtype = state.positions.dtype
    if temperature is None:
        state = state._replace(energy=energy)
    else:  # what the integrator cached of the energy belongs to the temperature of the step before
        state = integrator.under(state, energy.with_temperature(temperature))
    new, info = integrator.step(state, noise, beta)
    seen = Observation(step, state.positions, info.energy, info.acceptance)
    watched = tuple(o.update(w, seen) for o, w in zip(observers, watched, strict=True))
    new = new._replace(positions=new.positions.astype(dtype), energy=None)
    return new, watched


def map_lanes(function: Any, lanes: Any) -> Any:
    """`jax.vmap` of array code in batches of one size, so that no lane's bits depend on how many others there are."""
    return jax.lax.map(function, lanes, batch_size=_ARRAY_TILE)


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
    noise = jax.ShapeDtypeStruct((*integrator.normals, *position.shape), position.dtype)
    if integrator.uniforms is not None:
        noise = Noise(noise, jax.ShapeDtypeStruct(integrator.uniforms, position.dtype))
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
    return jax.lax.optimization_barrier((normal, uniform))


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


def _tiled(loop: Any, carry: Any, keys: jax.Array, tile: int) -> Any:
    """Run a loop over the lanes of one device, a tile at a time."""
    lanes = keys.shape[1]
    if lanes <= tile:
        return loop(carry, keys)
    tiles = lanes // tile
    split = jax.tree.map(lambda a: a.reshape(tiles, tile, *a.shape[1:]), carry)
    split_keys = keys.reshape(2, tiles, tile).transpose(1, 0, 2)
    out = jax.lax.map(lambda pair: loop(*pair), (split, split_keys))
    return jax.tree.map(lambda a: a.reshape(lanes, *a.shape[2:]), out)


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
        The new carry, and for each lane whether its positions are unit rows and its energy is finite.
    """
    loop = _scalar_loop if scalars else _array_loop
    tile = _TILE if scalars or mesh.devices.flat[0].platform != "cpu" else _ARRAY_TILE
    lanes, across = PartitionSpec("chains"), PartitionSpec(None, "chains")
    everywhere = PartitionSpec()

    def on_device(carry: Any, keys: Any, energy: Any, observers: Any, clock: Any) -> Any:
        _, temperatures, _, count = clock
        new = _tiled(lambda c, k: loop(integrator, c, k, energy, observers, clock), carry, keys, tile)
        x = new[0].positions
        tau = None if temperatures is None else temperatures[jnp.maximum(count - 1, 0)]
        values = jax.vmap(energy if tau is None else energy.with_temperature(tau))(x)
        on_sphere = jnp.all(jnp.abs(jnp.sum(x**2, axis=-1) - 1) < 1e-3, axis=-1)
        return new, on_sphere & jnp.isfinite(values)

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(lanes, across, everywhere, everywhere, everywhere),
        out_specs=(lanes, lanes),
        check_vma=False,
    )(carry, keys, energy, observers, (betas, temperatures, first, count))
