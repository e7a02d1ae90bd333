"""Relatives of NT-Xent that change what the denominator counts: decoupled, debiased, hard-weighted, endpoint-corrected.

As in `losses`: two views are two arguments, rows are L2-normalised inside, half precision is computed in float32.
Differences of exponentials are taken in log space, so no temperature overflows.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.energies.contrast import contrast, log_sum_exp, similarities
from infonce_jax.energies.inputs import embedding_pair, number, scale, two_views

__all__ = ["cic", "debiased", "decoupled", "decoupled_weighted", "graphcl", "hard_negative", "weince"]

# The clamp and the offset of the published CIC loss, part of its value at low temperature.
_CIC_FLOOR = 1e-6

# Constants of the published WEINCE rule.
_TAIL_FRACTION, _TAIL_LEAST, _BURN = 0.1, 32, 20
_NEAR_QUANTILE, _NEAR_SHARPNESS = 0.2, 10.0
_EVIDENCE_MARGIN = 2.0
_SHORTFALL_FLOOR = 1e-6
_RESIDUAL_FLOOR, _WRONG_SIGN = 1e-12, 1e6


def decoupled(a: Any, b: Any, temperature: Any) -> jax.Array:
    """Decoupled contrastive learning (DCL): NT-Xent with the positive removed from the denominator.

    mean over 2n anchors of log sum_{j != i, p(i)} exp(s_ij/tau) - s_ip(i)/tau; it may be negative.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    Yeh et al. 2022.
    """
    s, positives, candidates = two_views(a, b)
    return jnp.mean(contrast(s / scale(temperature, s), positives, candidates - positives, single=True))


def decoupled_weighted(a: Any, b: Any, temperature: Any, sigma: Any = 0.5) -> jax.Array:
    """DCL that leans on the pairs that are still far apart (DCLW).

    As `decoupled`, with the positive's term times w_i = 2 - n softmax_i(s_i+/sigma), the softmax over the n pairs.
    The weights have mean one and carry no gradient.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        temperature: tau > 0; may be traced.
        sigma: width of the weights, > 0.

    Returns:
        A scalar.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature or sigma that is not positive.

    Yeh et al. 2022.
    """
    s, positives, candidates = two_views(a, b)
    tau = scale(temperature, s)
    aligned = jnp.sum(positives * s, axis=1)
    width = jnp.asarray(number("sigma", sigma, above=0), s.dtype)
    # Each pair stands twice among the 2n anchors, so 2n times the softmax over anchors is n times that over pairs.
    weights = 2 - s.shape[0] * jax.nn.softmax(jax.lax.stop_gradient(aligned) / width)
    return jnp.mean(log_sum_exp(s / tau, candidates - positives) - weights * aligned / tau)


def graphcl(a: Any, b: Any, temperature: Any) -> jax.Array:
    """GraphCL's loss: one way across views, the positive excluded from the denominator.

    mean_i [log sum_{j != i} exp(s_ij/tau) - s_ii/tau], s_ij = cos(a_i, b_j); it may be negative.

    Args:
        a: anchors, shape (n, d), n >= 2.
        b: their partners, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    You et al. 2020.
    """
    a, b = embedding_pair(a, b)
    eye = jnp.eye(a.shape[0], dtype=a.dtype)
    return jnp.mean(contrast(similarities(a, b) / scale(temperature, a), eye, 1 - eye, single=True))


def cic(a: Any, b: Any, temperature: Any) -> jax.Array:
    """The loss of contrastive intrinsic control (skill discovery), which subtracts e^{1/tau} where others mask.

    mean_i [log(max(sum_j exp(s_ij/tau) - e^{1/tau}, f) + f) - s_ii/tau], f = 1e-6. The constant stands for the
    positive as if it were perfect; where it outweighs the sum, the denominator is 2f and only the positive pulls.

    Args:
        a: queries, shape (n, d), n >= 2.
        b: their keys, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    Laskin et al. 2022, as published in code.
    """
    a, b = embedding_pair(a, b)
    tau = scale(temperature, a)
    floor = math.log(_CIC_FLOOR)
    remainder = _log_difference(log_sum_exp(similarities(a, b) / tau), 1 / tau)
    denominator = jnp.logaddexp(jnp.maximum(remainder, floor), jnp.full_like(remainder, floor))
    return jnp.mean(denominator - jnp.sum(a * b, axis=1) / tau)


def debiased(a: Any, b: Any, temperature: Any, positive_prior: Any = 0.1) -> jax.Array:
    """NT-Xent corrected for negatives that are unlabelled positives.

    mean over 2n anchors of log(1 + G_i e^{-s_i+/tau}), G = max((sum_neg e^{s/tau} - t N e^{s+/tau})/(1 - t),
    N e^{-1/tau}), N = 2n - 2, t = `positive_prior`. At t = 0 it is `nt_xent`.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        temperature: tau > 0; may be traced.
        positive_prior: share of the negatives that have the anchor's class, in [0, 1).

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature or a prior out of range.

    Chuang et al. 2020.
    """
    return hard_negative(a, b, temperature, concentration=0.0, positive_prior=positive_prior)


def hard_negative(a: Any, b: Any, temperature: Any, concentration: Any = 1.0, positive_prior: Any = 0.1) -> jax.Array:
    """Debiased NT-Xent whose negatives are weighted by how hard they are.

    As `debiased`, with the sum over negatives e_j = e^{s_ij/tau} replaced by sum_j w_j e_j / mean_j w_j, w_j = e_j^c,
    c = `concentration`. At c = 0 it is `debiased`.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        temperature: tau > 0; may be traced.
        concentration: c >= 0; the larger, the more the nearest negatives count.
        positive_prior: share of the negatives that have the anchor's class, in [0, 1).

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature, concentration or prior out of range.

    Robinson et al. 2021.
    """
    s, positives, candidates = two_views(a, b)
    tau = scale(temperature, s)
    sharp = jnp.asarray(number("concentration", concentration, least=0), s.dtype)
    prior = jnp.asarray(number("positive_prior", positive_prior, least=0, below=1), s.dtype)
    log_count = math.log(s.shape[0] - 2)
    aligned = jnp.sum(positives * s, axis=1) / tau
    # Measured from the positive's logit, e_+ is one: nothing overflows and small losses keep their digits.
    logits, negatives = s / tau - aligned[:, None], candidates - positives
    mean_weight = log_sum_exp(sharp * logits, negatives) - log_count
    pushing = log_sum_exp((1 + sharp) * logits, negatives) - mean_weight
    corrected = _log_difference(pushing, jnp.log(prior) + log_count) - jnp.log1p(-prior)
    return jnp.mean(jax.nn.softplus(jnp.maximum(corrected, log_count - 1 / tau - aligned)))


def weince(a: Any, b: Any, temperature: Any) -> jax.Array:
    """NT-Xent with an endpoint correction where an anchor's hardest negatives crowd below the largest cosine, 1.

    The logits are (1 - l_i) s_ij/tau - l_i log(1 - s_ij), with l_i in [0, 1] chosen per anchor and without gradient
    from its negatives' shortfalls 1 - s, see `_endpoint_weights`; l = 0 is `nt_xent`, and so is a batch of two pairs,
    whose two negatives cannot be fitted.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    "When Softmax Fails at the Top" (arXiv 2606.00262, 2026), with lambda as in the code published with it.
    """
    s, positives, candidates = two_views(a, b)
    mix = _endpoint_weights(jax.lax.stop_gradient(s), candidates - positives)[:, None]
    endpoint = -jnp.log(jnp.maximum(1 - s, _SHORTFALL_FLOOR))
    logits = (1 - mix) * s / scale(temperature, s) + mix * endpoint
    return jnp.mean(contrast(logits, positives, candidates, single=True))


def _endpoint_weights(s: jax.Array, negatives: jax.Array) -> jax.Array:
    """l_i = sigmoid(10 log(r/r_i)) sigmoid(D_i - 2): the anchor is near the endpoint and its tail looks Weibull.

    r_i is the anchor's smallest shortfall and r the 0.2 quantile of these. The tail is its smallest tenth of
    shortfalls d, at least 32 if there are as many, with empirical law F. D_i is the difference of the Akaike criteria
    of two straight-line fits against log d: Gumbel, log(-log F), minus Weibull, log F.
    """
    anchors, count = s.shape[0], s.shape[0] - 2
    tail = min(count, max(_TAIL_LEAST, round(_TAIL_FRACTION * count)))
    top, _ = jax.lax.top_k(jnp.where(negatives > 0, s, -jnp.inf), tail)
    shortfall = jnp.log(jnp.maximum(1 - top, _SHORTFALL_FLOOR))
    # The nearest few carry the discreteness of the ranks rather than the shape of the tail.
    burn = max(1, tail // _BURN)
    kept = tail - burn
    if kept < 2:
        return jnp.zeros(anchors, s.dtype)
    law = np.arange(burn + 1, tail + 1) / (tail + 1)
    weibull = _line_residual(shortfall[:, burn:], np.log(law), sign=1)
    gumbel = _line_residual(shortfall[:, burn:], np.log(-np.log(law)), sign=-1)
    evidence = kept * (jnp.log(gumbel) - jnp.log(weibull))
    nearest = shortfall[:, 0]
    reference = jnp.sort(nearest)[round(_NEAR_QUANTILE * (anchors - 1))]
    near = jax.nn.sigmoid(_NEAR_SHARPNESS * (reference - nearest))
    return near * jax.nn.sigmoid(evidence - _EVIDENCE_MARGIN)


def _line_residual(x: jax.Array, y: np.ndarray, sign: int) -> jax.Array:
    """Residual sum of squares of y, (k,), on each row of x, (n, k); a slope of the other sign is ruled out."""
    x = x - jnp.mean(x, axis=1, keepdims=True)
    line = jnp.asarray(y - y.mean(), x.dtype)[None, :]
    slope = jnp.sum(x * line, axis=1) / jnp.maximum(jnp.sum(x * x, axis=1), _RESIDUAL_FLOOR)
    residual = jnp.maximum(jnp.sum((line - slope[:, None] * x) ** 2, axis=1), _RESIDUAL_FLOOR)
    return jnp.where(sign * slope > 0, residual, residual + _WRONG_SIGN)


def _log_difference(larger: jax.Array, smaller: jax.Array) -> jax.Array:
    """log(e^larger - e^smaller); -inf, with gradient zero, where that difference is not positive."""
    gap = smaller - larger
    valid = gap < 0
    gap = jnp.where(valid, gap, -1.0)
    near = gap > -0.5
    # Each form is exact on its own side only; the inner where keeps the other's gradient finite.
    shrink = jnp.where(near, jnp.log(-jnp.expm1(jnp.where(near, gap, -0.5))), jnp.log1p(-jnp.exp(gap)))
    return jnp.where(valid, larger + shrink, -jnp.inf)
