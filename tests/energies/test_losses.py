"""Every objective against reference values: independent float64 and many-digit implementations, closed forms."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax.energies import losses, non_contrastive, reweighted

A = [[1, 2, 2], [2, -1, 2], [-2, 1, 2], [0.5, 0.5, -1]]
B = [[1, 2.5, 1.5], [1.5, -1, 2.5], [-2, 0.5, 1], [1, 0.5, -1]]
HARD = [[2, 1, 2], [2, 1, 1], [-1, 2, 2], [1, 1, -1]]
QUEUE = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [-1, 1, 0]]
LABELS = [0, 1, 1, 2]
BOTH, BOTH_LABELS = A + B, LABELS + LABELS

TEMPERATURES = (1.0, 0.5, 0.1, 0.07, 0.01)

# One value per temperature. At tau = .5 they are those of the table of conventions.
VALUES = {
    "info_nce": (
        lambda tau: losses.info_nce(A, B, tau),
        (0.7528381124701323, 0.3889139163897926, 0.0031741816473287443, 0.0003301203933916419, 0.0),
    ),
    "info_nce_queue": (
        lambda tau: losses.info_nce_queue(A, B, QUEUE, tau),
        (1.3084421511341016, 0.9871202219843241, 0.2371863834348864, 0.17754967197683857, 0.07134777660242264),
    ),
    "population_info_nce": (
        lambda tau: losses.population_info_nce(A, B, QUEUE, tau),
        (-0.30099576129999855, -0.6223176904497761, -1.372251528999214, -1.4318882404572615, -1.5380901358316772),
    ),
    "nt_xent": (
        lambda tau: losses.nt_xent(A, B, tau),
        (1.1700908258840212, 0.6557410938784196, 0.0061877115611699285, 0.0006294106630235774, 0.0),
    ),
    "clip": (
        lambda tau: losses.clip(A, B, tau),
        (0.7522705659375668, 0.3875783280495843, 0.0030723330373196855, 0.00031786335792349796, 0.0),
    ),
    "siglip": (
        lambda tau: losses.siglip(A, B, tau),
        (9.03904165856222, 8.078037820337478, 0.9098742040307624, 0.0388714407011284, 22.332077774471372),
    ),
    "sup_con out": (
        lambda tau: losses.sup_con(BOTH, BOTH_LABELS, tau),
        (1.5322689271156298, 1.380097296341636, 3.6279687238772524, 5.174602285400284, 36.217810123160824),
    ),
    "sup_con in": (
        lambda tau: losses.sup_con(BOTH, BOTH_LABELS, tau, form="in"),
        (1.4593024837326218, 1.0977289783850188, 0.5554328995939041, 0.5499341253649679, 0.5493061443340549),
    ),
    "multi_positive_nt_xent": (
        lambda tau: losses.multi_positive_nt_xent(BOTH, BOTH_LABELS, tau),
        (1.3771704062931762, 1.2632972921086045, 2.698706387724793, 3.740279487034212, 25.368735095696096),
    ),
    "binary_nce, c = log 5": (
        lambda tau: losses.binary_nce(A, B, QUEUE, tau),
        (2.305732712279153, 2.3782856574989957, 13.558131973491669, 21.351606559145637, 181.74203884239841),
    ),
    "binary_nce, c = 0": (
        lambda tau: losses.binary_nce(A, B, QUEUE, tau, noise_density=0.2),
        (4.605055940192888, 5.580495954376879, 19.169558412194966, 27.133444609204265, 187.63048434335744),
    ),
    "info_nce_hard_negatives": (
        lambda tau: losses.info_nce_hard_negatives(A, B, HARD, tau),
        (1.4851867823660556, 1.1207563084194316, 0.4643956676457419, 0.3628649445773622, 0.08078524345317462),
    ),
    "info_nce_hard_negatives, weight 1": (
        lambda tau: losses.info_nce_hard_negatives(A, B, HARD, tau, weight=1.0),
        (1.7872202204971521, 1.5002712350395688, 0.8392627620380435, 0.6969314366911648, 0.1786477965167954),
    ),
    "decoupled": (
        lambda tau: reweighted.decoupled(A, B, tau),
        (0.7924876660070919, -0.1132286367884286, -5.940616126711381, -8.774546377975529, -63.43168085860697),
    ),
    "decoupled_weighted": (
        lambda tau: reweighted.decoupled_weighted(A, B, tau),
        (0.7927929367666096, -0.1126180952693926, -5.937563419116203, -8.770185367125272, -63.401153782655186),
    ),
    "debiased": (
        lambda tau: reweighted.debiased(A, B, tau),
        (1.027255047378757, 0.3486765639744757, 1.836726593040794e-08, 4.142020060271534e-12, 0.0),
    ),
    "hard_negative": (
        lambda tau: reweighted.hard_negative(A, B, tau),
        (1.1097000080134993, 0.52349730281978, 1.836726593040794e-08, 4.142020060271534e-12, 0.0),
    ),
    "graphcl": (
        lambda tau: reweighted.graphcl(A, B, tau),
        (0.10711190521200736, -0.7895443070846614, -6.575037512549418, -9.431064238503833, -66.07676724763807),
    ),
    "cic": (
        lambda tau: reweighted.cic(A, B, tau),
        (0.06890186799263598, -1.0254007266438607, -22.734481516589657, -26.853960719097657, -109.2435447692576),
    ),
    "weince": (
        lambda tau: reweighted.weince(A, B, tau),
        (0.8466449072053149, 0.4876477005595042, 0.01642202381567104, 0.004344896515260377, 1.525002346625115e-12),
    ),
}

# The reference's log-sum-exp minus positive rounds to eps/tau, all that is left of the small values; so these exact
# ones are beside it: 50 digits, and 200 for debiased and hard_negative, where the floor N e^{-1/tau} holds.
EXACT = {
    "info_nce": {
        1.0: 0.75283811247013234263,
        0.5: 0.3889139163897926105,
        0.1: 0.003174181647328651354,
        0.07: 0.00033012039339164138622,
        0.01: 1.8302867334846269066e-22,
    },
    "clip": {
        1.0: 0.75227056593756674281,
        0.5: 0.38757832804958421954,
        0.1: 0.0030723330373196386166,
        0.07: 0.00031786335792327769458,
        0.01: 1.8300111400019803421e-22,
    },
    "nt_xent": {
        1.0: 1.1700908258840213644,
        0.5: 0.65574109387841954922,
        0.1: 0.0061877115611703274812,
        0.07: 0.00062941066302376504031,
        0.01: 2.0848227633070836105e-22,
    },
    "decoupled": {
        1.0: 0.79248766600709193472,
        0.5: -0.1132286367884287173,
        0.1: -5.9406161267113806284,
        0.07: -8.7745463779755279571,
        0.01: -63.431680858606962791,
        0.001: -634.37922673687615921,
    },
    "debiased": {0.1: 1.836726625840483657e-8, 0.07: 4.141678998722214710e-12, 0.01: 7.756614084991394525e-85},
    "hard_negative": {0.1: 1.836726625840483657e-8, 0.07: 4.141678998722214710e-12, 0.01: 7.756614084991394525e-85},
}

SINGLE_VALUES = {
    "alignment": (lambda: non_contrastive.alignment(A, B), 0.07757637216293442),
    "uniformity of A": (lambda: non_contrastive.uniformity(A), -3.202800120712654),
    "uniformity of B": (lambda: non_contrastive.uniformity(B), -3.775875775868218),
    "barlow_twins": (lambda: non_contrastive.barlow_twins(A, B), 0.012978616049316216),
    "byol": (lambda: non_contrastive.byol(A, B), 0.07757637216293442),
}


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", VALUES)
def test_reference_value(double, name):
    loss, values = VALUES[name]
    for tau, value in zip(TEMPERATURES, values, strict=True):
        got = loss(tau)
        assert got.dtype == jnp.float64
        assert got.shape == ()
        np.testing.assert_allclose(got, value, rtol=1e-12, atol=0 if tau == 0.5 else 1e-15 / tau, err_msg=f"tau {tau}")


@pytest.mark.parametrize("name", EXACT)
def test_exact_value(double, name):
    for tau, value in EXACT[name].items():
        # At tau = .001 and .01 the rounding of the cosines alone, times 1/tau, leaves this much.
        np.testing.assert_allclose(VALUES[name][0](tau), value, rtol=1e-10 if tau < 0.07 else 1e-12, err_msg=f"{tau}")


@pytest.mark.parametrize("name", SINGLE_VALUES)
def test_reference_value_without_temperature(double, name):
    loss, value = SINGLE_VALUES[name]
    np.testing.assert_allclose(loss(), value, rtol=1e-12)


def test_gradient_of_nt_xent(double):
    expected = [
        [-0.001111993956727144, -0.03851242808040983, 0.03906842505877341],
        [0.019792354235363088, 0.04728231010886173, 0.0038488008190677783],
        [0.0629816989118955, 0.03314756846987789, 0.04640791467695656],
        [-0.008759916082424334, 0.06265798190525003, 0.026949032911412832],
    ]
    got = jax.grad(lambda a: losses.nt_xent(a, B, 0.5))(jnp.array(A, float))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-16)


def simplex(n: int, d: int) -> np.ndarray:
    corners = np.eye(n) - 1 / n
    basis = np.linalg.svd(corners)[2][: n - 1]
    points = np.zeros((n, d))
    points[:, : n - 1] = corners @ basis.T
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("n", "d", "tau", "value"), [(3, 2, 0.5, 0.0949230), (4, 3, 0.3, 0.0346245), (3, 5, 0.2, None)]
)
def test_two_towers_at_the_simplex(double, n, d, tau, value):
    z = simplex(n, d)
    closed = math.log1p((n - 1) * math.exp(-n / ((n - 1) * tau)))
    assert value is None or abs(closed - value) < 5e-8
    for loss in (losses.info_nce, losses.clip):
        np.testing.assert_allclose(loss(z, z, tau), closed, rtol=1e-12)


@pytest.mark.parametrize(
    ("n", "d", "tau", "value"), [(3, 2, 0.5, 0.1816115), (4, 3, 0.5, 0.3484719), (4, 6, 0.2, None)]
)
def test_nt_xent_at_the_simplex(double, n, d, tau, value):
    z = simplex(n, d)
    closed = math.log1p((2 * n - 2) * math.exp(-n / ((n - 1) * tau)))
    assert value is None or abs(closed - value) < 5e-8
    np.testing.assert_allclose(losses.nt_xent(z, z, tau), closed, rtol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.1])
def test_collapse(double, tau):
    n, k = 5, 7
    z, queue = np.ones((n, 3)), np.ones((k, 3))
    np.testing.assert_allclose(losses.nt_xent(z, z, tau), math.log(2 * n - 1), rtol=1e-12)
    np.testing.assert_allclose(losses.clip(z, z, tau), math.log(n), rtol=1e-12)
    np.testing.assert_allclose(losses.info_nce(z, z, tau), math.log(n), rtol=1e-12)
    np.testing.assert_allclose(losses.info_nce_queue(z, z, queue, tau), math.log(k + 1), rtol=1e-12)
    np.testing.assert_allclose(losses.population_info_nce(z, z, queue, tau), math.log1p(1 / k), rtol=1e-12)
    np.testing.assert_allclose(reweighted.decoupled(z, z, tau), math.log(2 * n - 2), rtol=1e-12)
    np.testing.assert_allclose(reweighted.graphcl(z, z, tau), math.log(n - 1), rtol=1e-12)
    np.testing.assert_allclose(losses.sup_con(z, np.zeros(n), tau), math.log(n - 1), rtol=1e-12)
    np.testing.assert_allclose(non_contrastive.uniformity(z), 0, atol=1e-15)
    np.testing.assert_allclose(non_contrastive.alignment(z, z), 0, atol=1e-15)


def test_limits_of_the_temperature(double):
    """tau -> 0: the largest violation over tau; tau -> infinity: log n plus the mean excess similarity over tau."""
    rng = np.random.default_rng(20)
    a, b = rng.standard_normal((2, 6, 4))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    s = unit[0] @ unit[1].T
    gaps = s - np.diag(s)[:, None]
    cold = np.where(np.eye(6) > 0, 0, gaps).max(axis=1).clip(0).mean()
    np.testing.assert_allclose(1e-4 * losses.info_nce(a, b, 1e-4), cold, atol=2e-4)
    np.testing.assert_allclose(losses.info_nce(a, b, 1e4), math.log(6) + gaps.mean() / 1e4, atol=1e-7)


def test_relatives_coincide_where_their_extra_terms_vanish(double):
    tau = 0.3
    nt_xent = losses.nt_xent(A, B, tau)
    pairs = [0, 1, 2, 3, 0, 1, 2, 3]
    np.testing.assert_allclose(reweighted.debiased(A, B, tau, positive_prior=0.0), nt_xent, rtol=1e-12)
    np.testing.assert_allclose(losses.sup_con(BOTH, pairs, tau), nt_xent, rtol=1e-12)
    np.testing.assert_allclose(losses.sup_con(BOTH, pairs, tau, form="in"), nt_xent, rtol=1e-12)
    np.testing.assert_allclose(losses.multi_positive_nt_xent(BOTH, pairs, tau), nt_xent, rtol=1e-12)
    hard = reweighted.hard_negative(A, B, tau, concentration=0.0, positive_prior=0.2)
    np.testing.assert_allclose(hard, reweighted.debiased(A, B, tau, positive_prior=0.2), rtol=1e-12)
    weighted = reweighted.decoupled_weighted(A, B, tau, sigma=1e9)
    np.testing.assert_allclose(weighted, reweighted.decoupled(A, B, tau), rtol=1e-8)
    np.testing.assert_allclose(non_contrastive.alignment(A, B), non_contrastive.byol(A, B), rtol=1e-12)
    # Two pairs give each anchor two negatives, too few for a tail.
    np.testing.assert_allclose(reweighted.weince(A[:2], B[:2], tau), losses.nt_xent(A[:2], B[:2], tau), rtol=1e-12)


def test_hard_negative_weight_removes_an_anchors_own(double):
    """At log-weight -800 the anchor's own hard negative is gone, and the others are not."""
    tau = 0.3
    got = losses.info_nce_hard_negatives(A, B, HARD, tau, weight=-800.0)
    np.testing.assert_allclose(got, np.mean([_one_anchor(i, tau) for i in range(4)]), rtol=1e-12)


