"""Array code of one configuration over many at once, with the lanes as the last axis of every array.

`jax.vmap` puts the lanes first. Products are then many small matrices, each a call of a library or a loop over short
rows, and sums run along rows of a few entries. With the lanes last every operation, products and sums included, is
elementwise along vectors of lanes, which is what a processor does best; and unlike the scalar code of
`infonce_jax.unroll` the program keeps the size of the array code, so it compiles in a second or two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters import partial_eval

from infonce_jax.unroll import COSTS, ELEMENTWISE, INLINED, inner_jaxpr

__all__ = ["largest_array", "over_trailing_lanes"]

# Terms of a sum in one kernel. LLVM stops vectorising a loop with too many inputs. Measured, ns of one core per
# chain-step of a ring with 64 lanes: (32, 8) with 4 terms 2770, 8 terms 2740, 16 terms 3890, all at once 5850.
_TERMS = 8
# Longer sums are left to XLA: written out they would be too many kernels to compile.
_LONGEST = 64
# Operations of at least this cost (in additions) are not repeated in every kernel that reads them.
_HOLD_FROM = 12
_REDUCTIONS = {"reduce_sum": jnp.add, "reduce_max": jnp.maximum, "reduce_min": jnp.minimum,
               "reduce_prod": jnp.multiply}  # fmt: skip

Marked = tuple[Any, bool]  # a value, and whether its last axis is the lanes


def over_trailing_lanes(
    function: Callable[..., Any], examples: tuple[Any, ...], shared_examples: tuple[Any, ...]
) -> Callable[..., Any]:
    """Turn `function(*lane, *shared)` of one configuration into one over arrays whose last axis is the lanes.

    Args:
        function: array code; the first `len(examples)` arguments differ from lane to lane, the others are shared.
        examples: shapes of one lane's arguments.
        shared_examples: shapes of the shared arguments.

    Returns:
        `run(lanes, *arguments)` -> the result, with a trailing axis of length `lanes` on every array.
    """
    jaxpr, consts, tree = _trace(function, *examples, *shared_examples)
    varying = len(jax.tree.leaves(examples))

    def run(lanes: int, *arguments: Any) -> Any:
        marked = [(leaf, place < varying) for place, leaf in enumerate(jax.tree.leaves(arguments))]
        return tree.unflatten([_spread(x, lanes) for x in _evaluate(jaxpr, consts, marked, lanes)])

    return run


def largest_array(function: Callable[..., Any], *examples: Any) -> int:
    """Entries of the largest array that the function computes, for one configuration."""
    jaxpr, _, _ = _trace(function, *examples)
    return _largest(jaxpr)


def _trace(function: Callable[..., Any], *examples: Any) -> tuple[Any, list[Any], Any]:
    closed, out_shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return jaxpr, closed.consts, jax.tree.structure(out_shape)


def _largest(jaxpr: Any) -> int:
    own = [math.prod(v.aval.shape) for equation in jaxpr.eqns for v in equation.outvars]
    inner = [_largest(inner_jaxpr(equation)[0]) for equation in jaxpr.eqns if equation.primitive.name in INLINED]
    return max([0, *own, *inner])


def _evaluate(jaxpr: Any, consts: list[Any], arguments: list[Marked], lanes: int) -> list[Marked]:
    values: dict[Any, Marked] = {}
    values.update(zip(jaxpr.constvars, [(c, False) for c in consts], strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: Any) -> Marked:
        if isinstance(variable, jex.Literal):
            aval: Any = variable.aval
            return np.asarray(variable.val, aval.dtype), False
        return values[variable]

    for equation in jaxpr.eqns:
        inputs = [read(v) for v in equation.invars]
        if equation.primitive.name in INLINED:
            inner, inner_consts = inner_jaxpr(equation)
            outputs = _evaluate(inner, inner_consts, inputs, lanes)
        elif any(batched for _, batched in inputs):
            outputs = [(x, True) for x in _apply(equation, inputs, lanes)]
        else:
            outputs = [(x, False) for x in _bind(equation, *(x for x, _ in inputs))]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _bind(equation: Any, *inputs: Any) -> list[Any]:
    out = equation.primitive.bind(*inputs, **equation.params)
    return list(out) if equation.primitive.multiple_results else [out]


def _apply(equation: Any, inputs: list[Marked], lanes: int) -> list[Any]:
    """One operation on inputs of which at least one varies from lane to lane."""
    name, params = equation.primitive.name, equation.params
    shape = equation.outvars[0].aval.shape if equation.outvars else ()  # a callback may have no result
    x, axis = inputs[0][0], len(shape)
    if name in ELEMENTWISE:
        out = _bind(equation, *(_fit(value, (*shape, lanes)) for value in inputs))
        return list(jax.lax.optimization_barrier(out)) if COSTS.get(name, 1) >= _HOLD_FROM else out
    if name == "broadcast_in_dim":
        return [jax.lax.broadcast_in_dim(x, (*shape, lanes), (*params["broadcast_dimensions"], axis))]
    if name in ("reshape", "squeeze"):
        return [x.reshape(*shape, lanes)]
    if name == "transpose":
        return [x.transpose(*params["permutation"], axis)]
    if name == "concatenate":
        return [jnp.concatenate([_spread(value, lanes) for value in inputs], axis=params["dimension"])]
    if name in _REDUCTIONS and all(x.shape[a] in range(1, _LONGEST + 1) for a in params["axes"]):
        for a in sorted(params["axes"], reverse=True):
            x = _combined(_REDUCTIONS[name], [jax.lax.index_in_dim(x, k, a, False) for k in range(x.shape[a])])
        return [x]
    if name == "dot_general" and 0 < _depth(equation) <= _LONGEST:
        return [_product(equation, inputs)]
    axes = [-1 if batched else None for _, batched in inputs]
    return jax.vmap(functools.partial(_bind, equation), in_axes=axes, out_axes=-1)(*(y for y, _ in inputs))


def _spread(value: Marked, lanes: int) -> jax.Array:
    """The value with a trailing axis of lanes."""
    x, batched = value
    return x if batched else jnp.broadcast_to(jnp.asarray(x)[..., None], (*jnp.shape(x), lanes))


def _fit(value: Marked, shape: tuple[int, ...]) -> Any:
    """The value in the shape of an elementwise result; what is not of that shape is a scalar of each configuration."""
    x, batched = value
    if jnp.shape(x) == shape:
        return x
    own = tuple(range(jnp.ndim(x) - batched))
    return jax.lax.broadcast_in_dim(jnp.asarray(x), shape, own + (len(shape) - 1,) * batched)


def _depth(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    return math.prod(equation.invars[0].aval.shape[a] for a in contracted)


def _product(equation: Any, inputs: list[Marked]) -> jax.Array:
    """A product as a sum of outer products over what is contracted."""
    (lc, rc), (lb, rb) = equation.params["dimension_numbers"]
    dtype, sides = equation.outvars[0].aval.dtype, []
    for (x, batched), contracted, batch in zip(inputs, (lc, rc), (lb, rb), strict=True):
        # Each entry is read many times, so it must not be computed anew each time.
        y = jax.lax.optimization_barrier(x) if batched else jnp.asarray(x)[..., None]
        free = [a for a in range(y.ndim - 1) if a not in (*contracted, *batch)]
        y = y.astype(dtype).transpose(*contracted, *batch, *free, y.ndim - 1)
        sides.append((y.reshape(_depth(equation), *y.shape[len(contracted) :]), len(free)))
    (left, left_free), (right, right_free) = sides
    middle = 1 + len(lb)
    left = left.reshape(*left.shape[:-1], *(1,) * right_free, left.shape[-1])
    right = right.reshape(*right.shape[:middle], *(1,) * left_free, *right.shape[middle:])
    return _combined(jnp.add, [left[k] * right[k] for k in range(len(left))])


def _combined(combine: Callable[..., jax.Array], terms: list[jax.Array]) -> jax.Array:
    """Terms combined from the first to the last, a few in each kernel."""
    total, rest = terms[0], terms[1:]
    for start in range(0, max(len(rest), 1), _TERMS):
        total = jax.lax.optimization_barrier(functools.reduce(combine, rest[start : start + _TERMS], total))
    return total
