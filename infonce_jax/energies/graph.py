"""The graph form of contrastive energies: positives as a weight matrix, negatives as multiplicities, keys at will."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from infonce_jax.checks import as_unit_rows, count, refuse
from infonce_jax.energies.base import Energy, check_temperature
from infonce_jax.energies.contrast import contrast, log_sum_exp, similarities, sum_of_logs

__all__ = ["GraphInfoNCE", "graph_infonce"]

# exp((s - 1)/tau) stays a normal float32 while 2/tau is below this (log of the smallest one is -87.3).
_BOUNDED_UP_TO = 80.0
_STATIC = {"static": True}


@dataclasses.dataclass(frozen=True)
class Mask:
    """A boolean matrix that can be hashed: which pairs exist is known while tracing, so absent ones cost nothing."""

    shape: tuple[int, ...]
    packed: bytes

    @classmethod
    def of(cls, array: Any) -> Mask:
        array = np.asarray(array, dtype=bool)
        return cls(array.shape, np.packbits(array).tobytes())

    def array(self) -> np.ndarray:
        flat = np.unpackbits(np.frombuffer(self.packed, dtype=np.uint8), count=int(np.prod(self.shape)))
        return flat.astype(bool).reshape(self.shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class GraphInfoNCE(Energy):
    """E(x) = sum_i a_i [log sum_j m_ij e^{s_ij/tau} - sum_j W_ij s_ij/tau], s_ij = <x_i, y_j>.

    The candidates y are the n free embeddings followed by k frozen keys, if there are any. Every member of the family
    is a choice of the arrays below; `graph_infonce` is the plain way to build one.

    Attributes:
        temperature: tau > 0, a leaf: schedules may move it.
        positives: W, shape (n, n + k), the weights of each anchor's positives.
        multiplicity: m, shape (n, n + k), how often a candidate stands in the anchor's denominator, or None where that
            is once for every candidate of `candidates`.
        anchors: a, shape (n,), the weight of each anchor; ones for a sum over anchors, 1/n for a mean.
        keys: frozen unit rows, shape (k, d), or None. They never move and carry no gradient.
        candidates: which m_ij are not zero, known at trace time.
        form: "out" as above; "in" puts log sum_j W_ij e^{s_ij/tau} in the place of the positives' mean; "single" is
            "out" for one positive of weight 1, evaluated so that a loss near zero keeps its digits; "pairs" pools all
            anchors in one logarithm, log sum_ij a_i m_ij e^{s_ij/tau}, minus sum_ij a_i W_ij s_ij/tau.
        bounded: the exponents are safe without subtracting a row maximum, because 2/tau is small. Then s_ij and s_ji
            share one exponential, the most expensive operation of a chain.
        alike: all anchors weigh the same, and the product of their sums over candidates is a normal number. Then one
            logarithm serves all of them, which halves what it costs to watch the energy of a small system.
        dim: d, or None for an energy that takes any; `shape` then says 2.
        times_temperature: multiply the energy by tau (the potential of the coupled mode).
    """

    temperature: Any
    positives: Any
    multiplicity: Any
    anchors: Any
    keys: Any
    dim: int | None = dataclasses.field(metadata=_STATIC)
    candidates: Mask = dataclasses.field(metadata=_STATIC)
    form: str = dataclasses.field(default="out", metadata=_STATIC)
    bounded: bool = dataclasses.field(default=False, metadata=_STATIC)
    alike: bool = dataclasses.field(default=False, metadata=_STATIC)
    times_temperature: bool = dataclasses.field(default=False, metadata=_STATIC)

    # Every term of every form is a log-sum-exp of similarities, whose gradient is a softmax. With a finite largest
    # exponent both are finite; with an infinite or undefined one the softmax is NaN.
    gradient_shows_failure: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.anchors.shape[0], 2 if self.dim is None else self.dim

    def __call__(self, x: jax.Array) -> jax.Array:
        n = self.anchors.shape[0]
        if x.ndim != 2 or x.shape[0] != n or (self.keys is not None and x.shape[1] != self.keys.shape[1]):
            d = "d" if self.keys is None else self.keys.shape[1]
            raise refuse("x", f"shape {x.shape}", f"one configuration of shape ({n}, {d})", "use jax.vmap for many")
        half = x.dtype in (jnp.bfloat16, jnp.float16)
        dtype = jnp.float32 if half else x.dtype
        s = similarities(x, x)
        if self.keys is not None:
            s = jnp.concatenate([s, similarities(x, jnp.asarray(self.keys, dtype))], axis=1)
        energy = self._reduce(s, jnp.asarray(self.temperature, dtype), jnp.asarray(self.positives, dtype))
        return (energy * self.temperature if self.times_temperature else energy).astype(x.dtype)

    def _reduce(self, s: jax.Array, tau: jax.Array, positives: jax.Array) -> jax.Array:
        mask = self.candidates.array()
        anchors = jnp.asarray(self.anchors, s.dtype)
        inverse = 1 / tau
        counts = jnp.asarray(mask if self.multiplicity is None else self.multiplicity, s.dtype)
        if self.form == "pairs":
            attraction = jnp.sum(anchors[:, None] * positives * s) * inverse
            return log_sum_exp(s * inverse, anchors[:, None] * counts, axis=(0, 1)) - attraction
        if self.bounded:
            # Pairs that do not exist take no exponential, and none of its gradient either.
            pairs = mask if self.form == "out" else np.ones_like(mask)
            e = jnp.exp(jnp.where(pairs, (s - 1) * inverse, 0.0))
            terms = jnp.where(mask, e if self.multiplicity is None else counts * e, 0.0)
            sums = jnp.sum(terms, axis=1)
            if self.form == "in":
                return jnp.sum(anchors * (jnp.log(sums) - jnp.log(jnp.sum(positives * e, axis=1))))
            logs = anchors[0] * sum_of_logs(sums) if self.alike else jnp.sum(anchors * jnp.log(sums))
            return logs + (jnp.sum(anchors) - _attraction(anchors[:, None] * positives, s)) * inverse
        terms = contrast(s * inverse, positives, counts, inside=self.form == "in", single=self.form == "single")
        # An anchor of weight 0 is only a candidate; its term may be -inf and must not spoil the sum.
        return jnp.sum(jnp.where(anchors > 0, anchors * jnp.where(anchors > 0, terms, 0.0), 0.0))

    def with_temperature(self, temperature: Any) -> Self:
        temperature = check_temperature(temperature)
        traced = isinstance(temperature, Tracer)
        # A traced temperature keeps the form its energy was built for: `run_chains` decides it from the whole schedule.
        if traced:
            return dataclasses.replace(self, temperature=temperature)
        tau, largest = float(temperature), _largest_count(self.candidates.array())
        alike = self.multiplicity is None and _alike(tau, self.anchors, largest)
        bounded = _bounded(self.form, tau, self.anchors)
        return dataclasses.replace(self, temperature=temperature, bounded=bounded, alike=alike)

    def coupled(self) -> Self:
        return dataclasses.replace(self, times_temperature=True)


def _attraction(weights: jax.Array, s: jax.Array) -> jax.Array:
    """sum_ij w_ij s_ij of unit rows, shapes (n, n + k): of free embeddings s_ij = s_ji and s_ii = 1."""
    n = len(s)
    own, keys = weights[:, :n], weights[:, n:]
    selves = jnp.sum(jnp.where(np.eye(n, dtype=bool), own, 0.0))
    pairs = jnp.sum(jnp.where(np.triu(np.ones((n, n), dtype=bool), 1), (own + own.T) * s[:, :n], 0.0))
    return selves + pairs + (jnp.sum(keys * s[:, n:]) if keys.size else 0.0)


def _bounded(form: str, temperature: float, anchors: Any) -> bool:
    # In the bounded form an anchor without candidates would take log 0, so each row must count.
    return form in ("out", "in") and 2 / temperature < _BOUNDED_UP_TO and bool(np.all(np.asarray(anchors) > 0))


def _largest_count(mask: np.ndarray) -> int:
    """The most candidates of an anchor, at least one: what its sum of exponentials stays below."""
    return max(int(np.max(np.sum(mask, axis=1))), 1)


def _alike(temperature: float, anchors: Any, largest: int) -> bool:
    # A sum over candidates, each counted once, lies between e^(-2/tau) and their number.
    a = np.asarray(anchors)
    return bool(np.ptp(a) == 0) and len(a) * max(2 / temperature, np.log(largest)) < _BOUNDED_UP_TO


def _matrix(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise refuse(
            name, type(value).__name__, "an array of numbers", "rows of equal length, one per anchor"
        ) from None


def _check_graph(w: np.ndarray, m: np.ndarray, a: np.ndarray, reduction: str, form: str) -> None:
    """Refuse weights, multiplicities and anchors that do not fit each other, the form or the reduction."""
    for name, array, shape in (("weights", w, w.shape), ("multiplicity", m, w.shape), ("anchors", a, w.shape[:1])):
        if array.shape != shape:
            raise refuse(name, f"shape {array.shape}", f"shape {shape}", "one entry per anchor and candidate")
        if not np.all(np.isfinite(array)) or np.any(array < 0):
            raise refuse(name, f"an entry {np.min(array):.4g}", "finite entries >= 0", "set unrelated pairs to 0")
    if reduction not in ("sum", "mean"):
        raise refuse("reduction", repr(reduction), "'sum' or 'mean'", "E*, beta and time scale with it")
    if form not in ("out", "in", "single", "pairs"):
        raise refuse("form", repr(form), "'out', 'in', 'single' or 'pairs'", "see GraphInfoNCE")
    one_positive = ((w == 1).sum(axis=1) == 1) & ((w != 0).sum(axis=1) == 1) & np.all(m <= 1, axis=1)
    if form == "single" and not np.all(one_positive):
        raise refuse("form", "'single' with other weights", "one positive of weight 1 per anchor, counts 0 or 1",
                     "use form='out'")  # fmt: skip
    if form == "in" and np.any((w.sum(axis=1) == 0) & (a > 0)):
        raise refuse("weights", "an anchor without a positive", "a positive for each anchor when form is 'in'",
                     "leave it out with anchors=, or use form='out'")  # fmt: skip
    lonely = (m.sum(axis=1) == 0) & (a > 0)
    if np.any(lonely):
        raise refuse("weights", f"anchor {int(lonely.argmax())} of {len(w)} without a candidate", "one to contrast",
                     "use n >= 2 embeddings or frozen keys")  # fmt: skip


def graph_infonce(
    weights: Any,
    temperature: Any = 0.5,
    reduction: str = "sum",
    *,
    dim: int | None = None,
    keys: Any = None,
    multiplicity: Any = None,
    form: str = "out",
    anchors: Any = None,
) -> GraphInfoNCE:
    """InfoNCE over a graph of positives, the family behind most scenarios.

    E = sum_i [log sum_{j != i} exp(<x_i, x_j>/tau) - sum_j W_ij <x_i, x_j>/tau], with W_ij the weight of j among the
    positives of i. With frozen keys the candidates are the free embeddings followed by the keys.

    Args:
        weights: W >= 0, shape (n, n), or (n, n + k) with k keys. Rows that sum to one give the usual loss.
        temperature: tau > 0, inside the loss.
        reduction: "sum" or "mean" over the anchors.
        dim: d >= 2. With keys it is theirs. Left out, the energy takes configurations of any dimension and chains
            start on the circle.
        keys: frozen unit rows, shape (k, d).
        multiplicity: m_ij >= 0, shape of W: how often candidate j stands in anchor i's denominator. By default once,
            the anchor itself left out.
        form: "out", "in", "single" or "pairs", see `GraphInfoNCE`.
        anchors: which rows are anchors, as weights >= 0, shape (n,); by default all, with weight 1.

    Raises:
        InputError: wrong shapes, negative weights, a temperature that is not positive, an anchor without candidates.

    >>> import numpy as np, jax.numpy as jnp
    >>> energy = graph_infonce(np.roll(np.eye(3), 1, axis=0), temperature=0.5)
    >>> float(energy(jnp.eye(3)))  # three orthogonal views: 3 log 2
    2.079...
    """
    w = _matrix("weights", weights)
    frozen = None if keys is None else as_unit_rows("keys", keys)
    k = 0 if frozen is None else len(frozen)
    if w.ndim != 2 or w.shape[1] != w.shape[0] + k:
        needed = "a square matrix (n, n)" if k == 0 else f"shape (n, n + {k}) with {k} keys"
        raise refuse("weights", f"shape {w.shape}", needed, "row i holds the weights of anchor i's positives")
    n = w.shape[0]
    plain = np.concatenate([1 - np.eye(n), np.ones((n, k))], axis=1)
    m = plain if multiplicity is None else _matrix("multiplicity", multiplicity)
    a = np.ones(n) if anchors is None else _matrix("anchors", anchors)
    _check_graph(w, m, a, reduction, form)
    if frozen is not None and dim not in (None, frozen.shape[1]):
        raise refuse("dim", dim, f"{frozen.shape[1]}, the dimension of the keys", "leave dim out")
    size = None if dim is None else count("dim", dim, least=2, mend="the sphere S^0 is two points, nothing can move")
    size = size if frozen is None else frozen.shape[1]
    tau = check_temperature(temperature)
    known = not isinstance(tau, Tracer)
    bounded = known and _bounded(form, float(tau), a)
    a = a / a.sum() if reduction == "mean" else a
    counts = None if np.all((m == 0) | (m == 1)) else m.astype(np.float64)
    alike = known and counts is None and _alike(float(tau), a, _largest_count(m > 0))
    return GraphInfoNCE(tau, w, counts, a, frozen, size, Mask.of(m > 0), form, bounded, alike)
