"""The numerical core that every contrastive objective shares: similarities and safe log-sum-exp contrasts."""

from __future__ import annotations

import jax
import jax.numpy as jnp

__all__ = ["contrast", "log_sum_exp", "normalise", "similarities", "sum_of_logs"]


def working(x: jax.Array) -> jax.Array:
    """Half-precision input computes in float32: an exponential of s/tau has no room in eight bits."""
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


def normalise(x: jax.Array) -> jax.Array:
    """Rows of x, shape (..., d), divided by their norms; a zero row stays zero, with a finite gradient.

    A row that is not finite becomes NaN, not zero: what diverged must show.
    """
    x = working(jnp.asarray(x))
    squared = jnp.sum(x * x, axis=-1, keepdims=True)
    zero = squared == 0
    return jnp.where(zero, 0.0, x / jnp.sqrt(jnp.where(zero, 1.0, squared)))


def similarities(a: jax.Array, b: jax.Array) -> jax.Array:
    """Inner products of the rows of a, (n, d), and b, (m, d): shape (n, m), at full precision on every device.

    Accelerators may otherwise round a float32 product to tf32 and change the energy in its third digit.
    """
    if a is b:
        return _own_similarities(working(a))
    return _product(working(a), working(b).T)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


@jax.custom_jvp
def _own_similarities(x: jax.Array) -> jax.Array:
    return _product(x, x.T)


@_own_similarities.defjvp
def _own_similarities_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    # x x^T is symmetric, and so is its derivative M + M^T. Written so, the gradient of a function of it is one product,
    # (G + G^T) x, and not G x + G^T x.
    (x,), (direction,) = primals, tangents
    half = _product(direction, x.T)
    return _own_similarities(x), half + half.T


def log_sum_exp(
    logits: jax.Array, multiplicity: jax.Array | None = None, axis: int | tuple[int, ...] = -1
) -> jax.Array:
    """log sum_j m_j exp(l_j) along `axis`, with m_j >= 0 counting how often term j stands in the sum.

    Stable for any logits. A sum with no term (all m_j = 0) is -inf with gradient zero, never NaN.
    """
    if multiplicity is None:
        multiplicity = jnp.ones((), logits.dtype)
    multiplicity = jnp.broadcast_to(multiplicity, logits.shape).astype(logits.dtype)
    present = multiplicity > 0
    top = jnp.max(jnp.where(present, logits, -jnp.inf), axis=axis, keepdims=True)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0.0))
    # The largest term is e^0 up to the rounding of s/tau, which a fused multiply-add leaves in the difference. That is
    # harmless for tau above 1e-5 in single precision; a clamp at 0 would lose the gradient of this very term.
    below = logits - top
    terms = jnp.where(present, multiplicity * jnp.exp(jnp.where(present, below, 0.0)), 0.0)
    total = jnp.sum(terms, axis=axis)
    empty = total == 0
    return jnp.where(empty, -jnp.inf, jnp.log(jnp.where(empty, 1.0, total)) + jnp.squeeze(top, axis))


def contrast(
    logits: jax.Array,
    positives: jax.Array,
    multiplicity: jax.Array,
    *,
    inside: bool = False,
    single: bool = False,
) -> jax.Array:
    """One term per anchor: log sum_j m_ij e^{l_ij} minus what the positives contribute.

    Args:
        logits: s_ij / tau, shape (n, m): anchors by candidates.
        positives: weights W_ij >= 0 of the positives, shape (n, m).
        multiplicity: m_ij >= 0, how often candidate j stands in the denominator of anchor i; 0 leaves it out.
        inside: False, the "out" form: subtract sum_j W_ij l_ij. True, the "in" form: subtract log sum_j W_ij e^{l_ij}
            (Khosla et al. 2020, equations 2 and 3).
        single: every anchor has one positive of weight 1, in the denominator once or not at all. Then the term is
            softplus(log sum_{j != +} e^{l_j - l_+}), which keeps its digits where lse - l_+ rounds to zero.

    Returns:
        Shape (n,).
    """
    if single:
        positive = jnp.sum(positives * logits, axis=-1, keepdims=True)
        others = log_sum_exp(logits - positive, multiplicity * (1 - positives))
        counted = jnp.sum(positives * multiplicity, axis=-1) > 0
        return jnp.where(counted, jax.nn.softplus(others), others)
    total = log_sum_exp(logits, multiplicity)
    if inside:
        return total - log_sum_exp(logits, positives)
    return total - jnp.sum(positives * logits, axis=-1)


@jax.custom_jvp
def sum_of_logs(values: jax.Array) -> jax.Array:
    """sum_i log v_i by one logarithm, of the product; the caller sees to it that the product is a normal number."""
    return jnp.log(jnp.prod(values))


@sum_of_logs.defjvp
def _sum_of_logs_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    # Not through the product: a gradient needs no logarithm at all.
    return sum_of_logs(primals[0]), jnp.sum(tangents[0] / primals[0])
