"""What breaks public implementations of these losses must not break ours: overflow, masks, precision, bad input."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax.checks import InputError
from infonce_jax.energies import losses, non_contrastive, reweighted
from infonce_jax.energies.contrast import log_sum_exp

LABELS = jnp.array([0, 1, 1, 2, 3, 3])

# Each as a function of two views of six rows and the temperature.
LOSSES = {
    "info_nce": losses.info_nce,
    "clip": losses.clip,
    "nt_xent": losses.nt_xent,
    "siglip": losses.siglip,
    "info_nce_queue": lambda a, b, tau: losses.info_nce_queue(a, b, jnp.flip(b), tau),
    "population_info_nce": lambda a, b, tau: losses.population_info_nce(a, b, jnp.flip(b), tau),
    "info_nce_hard_negatives": lambda a, b, tau: losses.info_nce_hard_negatives(a, b, jnp.flip(b), tau),
    "sup_con out": lambda a, b, tau: losses.sup_con(jnp.concatenate([a, b]), jnp.tile(LABELS, 2), tau),
    "sup_con in": lambda a, b, tau: losses.sup_con(jnp.concatenate([a, b]), jnp.tile(LABELS, 2), tau, form="in"),
    "multi_positive_nt_xent": lambda a, b, tau: losses.multi_positive_nt_xent(
        jnp.concatenate([a, b]), jnp.tile(LABELS, 2), tau
    ),
    "binary_nce": lambda a, b, tau: losses.binary_nce(a, b, jnp.flip(b), tau),
    "decoupled": reweighted.decoupled,
    "decoupled_weighted": reweighted.decoupled_weighted,
    "graphcl": reweighted.graphcl,
    "cic": reweighted.cic,
    "debiased": reweighted.debiased,
    "hard_negative": reweighted.hard_negative,
    "weince": reweighted.weince,
}
UNTEMPERED = {
    "alignment": non_contrastive.alignment,
    "alignment 1": lambda a, b: non_contrastive.alignment(a, b, 1.0),
    "uniformity": lambda a, b: non_contrastive.uniformity(jnp.concatenate([a, b])),
    "barlow_twins": non_contrastive.barlow_twins,
    "byol": non_contrastive.byol,
}
ALL = LOSSES | {name: (lambda a, b, tau, f=f: f(a, b)) for name, f in UNTEMPERED.items()}


def views(kind: str, dtype=jnp.float32) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(30)
    a = rng.standard_normal((6, 4))
    b = {
        "near": a + 0.1 * rng.standard_normal((6, 4)),
        "far": rng.standard_normal((6, 4)),
        "equal": a,
        "opposite": -a,
        "collapsed": np.ones((6, 4)),
    }[kind]
    return jnp.asarray(np.ones((6, 4)) if kind == "collapsed" else a, dtype), jnp.asarray(b, dtype)


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", ALL)
def test_cold_loss_and_gradient_are_finite_in_float32(name):
    both = jax.jit(jax.value_and_grad(ALL[name], argnums=(0, 1)))
    for kind in ("near", "far", "equal", "opposite", "collapsed"):
        for tau in (1e-3, 0.005, 0.5):
            value, gradients = both(*views(kind), tau)
            assert value.dtype == jnp.float32
            assert np.isfinite(value), (kind, tau)
            assert np.all(np.isfinite(gradients)), (kind, tau)


@pytest.mark.parametrize("name", ALL)
def test_half_precision_computes_in_float32(name):
    loss = jax.jit(jax.value_and_grad(ALL[name]))
    for dtype in (jnp.bfloat16, jnp.float16):
        a, b = views("near", dtype)
        value, gradient = loss(a, b, 0.1)
        wide, wide_gradient = loss(a.astype(jnp.float32), b.astype(jnp.float32), 0.1)
        assert value.dtype == jnp.float32
        assert gradient.dtype == dtype
        assert value == wide
        scale = float(jnp.max(jnp.abs(wide_gradient)))
        np.testing.assert_allclose(gradient.astype(jnp.float32), wide_gradient, rtol=0.01, atol=0.01 * scale)


@pytest.mark.parametrize("name", LOSSES)
def test_float32_agrees_with_float64(name):
    a, b = views("near")
    single = [float(LOSSES[name](a, b, tau)) for tau in (0.5, 0.05)]
    with jax.enable_x64(True):
        wide = [float(LOSSES[name](a.astype(jnp.float64), b.astype(jnp.float64), tau)) for tau in (0.5, 0.05)]
    np.testing.assert_allclose(single, wide, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_matrix_products_ask_for_full_precision(name):
    text = str(jax.make_jaxpr(ALL[name])(*views("near"), 0.5))
    products = re.findall(r"dot_general\[(.*?)\n\s*\]", text, flags=re.DOTALL)
    assert len(products) == text.count("dot_general")
    assert products or name in ("alignment", "alignment 1", "byol")
    for product in products:
        assert "Precision.HIGHEST" in product


@pytest.mark.parametrize("name", LOSSES)
def test_temperature_may_be_traced(name):
    a, b = views("near")
    value, slope = jax.jit(jax.value_and_grad(LOSSES[name], argnums=2))(a, b, jnp.float32(0.5))
    np.testing.assert_allclose(value, LOSSES[name](a, b, 0.5), rtol=1e-5, atol=1e-6)
    assert np.isfinite(slope)
    over = jax.vmap(LOSSES[name], in_axes=(None, None, 0))(a, b, jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(over[0], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["info_nce", "clip", "nt_xent", "siglip", "decoupled", "debiased", "hard_negative"])
def test_order_of_the_batch_does_not_matter(name):
    a, b = views("near")
    order = np.random.default_rng(31).permutation(6)
    np.testing.assert_allclose(LOSSES[name](a[order], b[order], 0.3), LOSSES[name](a, b, 0.3), rtol=1e-5)


@pytest.mark.parametrize("name", ["clip", "nt_xent", "siglip", "decoupled", "decoupled_weighted", "debiased", "weince"])
def test_symmetric_losses_do_not_know_which_view_is_first(name):
    a, b = views("near")
    np.testing.assert_allclose(LOSSES[name](a, b, 0.3), LOSSES[name](b, a, 0.3), rtol=1e-5)


def test_one_stacked_array_is_refused():
    a, b = views("near")
    with pytest.raises(TypeError):
        losses.nt_xent(jnp.concatenate([a, b]), temperature=0.5)
    with pytest.raises(InputError, match=r"^b: got shape \(\)"):
        losses.nt_xent(jnp.concatenate([a, b]), 0.5, 0.5)


def test_rows_of_minus_infinity_have_gradient_zero():
    logits = jnp.array([[-jnp.inf, -jnp.inf], [0.0, -jnp.inf]])
    np.testing.assert_array_equal(log_sum_exp(logits), [-jnp.inf, 0.0])
    np.testing.assert_array_equal(jax.jacobian(log_sum_exp)(logits)[0], np.zeros((2, 2)))
    finite = jax.grad(lambda x: jnp.sum(jnp.exp(log_sum_exp(x))))(logits)
    np.testing.assert_array_equal(finite, [[0.0, 0.0], [1.0, 0.0]])
    masked = jax.grad(lambda x: jnp.exp(log_sum_exp(x, jnp.zeros(2))))(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(masked, [0.0, 0.0])


def test_opposite_views(double):
    """A = I, B = -I, tau = .005: 200 from the positive, and log 2 from two tied negatives where both views count."""
    a, b = jnp.eye(2), -jnp.eye(2)
    np.testing.assert_allclose(losses.nt_xent(a, b, 0.005), 200 + math.log(2), rtol=1e-12)
    assert round(float(losses.nt_xent(a, b, 0.005)), 3) == 200.693
    np.testing.assert_allclose(losses.info_nce(a, b, 0.005), 200, rtol=1e-12)


@pytest.mark.parametrize("tau", [0.01, 0.005, 1e-3])
@pytest.mark.parametrize("form", ["pairs", "out", "in"])
def test_nearly_opposite_labelled_views(tau, form):
    z = jnp.array([[1, 0], [1, 0], [-1, 0], [-1, 0.01]], jnp.float32)
    labels = jnp.array([0, 0, 0, 1])

    def loss(z):
        pairs = form == "pairs"
        return losses.multi_positive_nt_xent(z, labels, tau) if pairs else losses.sup_con(z, labels, tau, form)

    value, gradient = jax.value_and_grad(loss)(z)
    assert np.all(np.isfinite(gradient))
    with jax.enable_x64(True):
        wide = loss(z.astype(jnp.float64))
    np.testing.assert_allclose(value, wide, rtol=1e-5)


@pytest.mark.parametrize("form", ["pairs", "out", "in"])
def test_labelled_batch_without_positives_or_negatives(form):
    z = views("far")[0]

    def loss(z, labels):
        pairs = form == "pairs"
        return losses.multi_positive_nt_xent(z, labels, 0.1) if pairs else losses.sup_con(z, labels, 0.1, form)

    both = jax.jit(jax.value_and_grad(loss))
    value, gradient = both(z, jnp.arange(6))
    assert value == 0
    np.testing.assert_array_equal(gradient, np.zeros_like(z))
    value, gradient = both(z, jnp.zeros(6, int))
    assert np.all(np.isfinite(gradient))
    if form == "pairs":
        assert value == 0
    else:
        assert value >= math.log(5) - 1e-5
    # An anchor without a positive is a candidate still, but its own term is left out of the mean.
    labels = jnp.array([0, 0, 1, 2, 3, 4])
    value, gradient = both(z, labels)
    assert value > 0
    assert np.all(np.isfinite(gradient))


def test_lone_anchors_do_not_dilute_the_mean(double):
    z = views("far", jnp.float64)[0]
    logits = np.array(z / np.linalg.norm(z, axis=1, keepdims=True))
    logits = logits @ logits.T / 0.5
    np.fill_diagonal(logits, -np.inf)
    total = np.log(np.exp(logits).sum(axis=1))
    expected = (total[0] + total[1]) / 2 - logits[0, 1]
    for form in ("out", "in"):
        np.testing.assert_allclose(losses.sup_con(z, [0, 0, 1, 2, 3, 4], 0.5, form), expected, rtol=1e-12)


def test_keys_and_queue_carry_no_gradient():
    a, b = views("near")
    queue = jnp.flip(b)
    moco = jax.grad(losses.info_nce_queue, argnums=(0, 1, 2))(a, b, queue, 0.5)
    assert np.any(moco[0])
    assert not np.any(moco[1])
    assert not np.any(moco[2])
    population = jax.grad(losses.population_info_nce, argnums=(0, 1, 2))(a, b, queue, 0.5)
    np.testing.assert_allclose(population[0], moco[0], rtol=1e-5, atol=1e-7)
    assert np.any(population[1])
    assert np.any(population[2])
    byol = jax.grad(non_contrastive.byol, argnums=(0, 1))(a, b)
    assert np.any(byol[0])
    assert not np.any(byol[1])


def test_reweighting_carries_no_gradient(double, monkeypatch):
    """weince and decoupled_weighted: weights computed at a and held there give the same gradient."""
    a, b = views("near", jnp.float64)
    s, positives, candidates = reweighted.two_views(a, b)
    weights = 2 - 12 * jax.nn.softmax(jnp.sum(positives * s, axis=1) / 0.5)

    def held(a):
        s, positives, candidates = reweighted.two_views(a, b)
        others = log_sum_exp(s / 0.3, candidates - positives)
        return jnp.mean(others - weights * jnp.sum(positives * s, axis=1) / 0.3)

    got = jax.grad(reweighted.decoupled_weighted)(a, b, 0.3)
    np.testing.assert_allclose(got, jax.grad(held)(a), rtol=1e-10, atol=1e-14)
    expected = jax.grad(reweighted.weince)(a, b, 0.3)
    mix = reweighted._endpoint_weights(s, candidates - positives)
    assert jnp.max(mix) > 0.05
    monkeypatch.setattr(reweighted, "_endpoint_weights", lambda s, negatives: mix)
    np.testing.assert_allclose(jax.grad(reweighted.weince)(a, b, 0.3), expected, rtol=1e-10, atol=1e-14)


def test_zero_row_has_a_finite_gradient():
    a, b = views("near")
    a = a.at[0].set(0.0)
    for loss in (losses.nt_xent, losses.info_nce):
        value, gradient = jax.value_and_grad(loss)(a, b, 0.5)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))


def test_strict_promotion_of_types_and_ranks():
    a, b = views("near", jnp.float32)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for loss in ALL.values():
            assert loss(a, b, 0.5).dtype == jnp.float32
        assert losses.nt_xent([[1, 2], [2, 1]], [[1.0, 2], [2, 1]], 1).dtype == jnp.float32


@pytest.mark.parametrize("temperature", [0.0, -0.5, math.nan, math.inf, "warm", None, [0.5], np.ones(2)])
def test_bad_temperature(temperature):
    a, b = views("near")
    for loss in LOSSES.values():
        with pytest.raises(InputError, match=r"^temperature: ") as caught:
            loss(a, b, temperature)
        assert "\n" not in str(caught.value)


BAD = {
    "rows differ": (lambda a, b: losses.nt_xent(a, b[:3], 0.5), r"^b: got shape \(3, 4\) .* needs the same shape"),
    "columns differ": (lambda a, b: losses.clip(a, b[:, :3], 0.5), r"^b: got shape \(6, 3\)"),
    "one pair": (lambda a, b: losses.info_nce(a[:1], b[:1], 0.5), r"^a: got 1 row; needs at least 2; add rows"),
    "one pair, decoupled": (lambda a, b: reweighted.decoupled(a[:1], b[:1], 0.5), r"^a: got 1 row; needs"),
    "one row": (lambda a, b: non_contrastive.uniformity(a[:1]), r"^z: got 1 row"),
    "one labelled row": (lambda a, b: losses.sup_con(a[:1], [0], 0.5), r"^z: got 1 row"),
    "no rows": (lambda a, b: non_contrastive.byol(a[:0], b[:0]), r"^prediction: got 0 rows"),
    "a vector": (lambda a, b: losses.info_nce(a[0], b[0], 0.5), r"^a: got shape \(4,\); needs shape \(n, d\)"),
    "many batches": (lambda a, b: losses.info_nce(a[None], b[None], 0.5), r"^a: got shape .* use jax.vmap"),
    "ragged": (lambda a, b: losses.info_nce([[1.0, 2], [1]], b, 0.5), r"^a: got list; needs a rectangular array"),
    "complex": (lambda a, b: losses.info_nce(a + 1j, b, 0.5), r"^a: got dtype complex64"),
    "empty queue": (lambda a, b: losses.info_nce_queue(a, b, b[:0], 0.5), r"^queue: got 0 rows"),
    "queue of another dimension": (
        lambda a, b: losses.population_info_nce(a, b, b[:, :3], 0.5),
        r"^negatives: got shape \(6, 3\); needs shape \(K, 4\)",
    ),
    "population pair": (lambda a, b: losses.population_info_nce(a, b[:2], b, 0.5), r"^b: got shape \(2, 4\) beside a"),
    "hard negatives missing": (lambda a, b: losses.info_nce_hard_negatives(a, b, b[:2], 0.5), r"^hard: got shape"),
    "hard negatives weight": (lambda a, b: losses.info_nce_hard_negatives(a, b, b, 0.5, math.nan), r"^weight: got nan"),
    "form": (lambda a, b: losses.sup_con(a, LABELS, 0.5, form="both"), r"^form: got 'both'; needs 'out' or 'in'"),
    "labels too few": (lambda a, b: losses.sup_con(a, LABELS[:2], 0.5), r"^labels: got shape \(2,\); needs shape \(6"),
    "labels in words": (lambda a, b: losses.multi_positive_nt_xent(a, list("aabbcc"), 0.5), r"^labels: .*np.unique"),
    "noise density": (lambda a, b: losses.binary_nce(a, b, b, 0.5, noise_density=0), r"^noise_density: got 0; needs"),
    "bias": (lambda a, b: losses.siglip(a, b, 0.5, bias="ten"), r"^bias: got 'ten'"),
    "sigma": (lambda a, b: reweighted.decoupled_weighted(a, b, 0.5, sigma=-1), r"^sigma: got -1; .* above 0"),
    "prior": (lambda a, b: reweighted.debiased(a, b, 0.5, positive_prior=1), r"needs a number at least 0 and below 1"),
    "concentration": (lambda a, b: reweighted.hard_negative(a, b, 0.5, concentration=-1), r"^concentration: got -1"),
    "exponent": (lambda a, b: non_contrastive.alignment(a, b, 0), r"^exponent: got 0"),
    "t": (lambda a, b: non_contrastive.uniformity(a, t=-2), r"^t: got -2"),
    "redundancy": (lambda a, b: non_contrastive.barlow_twins(a, b, redundancy=-1), r"^redundancy: got -1"),
    "eps": (lambda a, b: non_contrastive.barlow_twins(a, b, eps=0), r"^eps: got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        call(*views("near"))
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("; ") >= 2