def _one_anchor(i: int, tau: float) -> float:
    unit = [np.array(x) / np.linalg.norm(x, axis=1, keepdims=True) for x in (A, B, HARD)]
    candidates = np.concatenate([unit[1], np.delete(unit[2], i, axis=0)])
    logits = candidates @ unit[0][i] / tau
    return float(np.log(np.exp(logits).sum()) - logits[i])


def test_weince_on_a_batch_with_a_tail(double):
    """Against a loop over anchors with NumPy's line fit, at a size where the tail is a tenth and two points burn."""
    rng = np.random.default_rng(21)
    n, tau = 220, 0.2
    a = rng.standard_normal((n, 4))
    b = a + 0.3 * rng.standard_normal((n, 4))
    z = np.concatenate([a, b])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    s = z @ z.T
    partner = (np.arange(2 * n) + n) % (2 * n)
    near, evidence = np.zeros(2 * n), np.zeros(2 * n)
    for i in range(2 * n):
        shortfall = np.log(np.sort(np.delete(1 - s[i], [i, partner[i]])))[:44]
        near[i] = shortfall[0]
        law = np.arange(1, 45) / 45
        x = shortfall[2:]
        misfit = []
        for y, sign in ((np.log(-np.log(law))[2:], -1), (np.log(law)[2:], 1)):
            line = np.polyfit(x, y, 1)
            misfit.append(np.sum((np.polyval(line, x) - y) ** 2) + 1e6 * (np.sign(line[0]) != sign))
        evidence[i] = 42 * np.log(misfit[0] / misfit[1])
    pivot = np.sort(near)[round(0.2 * (2 * n - 1))]
    mix = 1 / (1 + np.exp(-10 * (pivot - near))) / (1 + np.exp(2 - evidence))
    assert 0.05 < mix.mean() < 0.95
    np.fill_diagonal(s, -np.inf)
    logits = (1 - mix)[:, None] * s / tau - mix[:, None] * np.log(np.maximum(1 - s, 1e-6))
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(2 * n), partner])
    np.testing.assert_allclose(reweighted.weince(a, b, tau), expected, rtol=1e-10)


def test_alignment_exponents(double):
    squared = np.sum((simplex(4, 3) - simplex(4, 3)[::-1]) ** 2, axis=1)
    for exponent in (1.0, 2.0, 3.0):
        got = non_contrastive.alignment(simplex(4, 3), simplex(4, 3)[::-1], exponent)
        np.testing.assert_allclose(got, np.mean(squared ** (exponent / 2)), rtol=1e-12)
