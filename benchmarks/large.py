"""A large system, (256, 64) with 64 chains: what fraction of the machine's own matrix-product rate does a step reach?

Flops counted, per chain and step, are those of the three products that one energy with its gradient needs: the
similarities S = X X^T, 2 n^2 d, and for dE/dX = (G + G^T) X, with G = dE/dS, the products G X and G^T X of reverse-mode
differentiation, 4 n^2 d. Together 6 n^2 d, 25 million at this shape; exponentials, noise and geometry count nothing. (A
step that adds G and G^T first needs a third less, and is credited with the full number.)

The machine's rate is that of these three products alone, in float32 at full precision, batched over the same chains:
the fastest of one batched product on one device, the same spread over all devices, and one chain after the other there.
The fraction is time of the products over time of a step, the two taking turns. Target: at least .4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.implementations import OURS
from benchmarks.systems import system
from benchmarks.timing import Record, fitted, interleaved, record
from infonce_jax.devices import chain_mesh

__all__ = ["flops", "measure", "product_calls"]

TARGET = 0.4
_SHAPE, _CHAINS = (256, 64), 64
_PRODUCTS = 20  # repetitions per call, so that the call itself does not count


def flops(n: int, d: int) -> int:
    """Of the matrix products of one step of one chain, 6 n^2 d."""
    return 6 * n * n * d


def _products(x: jax.Array, g: jax.Array) -> jax.Array:
    """The three products of one chain, x of shape (n, d), g of shape (n, n); each one is needed for the result."""
    multiply = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    s = jax.lax.optimization_barrier(multiply(x, x.T))
    return multiply(g, x) + multiply(g.T, x) + s[:, : x.shape[1]]


def _repeated(one_round: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def body(_: int, x: jax.Array, g: jax.Array) -> jax.Array:
        return one_round(x, g) * 1e-3  # stays in range, and no round can be skipped

    return lambda x, g: jax.lax.fori_loop(0, _PRODUCTS, functools.partial(body, g=g), x)


def product_calls(n: int, d: int, chains: int) -> dict[str, Callable[[], jax.Array]]:
    """Ways to form the products of all chains `_PRODUCTS` times."""
    rng = np.random.default_rng(0)
    x, g = (jnp.asarray(rng.normal(size=(chains, n, k)) / n, jnp.float32) for k in (d, n))
    mesh, lanes = chain_mesh(), PartitionSpec("chains")
    batched, one = _repeated(jax.vmap(_products)), _repeated(_products)

    def single(x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.lax.map(lambda pair: one(*pair), (x, g))

    ways: dict[str, Callable] = {"batched": functools.partial(jax.jit(batched), x, g)}
    if chains % mesh.size == 0:
        spread = [jax.device_put(a, NamedSharding(mesh, lanes)) for a in (x, g)]
        for name, way in (("spread", batched), ("spread, one by one", single)):
            mapped = jax.shard_map(way, mesh=mesh, in_specs=(lanes, lanes), out_specs=lanes, check_vma=False)
            ways[name] = functools.partial(jax.jit(mapped), *spread)
    return ways


def measure(shape: tuple[int, int] = _SHAPE, chains: int = _CHAINS) -> list[Record]:
    """Time steps and products, print the fraction, return one record."""
    what = system(*shape)
    timing = fitted(OURS, what, chains, flops(*shape) / 2e10)
    ways = product_calls(*shape, chains)
    begun = timing.prepared.begin(0)
    seconds = interleaved({OURS.name: lambda: timing.prepared.run(begun), **ways})
    work = flops(*shape) * chains
    step_rate = work * timing.steps / float(np.median(seconds[OURS.name]))
    rates = {name: work * _PRODUCTS / float(np.median(seconds[name])) for name in ways}
    best = max(rates, key=lambda name: rates[name])
    fraction = step_rate / rates[best]
    print(f"\nlarge: {what.name}, n = {what.n}, d = {what.d}, {chains} chains, path {timing.prepared.path}")
    print("  matrix products alone: " + ", ".join(f"{name} {rate / 1e9:.3g} Gflop/s" for name, rate in rates.items()))
    print(f"  a step: {step_rate / 1e9:.3g} Gflop/s, {fraction:.2g} of the fastest  target >= {TARGET}: "
          f"{'met' if fraction >= TARGET else 'NOT met'}")  # fmt: skip
    return [record("large", OURS.name, what, chains, timing, seconds[OURS.name], fraction_of_products=fraction,
                   product_flops_per_second=rates[best])]  # fmt: skip
