"""Rewrite a function of small arrays as a function of scalars.

A chain of a small system is a handful of numbers. Written with arrays and vmapped, its inner loop works on thousands of
tiny matrices and spends its time on bookkeeping. Written with scalars, `jax.vmap` turns every scalar into one long
vector with a lane per chain, which is the shape that processors like. `unroll` does the rewriting: it traces the array
code once, takes it apart entry by entry into a graph of scalar operations, folding constants and sharing equal
subexpressions (the similarities s_ij and s_ji, and so their exponentials), and then replays what is needed of it.
Energies, integrators and observers stay ordinary array code.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters import partial_eval

__all__ = ["CannotUnrollError", "as_entries", "count_operations", "unroll"]


class CannotUnrollError(NotImplementedError):
    """The traced function uses an operation that has no entry-by-entry form here (a loop, a sort, a solver, ...)."""


_COMMUTATIVE = {"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne", "add_any"}
ELEMENTWISE = _COMMUTATIVE | {
    "sub", "div", "rem", "pow", "integer_pow", "neg", "sign", "abs", "floor", "ceil", "round", "exp", "exp2", "log",
    "expm1", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "logistic", "erf", "erfc", "erf_inv", "lgamma", "digamma", "square", "not",
    "lt", "le", "gt", "ge", "select_n", "clamp", "is_finite", "nextafter", "convert_element_type", "copy", "copy_p",
    "bitcast_convert_type", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count",
    "stop_gradient", "reduce_precision", "one_minus_square", "polynomial",
}  # fmt: skip
# These only move entries about (all operands after the first are constant indices).
_MOVING = {
    "reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "rev", "gather", "dynamic_slice",
    "split", "tile", "unstack", "reshard",
}  # fmt: skip
_FOLDS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "mul", "reduce_and": "and",
          "reduce_or": "or"}  # fmt: skip
INLINED = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint",
            "core_call"}  # fmt: skip
# Rough costs on a CPU, in additions. XLA recomputes a value in each kernel that reads it, unless a barrier holds it.
COSTS = {"exp": 12, "exp2": 12, "log": 14, "log1p": 16, "expm1": 16, "sin": 30, "cos": 30, "tan": 40, "tanh": 20,
          "pow": 30, "logistic": 16, "atan2": 30, "acos": 30, "asin": 30, "atan": 25, "erf": 20, "div": 5, "sqrt": 5,
          "rsqrt": 6}  # fmt: skip
# A value with several readers is held when recomputing it would cost more than writing and reading it once.
_HOLD_FROM = 6


@dataclasses.dataclass(eq=False, slots=True)
class _Node:
    """One scalar operation, or one scalar input when it has no primitive."""

    primitive: Any
    params: dict[str, Any]
    operands: tuple[Any, ...]
    dtypes: tuple[Any, ...]  # of the operands
    dtype: Any


def unroll(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """Return `function` rewritten to compute entry by entry, for arguments shaped like `examples`.

    Args:
        function: array code of one configuration; pytrees of arrays in, pytree of arrays out.
        *examples: arguments, or `jax.ShapeDtypeStruct`s in their place, that fix shapes and dtypes.

    Returns:
        A function of pytrees in which every array leaf is an object array of scalars with the same shape. Build such
        leaves with `numpy.array(..., dtype=object)`; plain arrays are taken as constants.

    Raises:
        CannotUnrollError: at this call, when the code has a loop, a sort or another operation without a scalar form.
    """
    graph, outputs, out_tree = _take_apart(function, examples)
    live = _live(outputs)

    def unrolled(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(arguments, is_leaf=lambda leaf: isinstance(leaf, np.ndarray))
        entries = [entry for leaf in leaves for entry in (leaf.ravel() if isinstance(leaf, np.ndarray) else [leaf])]
        values = _replay(graph.inputs, live, entries)
        filled = [as_entries(o.shape, [values[id(e)] if _is_node(e) else e for e in o.ravel()]) for o in outputs]
        return jax.tree.unflatten(out_tree, filled)

    return unrolled


def count_operations(function: Callable[..., Any], *examples: Any) -> int:
    """Number of distinct scalar operations in the unrolled function: a proxy for its compile time.

    Raises:
        CannotUnrollError: as `unroll`.
    """
    _, outputs, _ = _take_apart(function, examples)
    return sum(node.primitive is not None for node, _ in _live(outputs))


def _take_apart(function: Callable[..., Any], examples: tuple[Any, ...]) -> tuple[_Graph, list[np.ndarray], Any]:
    closed, out_shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    _check(jaxpr)
    graph = _Graph()
    shapes: list[Any] = [v.aval for v in jaxpr.invars]
    leaves = [graph.input(s.shape, s.dtype) for s in shapes]
    outputs = graph.run(jaxpr, closed.consts, leaves)
    return graph, [_objects(o) for o in outputs], jax.tree.structure(out_shape)


def _live(outputs: list[np.ndarray]) -> list[tuple[_Node, bool]]:
    """The nodes that the outputs need, operands first, each with whether to hold its value behind a barrier."""
    order: list[_Node] = []
    seen: set[int] = set()
    stack = [(e, False) for o in outputs for e in o.ravel() if _is_node(e)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((x, False) for x in node.operands if _is_node(x) and id(x) not in seen)
    readers: dict[int, int] = {}
    for node in order:
        for x in {id(x) for x in node.operands if _is_node(x)}:
            readers[x] = readers.get(x, 0) + 1
    cost: dict[int, int] = {}
    plan = []
    for node in order:
        own = 0 if node.primitive is None else COSTS.get(node.primitive.name, 1)
        whole = own + sum(cost[id(x)] for x in node.operands if _is_node(x))
        hold = readers.get(id(node), 0) > 1 and whole >= _HOLD_FROM
        cost[id(node)] = 0 if hold else whole
        plan.append((node, hold))
    return plan


def _replay(inputs: list[_Node], live: list[tuple[_Node, bool]], entries: list[Any]) -> dict[int, Any]:
    values: dict[int, Any] = {id(node): entry for node, entry in zip(inputs, entries, strict=True)}
    for node, hold in live:
        if node.primitive is not None:
            operands = [values[id(x)] if _is_node(x) else np.asarray(x, dtype=t)
                        for x, t in zip(node.operands, node.dtypes, strict=True)]  # fmt: skip
            value = node.primitive.bind(*operands, **node.params)
            values[id(node)] = jax.lax.optimization_barrier(value) if hold else value
    return values


def as_entries(shape_or_array: Any, entries: list[Any] | None = None) -> np.ndarray:
    """An object array of scalars: `as_entries(array)` takes a traced array apart, `as_entries(shape, list)` builds one.

    Entries are put in one by one, since numpy alone would try to look inside tracers.
    """
    if entries is None:
        array = shape_or_array
        shape = tuple(np.shape(array))
        entries = [array[index] for index in np.ndindex(*shape)] if shape else [array]
    else:
        shape = tuple(shape_or_array)
    out = np.empty(len(entries), dtype=object)
    for place, entry in enumerate(entries):
        out[place] = entry
    return out.reshape(shape)


def _check(jaxpr: Any) -> None:
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in INLINED:
            _check(inner_jaxpr(equation)[0])
        elif not (
            name in ELEMENTWISE
            or name in _MOVING
            or name in _FOLDS
            or hasattr(_Graph, f"_do_{name.replace('-', '_')}")
            or not equation.invars
            or all(isinstance(v, jex.Literal) for v in equation.invars)
        ):
            raise CannotUnrollError(f"operation '{name}' has no entry-by-entry form")


def inner_jaxpr(equation: Any) -> tuple[Any, list[Any]]:
    """The program inside an equation of `INLINED`, and its constants."""
    inner = next(equation.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in equation.params)
    return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, [])


class _Graph:
    """Builds scalar nodes from one jaxpr, remembering what it has built."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.inputs: list[_Node] = []

    def input(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nodes = [_Node(None, {}, (), (), dtype) for _ in range(math.prod(shape))]
        self.inputs.extend(nodes)
        return as_entries(shape, nodes)

    def run(self, jaxpr: Any, consts: list[Any], arguments: list[np.ndarray]) -> list[np.ndarray]:
        values: dict[Any, np.ndarray] = {}
        values.update(zip(jaxpr.constvars, [np.asarray(c) for c in consts], strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(variable: Any) -> np.ndarray:
            return np.asarray(variable.val) if isinstance(variable, jex.Literal) else values[variable]

        for equation in jaxpr.eqns:
            inputs = [read(v) for v in equation.invars]
            if equation.primitive.name in INLINED:
                inner, inner_consts = inner_jaxpr(equation)
                outputs = self.run(inner, inner_consts, inputs)
            else:
                outputs = self.evaluate(equation, inputs)
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def evaluate(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        name = equation.primitive.name
        if name == "reshard":  # jnp.where asks for one under a mesh, and where an array sits is nothing to its entries
            return inputs
        typed = zip(inputs, equation.invars, strict=True)
        inputs = [
            x if x.size else np.zeros(x.shape, v.aval.dtype) for x, v in typed
        ]  # no entry, so nothing that varies
        if all(x.dtype != object for x in inputs):
            return _fold_constants(equation, inputs)
        if name in ELEMENTWISE:
            return [self.elementwise(equation, inputs)]
        if name in _MOVING:
            return _move(equation, inputs)
        if name in _FOLDS:
            return [self.fold(_FOLDS[name], inputs[0], equation.params["axes"], equation.outvars[0].aval.dtype)]
        return getattr(self, f"_do_{name.replace('-', '_')}")(equation, inputs)

    def elementwise(self, equation: Any, inputs: list[np.ndarray]) -> np.ndarray:
        out = equation.outvars[0].aval
        lanes = [np.broadcast_to(x, out.shape).ravel() for x in inputs]
        dtypes = tuple(v.aval.dtype for v in equation.invars)
        params = dict(equation.params)
        build = functools.partial(self.scalar, equation.primitive, params, dtypes=dtypes, dtype=out.dtype)
        return as_entries(out.shape, [build(operands) for operands in zip(*lanes, strict=True)])

    def scalar(self, primitive: Any, params: dict[str, Any], operands: tuple[Any, ...], dtypes: Any, dtype: Any) -> Any:
        name = primitive.name
        simple = _simplify(name, operands, dtype)
        if simple is not None:
            return simple[0]
        # Constants are told apart by their text: 0.0 equals -0.0, but what divides by them does not.
        keys = [id(x) if _is_node(x) else (str(t), repr(np.asarray(x).item()))
                for x, t in zip(operands, dtypes, strict=True)]  # fmt: skip
        if name in _COMMUTATIVE:
            keys.sort(key=repr)
        key = (name, tuple(keys), tuple((k, str(v)) for k, v in params.items()))
        if key not in self.known:
            if any(_is_node(x) for x in operands):
                self.known[key] = _Node(primitive, params, operands, dtypes, dtype)
            else:
                with jax.ensure_compile_time_eval():
                    ready = [np.asarray(x, dtype=t) for x, t in zip(operands, dtypes, strict=True)]
                    self.known[key] = np.asarray(primitive.bind(*ready, **params))[()]
        return self.known[key]

    def combine(self, name: str, left: Any, right: Any, dtype: Any) -> Any:
        return self.scalar(_PRIMITIVES[name], {}, (left, right), (dtype, dtype), dtype)

    def convert(self, array: np.ndarray, old: Any, new: Any) -> np.ndarray:
        """Entries cast from one dtype to another; nothing to do for most."""
        if old == new:
            return array
        params = {"new_dtype": np.dtype(new), "weak_type": False, "sharding": None}
        cast = functools.partial(self.scalar, jax.lax.convert_element_type_p, params, dtypes=(old,), dtype=new)
        return as_entries(array.shape, [cast((entry,)) for entry in array.ravel()])

    def fold(self, name: str, array: np.ndarray, axes: tuple[int, ...], dtype: Any) -> np.ndarray:
        kept = [a for a in range(array.ndim) if a not in axes]
        together = math.prod(array.shape[a] for a in axes)
        step = functools.partial(self.combine, name, dtype=dtype)
        out = [functools.reduce(step, row) for row in array.transpose([*kept, *axes]).reshape(-1, together)]
        return as_entries(tuple(array.shape[a] for a in kept), out)

    def _do_dot_general(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        dtype = equation.outvars[0].aval.dtype  # the preferred type, in which products are formed and summed
        left, right = (self.convert(x, v.aval.dtype, dtype) for x, v in zip(inputs, equation.invars, strict=True))
        (lc, rc), (lb, rb) = equation.params["dimension_numbers"]
        lf = [a for a in range(left.ndim) if a not in (*lc, *lb)]
        rf = [a for a in range(right.ndim) if a not in (*rc, *rb)]
        batch = math.prod(left.shape[a] for a in lb)
        depth = math.prod(left.shape[a] for a in lc)
        lm = left.transpose([*lb, *lf, *lc]).reshape(batch, -1, depth)
        rm = right.transpose([*rb, *rf, *rc]).reshape(batch, -1, depth)
        out = []
        for b in range(batch):
            for row in lm[b]:
                for column in rm[b]:
                    terms = [self.combine("mul", x, y, dtype) for x, y in zip(row, column, strict=True)]
                    out.append(functools.reduce(functools.partial(self.combine, "add", dtype=dtype), terms))
        return [as_entries(equation.outvars[0].aval.shape, out)]

    def _do_concatenate(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        parts = [as_entries(x.shape, list(x.ravel())) for x in inputs]  # keeps the dtype of constants, astype does not
        return [np.concatenate(parts, axis=equation.params["dimension"])]

    def _do_stack(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        parts = [as_entries(x.shape, list(x.ravel())) for x in inputs]
        return [np.stack(parts, axis=equation.params["axis"])]

    def _do_pad(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        array, filler = inputs
        numbers = np.arange(1, array.size + 1, dtype=np.int32).reshape(array.shape)
        with jax.ensure_compile_time_eval():
            places = jax.lax.pad(numbers, np.int32(0), equation.params["padding_config"])
        entries = [filler[()], *array.ravel()]
        return [as_entries(places.shape, [entries[i] for i in np.asarray(places).ravel()])]

    def _do_scatter_add(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        array, indices, updates = inputs
        if indices.dtype == object:
            raise CannotUnrollError("a scatter whose indices depend on the state has no entry-by-entry form")
        out = as_entries((array.size,), list(array.ravel()))
        dtype = equation.invars[0].aval.dtype  # the update function in the parameters was traced for this type
        basis = np.eye(updates.size, dtype=dtype).reshape(updates.size, *updates.shape)
        zeros = np.zeros(array.shape, dtype)
        for update, entry in zip(basis, updates.ravel(), strict=True):
            with jax.ensure_compile_time_eval():
                hit = np.asarray(equation.primitive.bind(zeros, indices, update, **equation.params)).ravel()
            for place in np.flatnonzero(hit):
                out[place] = self.combine("add", out[place], entry, dtype)
        return [out.reshape(array.shape)]


_PRIMITIVES = {"add": jax.lax.add_p, "mul": jax.lax.mul_p, "max": jax.lax.max_p, "min": jax.lax.min_p,
               "and": jax.lax.and_p, "or": jax.lax.or_p}  # fmt: skip


def _is_node(value: Any) -> bool:
    return isinstance(value, _Node)


def _objects(array: np.ndarray) -> np.ndarray:
    """An object array with numpy scalars kept as such, so that constants keep their dtype."""
    return array if array.dtype == object else as_entries(array.shape, list(array.ravel()))


def _simplify(name: str, operands: tuple[Any, ...], dtype: Any) -> tuple[Any] | None:
    """Identities that hold for every float, NaN and infinity included."""
    if name in ("copy", "copy_p", "stop_gradient"):
        return (operands[0],)
    if name == "select_n" and not _is_node(operands[0]):
        return (operands[1 + int(operands[0])],)
    if name == "convert_element_type" and _is_node(operands[0]) and operands[0].dtype == dtype:
        return (operands[0],)
    if len(operands) == 2:
        for constant, other, names in (
            (operands[0], operands[1], {"add": 0, "add_any": 0, "mul": 1}),
            (operands[1], operands[0], {"add": 0, "add_any": 0, "sub": 0, "mul": 1, "div": 1}),
        ):
            if name in names and not _is_node(constant) and _is_node(other) and constant == names[name]:
                return (other,)
    return None


def _fold_constants(equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with jax.ensure_compile_time_eval():
        arrays = [jnp.asarray(x, v.aval.dtype) for x, v in zip(inputs, equation.invars, strict=True)]
        out = equation.primitive.bind(*arrays,
                                      **equation.params)  # fmt: skip
    return [np.asarray(x) for x in (out if equation.primitive.multiple_results else [out])]


def _move(equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Apply the operation to the places of the entries, then put the entries in their new places."""
    array, *indices = inputs
    if any(x.dtype == object for x in indices):
        raise CannotUnrollError(f"'{equation.primitive.name}' with indices that depend on the state")
    places = np.arange(1, array.size + 1, dtype=np.int32).reshape(array.shape)
    params, dtype = dict(equation.params), equation.invars[0].aval.dtype
    filler = np.zeros((), dtype)[()]
    if params.get("mode") == jax.lax.GatherScatterMode.FILL_OR_DROP:  # out of bounds is place 0, where the filler is
        given = params["fill_value"]
        if given is None and not jnp.issubdtype(dtype, jnp.inexact):
            raise CannotUnrollError(f"'{equation.primitive.name}' that fills whole numbers with a default")
        filler = np.asarray(np.nan if given is None else given, dtype)[()]
        params["fill_value"] = 0
    with jax.ensure_compile_time_eval():
        moved = equation.primitive.bind(places, *indices, **params)
    entries = [filler, *array.ravel()]
    outs = moved if equation.primitive.multiple_results else [moved]
    return [as_entries(out.shape, [entries[i] for i in np.asarray(out).ravel()]) for out in outs]
