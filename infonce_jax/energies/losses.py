"""Contrastive losses of embeddings, for training encoders and as oracles of the energies: softmax and logistic forms.

Two views are always two arguments whose rows i belong together; no function reads an order out of a stacked array.
Rows are L2-normalised inside, so s_ij is a cosine. Half precision is computed, and the loss returned, in float32.
The reweighted and decoupled relatives are in `reweighted`, losses without negatives in `non_contrastive`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from infonce_jax.checks import refuse
from infonce_jax.energies.contrast import contrast, log_sum_exp, normalise, similarities
from infonce_jax.energies.inputs import embedding_pair, embedding_rows, number, scale, two_views

__all__ = [
    "binary_nce",
    "clip",
    "info_nce",
    "info_nce_hard_negatives",
    "info_nce_queue",
    "multi_positive_nt_xent",
    "nt_xent",
    "population_info_nce",
    "siglip",
    "sup_con",
]


def info_nce(a: Any, b: Any, temperature: Any) -> jax.Array:
    """Pick the partner of a_i out of all b: InfoNCE one way, also the loss of unsupervised SimCSE.

    mean_i [log sum_j exp(s_ij/tau) - s_ii/tau], s_ij = cos(a_i, b_j). The positive is in the denominator; the other
    rows of a are not.

    Args:
        a: anchors, shape (n, d), n >= 2.
        b: their partners, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    van den Oord et al. 2018, equation 4; Gao et al. 2021.

    >>> import jax.numpy as jnp
    >>> float(info_nce(jnp.eye(3), jnp.eye(3), temperature=1.0))  # log(1 + 2/e)
    0.5514...
    """
    a, b = embedding_pair(a, b)
    logits = similarities(a, b) / scale(temperature, a)
    eye = jnp.eye(a.shape[0], dtype=a.dtype)
    return jnp.mean(contrast(logits, eye, jnp.ones_like(logits), single=True))


def clip(a: Any, b: Any, temperature: Any) -> jax.Array:
    """Match two modalities in both directions: the mean of `info_nce` from a to b and from b to a.

    Args:
        a: first modality, shape (n, d), n >= 2.
        b: second modality, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    Radford et al. 2021, figure 3.
    """
    a, b = embedding_pair(a, b)
    logits = similarities(a, b) / scale(temperature, a)
    eye, every = jnp.eye(a.shape[0], dtype=a.dtype), jnp.ones_like(logits)
    rows, columns = (contrast(side, eye, every, single=True) for side in (logits, logits.T))
    return (jnp.mean(rows) + jnp.mean(columns)) / 2


def nt_xent(a: Any, b: Any, temperature: Any) -> jax.Array:
    """SimCLR's loss, also GRACE's: every view of the 2n is an anchor, all the other views are candidates.

    With z the union of both views and p(i) the partner of i: mean_i [log sum_{j != i} exp(s_ij/tau) - s_ip(i)/tau],
    2n anchors, 2n - 1 terms in each denominator.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        temperature: tau > 0; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive.

    Chen et al. 2020, equation 1; Zhu et al. 2020 (GRACE).
    """
    s, positives, candidates = two_views(a, b)
    return jnp.mean(contrast(s / scale(temperature, s), positives, candidates, single=True))


def info_nce_queue(queries: Any, keys: Any, queue: Any, temperature: Any) -> jax.Array:
    """MoCo's loss: each query against its own key and a queue of K older keys.

    mean_i [log(exp(s_i+/tau) + sum_k exp(s_ik/tau)) - s_i+/tau]. Neither the keys nor the queue carry a gradient, as
    they come from the slow encoder. Enqueue the keys after the loss, or a query meets its own key as a negative.

    Args:
        queries: shape (n, d), n >= 1.
        keys: the positive of each query, shape (n, d).
        queue: the negatives that all queries share, shape (K, d), K >= 1.
        temperature: tau > 0; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that do not fit, an empty queue, a temperature that is not positive.

    He et al. 2020, equation 1.
    """
    aligned, against = _queue_similarities(queries, keys, queue, ("queries", "keys", "queue"), frozen=True)
    gaps = (against - aligned[:, None]) / scale(temperature, against)
    return jnp.mean(jax.nn.softplus(log_sum_exp(gaps)))


def population_info_nce(a: Any, b: Any, negatives: Any, temperature: Any) -> jax.Array:
    """The form that has a limit for many negatives: `info_nce_queue` minus log k, with gradients to every argument.

    As k grows it tends to the cross-entropy -E s+/tau + log E exp(s-/tau); a collapsed encoder has log(1 + 1/k).

    Args:
        a: anchors, shape (n, d), n >= 1.
        b: the positive of each anchor, shape (n, d).
        negatives: draws from the law of the negatives, shape (k, d), k >= 1, shared by all anchors.
        temperature: tau > 0; may be traced.

    Returns:
        A scalar, which may be negative.

    Raises:
        InputError: shapes that do not fit, no negatives, a temperature that is not positive.

    Wang & Isola 2020, theorem 1, for the limit.
    """
    aligned, against = _queue_similarities(a, b, negatives, ("a", "b", "negatives"))
    gaps = (against - aligned[:, None]) / scale(temperature, against)
    return jnp.mean(jax.nn.softplus(log_sum_exp(gaps))) - math.log(against.shape[1])


def info_nce_hard_negatives(a: Any, b: Any, hard: Any, temperature: Any, weight: Any = 0.0) -> jax.Array:
    """Supervised SimCSE: pick b_i out of all b and all mined hard negatives h.

    mean_i [log sum_j (exp(s(a_i, b_j)/tau) + w_ij exp(s(a_i, h_j)/tau)) - s(a_i, b_i)/tau], with w_ii = e^weight for
    the anchor's own hard negative and 1 otherwise.

    Args:
        a: anchors, shape (n, d), n >= 1.
        b: their partners, shape (n, d).
        hard: one hard negative per anchor, shape (n, d).
        temperature: tau > 0; may be traced.
        weight: logarithm of the weight of an anchor's own hard negative; 0 treats all alike.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, a temperature that is not positive, a weight that is not a number.

    Gao et al. 2021.
    """
    a, b = embedding_pair(a, b, least=1)
    a, hard = embedding_pair(a, hard, least=1, names=("a", "hard"))
    n = a.shape[0]
    tau = scale(temperature, a)
    eye = jnp.eye(n, dtype=a.dtype)
    own = eye * jnp.asarray(number("weight", weight), a.dtype)
    logits = jnp.concatenate([similarities(a, b) / tau, similarities(a, hard) / tau + own], axis=1)
    positives = jnp.concatenate([eye, jnp.zeros_like(eye)], axis=1)
    return jnp.mean(contrast(logits, positives, jnp.ones_like(logits), single=True))


def sup_con(z: Any, labels: Any, temperature: Any, form: str = "out") -> jax.Array:
    """Supervised contrast: every other embedding with the anchor's label is a positive.

    With P(i) the positives of i and p_ij = exp(s_ij/tau) / sum_{k != i} exp(s_ik/tau): "out" is the mean over anchors
    of -mean_{j in P(i)} log p_ij, "in" that of -log mean_{j in P(i)} p_ij. Anchors without a positive are left out of
    the mean; a batch with none has the value 0 and gradient 0. A batch of one label is the same formula, without
    negatives: at least log(n - 1).

    Args:
        z: embeddings of all views, shape (n, d), n >= 2, in any order.
        labels: numbers, shape (n,); may be traced.
        temperature: tau > 0; may be traced.
        form: "out" or "in".

    Returns:
        A scalar >= 0.

    Raises:
        InputError: one row, labels of another length, a temperature that is not positive, an unknown form.

    Khosla et al. 2020, equations 2 and 3.
    """
    if form not in ("out", "in"):
        raise refuse("form", repr(form), "'out' or 'in'", "'out' averages logarithms, 'in' averages probabilities")
    logits, positives, others = _labelled(z, labels, temperature)
    counts = jnp.sum(positives, axis=1)
    has = counts > 0
    safe = jnp.where(has, counts, 1.0)
    if form == "out":
        terms = jnp.sum(positives * _surprisal(logits, others), axis=1) / safe
    else:
        attraction = jnp.where(has, log_sum_exp(logits, positives), 0.0)
        terms = jax.nn.softplus(log_sum_exp(logits, others - positives) - attraction) + jnp.log(safe)
    return jnp.sum(jnp.where(has, terms, 0.0)) / jnp.maximum(jnp.sum(has.astype(terms.dtype)), 1.0)


def multi_positive_nt_xent(z: Any, labels: Any, temperature: Any) -> jax.Array:
    """NT-Xent over all pairs of equal label, each against the anchor's negatives only.

    Mean over pairs (i, j), j != i, of equal label of log(1 + sum_{k: other label} exp((s_ik - s_ij)/tau)). The
    difference to `sup_con`: positives do not push each other away. A batch without pairs, or of one label, has the
    value 0 and gradient 0.

    Args:
        z: embeddings of all views, shape (n, d), n >= 2, in any order.
        labels: numbers, shape (n,); may be traced.
        temperature: tau > 0; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: one row, labels of another length, a temperature that is not positive.

    The convention of pytorch-metric-learning (Musgrave et al. 2020) and of optax.
    """
    logits, positives, others = _labelled(z, labels, temperature)
    negatives = log_sum_exp(logits, others - positives)[:, None]
    terms = jnp.where(positives > 0, jax.nn.softplus(negatives - logits), 0.0)
    return jnp.sum(terms) / jnp.maximum(jnp.sum(positives), 1.0)


def siglip(a: Any, b: Any, temperature: Any, bias: Any = -10.0) -> jax.Array:
    """Match two modalities by one logistic decision per pair, without a softmax over the batch.

    (1/n) sum_ij softplus(-y_ij (s_ij/tau + bias)), y_ij = 1 for i = j and -1 otherwise.

    Args:
        a: first modality, shape (n, d), n >= 2.
        b: second modality, shape (n, d).
        temperature: tau > 0; may be traced.
        bias: added to every logit; offsets the many negatives at the start of training; may be traced.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a temperature that is not positive, a bias not a number.

    Zhai et al. 2023, algorithm 1.
    """
    a, b = embedding_pair(a, b)
    logits = similarities(a, b) / scale(temperature, a) + jnp.asarray(number("bias", bias), a.dtype)
    sign = 2 * jnp.eye(a.shape[0], dtype=a.dtype) - 1
    return jnp.sum(jax.nn.softplus(-sign * logits)) / a.shape[0]


def binary_nce(queries: Any, keys: Any, noise: Any, temperature: Any, noise_density: Any = 1.0) -> jax.Array:
    """Noise-contrastive estimation: tell the key of each query from k draws of a noise law, one decision at a time.

    mean_i [softplus(-(s_i+/tau - c)) + sum_k softplus(s_ik/tau - c)], c = log(k p_noise).

    Args:
        queries: shape (n, d), n >= 1.
        keys: the positive of each query, shape (n, d).
        noise: the draws, shape (k, d), k >= 1, shared by all queries.
        temperature: tau > 0; may be traced.
        noise_density: p_noise > 0, the density of the noise law at the draws.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that do not fit, no noise, a temperature or density that is not positive.

    Gutmann & Hyvarinen 2010; Mnih & Kavukcuoglu 2013.
    """
    aligned, against = _queue_similarities(queries, keys, noise, ("queries", "keys", "noise"))
    tau = scale(temperature, against)
    density = jnp.asarray(number("noise_density", noise_density, above=0), against.dtype)
    shift = jnp.log(density) + math.log(against.shape[1])
    true, false = jax.nn.softplus(shift - aligned / tau), jax.nn.softplus(against / tau - shift)
    return jnp.mean(true) + jnp.mean(jnp.sum(false, axis=1))


def _queue_similarities(
    queries: Any, keys: Any, queue: Any, names: tuple[str, str, str], frozen: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Cosines of each query with its key, (n,), and with the shared negatives, (n, K)."""
    q, k = embedding_pair(queries, keys, least=1, names=names[:2])
    negatives = embedding_rows(names[2], queue)
    if negatives.shape[1] != q.shape[1]:
        raise refuse(names[2], f"shape {negatives.shape}", f"shape (K, {q.shape[1]})",
                     f"{names[0]} and {names[2]} share R^d")  # fmt: skip
    negatives = normalise(negatives)
    common = jnp.promote_types(q.dtype, negatives.dtype)
    q, k, negatives = (x.astype(common) for x in (q, k, negatives))
    if frozen:
        k, negatives = jax.lax.stop_gradient((k, negatives))
    return jnp.sum(q * k, axis=1), similarities(q, negatives)


def _labelled(z: Any, labels: Any, temperature: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Logits, positives and candidates, each of shape (n, n), of a labelled batch."""
    z = normalise(embedding_rows("z", z, least=2))
    try:
        labels = jnp.asarray(labels)
    except (TypeError, ValueError):
        raise refuse("labels", type(labels).__name__, "numbers, shape (n,)",
                     "number your classes: np.unique(labels, return_inverse=True)[1]") from None  # fmt: skip
    if labels.shape != z.shape[:1]:
        raise refuse("labels", f"shape {labels.shape}", f"shape ({z.shape[0]},)", "one label per row of z")
    others = 1 - jnp.eye(z.shape[0], dtype=z.dtype)
    positives = (labels[:, None] == labels[None, :]).astype(z.dtype) * others
    return similarities(z, z) / scale(temperature, z), positives, others


def _surprisal(logits: jax.Array, candidates: jax.Array) -> jax.Array:
    """-log softmax over each row's candidates; measured from the largest, it keeps its digits near zero."""
    largest = jnp.argmax(jnp.where(candidates > 0, logits, -jnp.inf), axis=1)
    best = jax.nn.one_hot(largest, logits.shape[1], dtype=logits.dtype)
    top = jnp.sum(best * logits, axis=1, keepdims=True)
    rest = log_sum_exp(logits - top, candidates * (1 - best))
    return jax.nn.softplus(rest)[:, None] + (top - logits)
