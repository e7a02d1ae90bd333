"""Bad input to what a run is made of, and the one line that it must give: energies to observers.

The texts are pinned whole: a message is read by people, and one that loses what was given, what is needed or how to
mend it is a fault. `measure/test_bad_measurements.py` and `study/test_bad_commands.py` have the other rooms,
`chains/test_safety.py` the arguments of `run_chains`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax import energies, integrators, observers, scenarios, schedules
from infonce_jax.energies import losses, non_contrastive, reweighted
from tests.refusals import THREE_PARTS, message_of

EYE = np.eye(3)
POINT = [[1.0, 0.0]]
PAIR = np.array([[1.0, 0.0], [0.0, 1.0]])


def run(energy=None, **options):
    arguments = {"num_chains": 4, "num_steps": 4} | options
    beta = arguments.pop("beta", schedules.constant(5.0))
    return ij.run_chains(energy or scenarios.ring(5).energy, beta, integrators.geodesic_euler(0.02), **arguments)


def broken(x):
    raise KeyError("no such view")


# name: (call, message).
BAD = {
    "graph_infonce, a word": (
        lambda: energies.graph_infonce("weights"),
        "weights: got str; needs an array of numbers; rows of equal length, one per anchor",
    ),
    "graph_infonce, ragged rows": (
        lambda: energies.graph_infonce([[0, 1], [1]]),
        "weights: got list; needs an array of numbers; rows of equal length, one per anchor",
    ),
    "graph_infonce, not square": (
        lambda: energies.graph_infonce(np.ones((3, 2))),
        "weights: got shape (3, 2); needs a square matrix (n, n); row i holds the weights of anchor i's positives",
    ),
    "graph_infonce, NaN weight": (
        lambda: energies.graph_infonce([[0, np.nan], [1, 0]]),
        "weights: got an entry nan; needs finite entries >= 0; set unrelated pairs to 0",
    ),
    "graph_infonce, temperature zero": (
        lambda: energies.graph_infonce(EYE, temperature=0),
        "temperature: got 0; needs a number above zero; tau inside the loss is positive, for example 0.5",
    ),
    "graph_infonce, several temperatures": (
        lambda: energies.graph_infonce(EYE, temperature=np.ones(3)),
        "temperature: got array([1., 1., 1.]); needs a number; tau inside the loss is positive, for example 0.5",
    ),
    "graph_infonce, dimension one": (
        lambda: energies.graph_infonce(EYE, dim=1),
        "dim: got 1; needs a whole number, at least 2; the sphere S^0 is two points, nothing can move",
    ),
    "graph_infonce, keys of norm two": (
        lambda: energies.graph_infonce([[0, 1.0]], keys=[[2.0, 0.0]]),
        "keys: got a row of norm 2; needs rows of norm 1; normalise them with infonce_jax.sphere.project",
    ),
    "graph_infonce, multiplicity of another shape": (
        lambda: energies.graph_infonce(EYE, multiplicity=np.ones((2, 2))),
        "multiplicity: got shape (2, 2); needs shape (3, 3); one entry per anchor and candidate",
    ),
    "graph_infonce, negative anchor": (
        lambda: energies.graph_infonce(EYE, anchors=[1, 1, -1]),
        "anchors: got an entry -1; needs finite entries >= 0; set unrelated pairs to 0",
    ),
    "graph_infonce, alone": (
        lambda: energies.graph_infonce([[0.0]]),
        "weights: got anchor 0 of 1 without a candidate; needs one to contrast; use n >= 2 embeddings or frozen keys",
    ),
    "graph_infonce, form single": (
        lambda: energies.graph_infonce(np.ones((3, 3)), form="single"),
        "form: got 'single' with other weights; needs one positive of weight 1 per anchor, counts 0 or 1; use "
        "form='out'",
    ),
    "graph_infonce, form in without positive": (
        lambda: energies.graph_infonce(np.zeros((3, 3)), form="in"),
        "weights: got an anchor without a positive; needs a positive for each anchor when form is 'in'; leave it "
        "out with anchors=, or use form='out'",
    ),
    "energy of several configurations": (
        lambda: energies.graph_infonce(EYE)(jnp.ones((4, 3, 2))),
        "x: got shape (4, 3, 2); needs one configuration of shape (3, d); use jax.vmap for many",
    ),
    "with_temperature, negative": (
        lambda: scenarios.ring(5).energy.with_temperature(-1),
        "temperature: got -1; needs a number above zero; tau inside the loss is positive, for example 0.5",
    ),
    "with_temperature, none to change": (
        lambda: energies.from_function(lambda x: x[0, 0], shape=(1, 2)).with_temperature(1.0),
        "temperature: FunctionEnergy has none to change; use an energy built with one",
    ),
    "from_function, no shape": (
        lambda: energies.from_function(lambda x: x[0, 0], shape=5),
        "shape: got 5; needs (n, d); n embeddings in R^d, for example (5, 2)",
    ),
    "from_function, no embedding": (
        lambda: energies.from_function(lambda x: x[0, 0], shape=(0, 2)),
        "shape: got (0, 2); needs n >= 1 and d >= 2; n embeddings in R^d, for example (5, 2)",
    ),
    "from_function, a vector": (
        lambda: energies.from_function(lambda x: x[0], shape=(1, 2)),
        "function: got a result float32[2]; needs a float scalar; end it with jnp.sum or jnp.mean",
    ),
    "from_function, a whole number": (
        lambda: energies.from_function(jnp.argmax, shape=(1, 2)),
        "function: got a result int32[]; needs a float scalar; end it with jnp.sum or jnp.mean",
    ),
    "from_function, an error": (
        lambda: energies.from_function(broken, shape=(1, 2)),
        "function: got an error on an array of shape (1, 2) ('no such view'); needs a JAX function of one array; "
        "try it on one configuration first",
    ),
    "one_way_energy, one pair": (
        lambda: energies.one_way_energy(1, 2),
        "num_pairs: got 1; needs a whole number, at least 2; a contrast needs at least two pairs",
    ),
    "sup_con_energy, a lonely label": (
        lambda: energies.sup_con_energy([0, 0, 1], 2),
        "labels: got label 1 once; needs every label at least twice; leave such views out",
    ),
    "sup_con_energy, no labels": (
        lambda: energies.sup_con_energy([], 2),
        "labels: got shape (0,); needs shape (n,); one label per view",
    ),
    "queue_energy, no negatives": (
        lambda: energies.queue_energy(POINT, np.zeros((0, 2))),
        "keys, queue: got 1 and 0 rows; needs at least one of each; without negatives there is nothing to contrast",
    ),
    "queue_energy, two dimensions": (
        lambda: energies.queue_energy(POINT, [[1.0, 0.0, 0.0]]),
        "keys, queue: got dimensions 2, 3; needs the same dimension; embed both alike",
    ),
    "alignment_uniformity_energy, weight": (
        lambda: energies.alignment_uniformity_energy(2, 2, weight=-1),
        "weight: got -1; needs a weight >= 0; a negative one would reward collapse",
    ),
    "alignment_uniformity_energy, odd views": (
        lambda: energies.alignment_uniformity_energy(2, 2)(jnp.ones((3, 2))),
        "x: got shape (3, 2); needs one configuration of shape (4, 2); use jax.vmap for many",
    ),
    "split_views, odd": (
        lambda: energies.split_views(np.ones((3, 2))),
        "x: got shape (3, 2); needs shape (2N, d); join two views with join_views",
    ),
    "join_views, unequal": (
        lambda: energies.join_views(np.ones((2, 2)), np.ones((3, 2))),
        "a, b: got shapes (2, 2), (3, 2); needs the same shape; row i of both is one pair",
    ),
    "info_nce, temperature": (
        lambda: losses.info_nce(PAIR, PAIR, "warm"),
        "temperature: got 'warm'; needs a number; tau inside the loss is positive, for example 0.5",
    ),
    "nt_xent, unequal views": (
        lambda: losses.nt_xent(PAIR, PAIR[:, :1], 0.5),
        "b: got shape (2, 1) beside a of shape (2, 2); needs the same shape twice; row i of a and row i of b "
        "belong together",
    ),
    "debiased, prior": (
        lambda: reweighted.debiased(PAIR, PAIR, 0.5, positive_prior=1.5),
        "positive_prior: got 1.5; needs a number at least 0 and below 1; the docstring has its place in the formula",
    ),
    "uniformity, one row": (
        lambda: non_contrastive.uniformity(POINT),
        "z: got 1 row; needs at least 2; add rows, the others are the negatives",
    ),
    "ring of two": (
        lambda: scenarios.ring(2),
        "n: got 2; needs a whole number, at least 3; a cycle has at least three views",
    ),
    "digit number 5000": (
        lambda: scenarios.digit_images(5000),
        "index: got 5000; needs 0 to 1796; there are that many digits",
    ),
    "digit number four": (
        lambda: scenarios.digit_images("four"),
        "index: got 'four'; needs a whole number, at least 0; 0 to 1796, the digits there are",
    ),
    "scenario without a name": (
        lambda: scenarios.get(None),
        "scenario: got NoneType; needs a name; for example 'ring5' or 'mine.py:energy'",
    ),
    "logarithmic, offset one": (
        lambda: schedules.logarithmic(1.0, offset=1),
        "offset: got 1, so beta(0) = log(1)/c <= 0; needs offset > 1; the usual choice is 2",
    ),
    "logarithmic, depth": (
        lambda: schedules.logarithmic("deep"),
        "depth: got 'deep'; needs a number; c is an energy, for example 1.5 * critical_depth",
    ),
    "power, exponent": (
        lambda: schedules.power(0),
        "exponent: got 0; needs a number above zero; pass a number above zero",
    ),
    "linear, warming": (
        lambda: schedules.linear(-1),
        "rate: got -1.0; needs a rate >= 0; annealing cools: beta grows",
    ),
    "constant, infinite": (
        lambda: schedules.constant(np.inf),
        "value: got inf; needs a finite number; an inverse temperature, for example 5.0",
    ),
    "piecewise, words": (
        lambda: schedules.piecewise(["now", "then"], [1, 2]),
        "times: got list; needs an array of numbers; rows of equal length",
    ),
    "piecewise, unequal": (
        lambda: schedules.piecewise([0, 1], [1]),
        "times, values: got shapes (2,), (1,); needs two lists of the same length >= 2; pair them up",
    ),
    "piecewise, late start": (
        lambda: schedules.piecewise([1, 2], [1, 2]),
        "times: got [1.0, 2.0]; needs finite increasing times from 0; sort them and start at 0",
    ),
    "piecewise, infinite": (
        lambda: schedules.piecewise([0, 1], [1, np.inf]),
        "values: got inf; needs positive inverse temperatures; beta = 0 is infinite noise",
    ),
    "from_optax, a number": (
        lambda: schedules.from_optax(3.0),
        "schedule: got one that fails on two counts with TypeError; needs a function from an array of counts to "
        "one of numbers; for example optax.linear_schedule(1.0, 9.0, 1000)",
    ),
    "from_optax, starts at zero": (
        lambda: schedules.from_optax(lambda count: 0.0 * count),
        "schedule optax <lambda>: got beta(0) = 0; needs beta(t) > 0 at every time; beta = 0 is infinite noise; "
        "start above it",
    ),
    "from_optax, another shape": (
        lambda: schedules.from_optax(lambda count: np.ones(3)),
        "schedule: got one that fails on two counts with ValueError; needs a function from an array of counts to "
        "one of numbers; for example optax.linear_schedule(1.0, 9.0, 1000)",
    ),
    "geometric_to_horizon": (
        lambda: schedules.geometric_to_horizon(1.0, 2.0, 0),
        "horizon: got 0; needs a number above zero; the length of the run in time units: num_steps * step_size",
    ),
    "schedule at a negative time": (
        lambda: schedules.constant(1.0)(-1.0),
        "t: got -1.0; needs times >= 0; time counts from the start of the run",
    ),
    "schedule at no time": (
        lambda: schedules.constant(1.0)(np.nan),
        "t: got nan; needs times >= 0; time counts from the start of the run",
    ),
    "schedule at a word": (
        lambda: schedules.constant(1.0)("now"),
        "t: got str; needs an array of numbers; one time or an array of them",
    ),
    "geodesic_euler, step": (
        lambda: integrators.geodesic_euler(0),
        "step_size: got 0; needs a number above zero; a time step, for example 0.03",
    ),
    "hmc, half a leapfrog": (
        lambda: integrators.hmc(0.1, num_leapfrog=2.5),
        "num_leapfrog: got 2.5; needs a whole number, at least 1; leapfrog steps per call, for example 5",
    ),
    "kinetic, friction": (
        lambda: integrators.kinetic(0.1, friction=-1),
        "friction: got -1; needs a number above zero; a rate, for example 1.0",
    ),
    "replica_exchange, inner": (
        lambda: integrators.replica_exchange(integrators.kinetic(0.1), (1, 0.5)),
        "inner: got kinetic BAOAB; needs a scheme whose state is its positions; for example integrators.mala(0.1)",
    ),
    "replica_exchange, ratios": (
        lambda: integrators.replica_exchange(integrators.mala(0.1), (0.5, 1)),
        "ratios: got (0.5, 1.0); needs two or more numbers that fall from 1; multiples of the inverse "
        "temperature, for example (1, 0.5, 0.25)",
    ),
    "replica_exchange, ragged ratios": (
        lambda: integrators.replica_exchange(integrators.mala(0.1), ((1, 0.5), (1,))),
        "ratios: got ((1, 0.5), (1,)); needs a list of numbers; multiples of the inverse temperature, for "
        "example (1, 0.5, 0.25)",
    ),
    "run_chains, a function for an energy": (
        lambda: run(lambda x: x[0, 0]),
        "energy: got function; needs an infonce_jax Energy; see infonce_jax.energies",
    ),
    "run_chains, initial off the sphere": (
        lambda: run(initial=np.full((5, 2), 0.5)),
        "initial: got a row of norm 0.7071; needs rows of norm 1; normalise them with infonce_jax.sphere.project",
    ),
    "run_chains, seed": (
        lambda: run(seed=2**64),
        "seed: got 18446744073709551616; needs a whole number from 0 to 2^64 - 1; chains derive their threefry "
        "keys from it",
    ),
    "run_chains, cold tau": (
        lambda: run(temperature=schedules.constant(1e-7)),
        "temperature: got tau = 1e-07 during the run; needs tau of at least 1e-05; single precision cannot "
        "resolve s/tau below; end the schedule earlier",
    ),
    "run_chains, beta turns negative": (
        lambda: run(beta=schedules.from_optax(lambda count: 1 - 20 * count)),
        "schedule optax <lambda>: got beta(0.06) = -0.2; needs beta(t) > 0 at every time; beta = 0 is infinite "
        "noise; start above it",
    ),
    "run_chains, ball of another shape": (
        lambda: run(observers=[observers.first_passage(within=0.1, of=[[1.0, 0.0, 0.0]])]),
        "of: got centres of shape (1, 3); needs shape (5, 2), that of a chain; one row per embedding",
    ),
    "run_chains, ball of fewer rows": (
        lambda: run(observers=[observers.first_passage(within=0.1, of=POINT)]),
        "of: got centres of shape (1, 2); needs shape (5, 2), that of a chain; one row per embedding",
    ),
    "run_chains, average of what is not there": (
        lambda: run(observers=[observers.average(lambda x, energy: x[0, 0, 0])]),
        "average: got a function that fails with IndexError on positions of shape (5, 2); needs a JAX function "
        "of (positions, energy); try it on one chain first",
    ),
    "energies at a word": (
        lambda: observers.energies(times="now"),
        "times: got str; needs an array of numbers; a list of times >= 0, in time units",
    ),
    "snapshots before the start": (
        lambda: observers.snapshots(times=[-1.0]),
        "times: got [-1.0]; needs a list of times >= 0; times are in time units: steps * step_size",
    ),
    "first_passage without a set": (
        lambda: observers.first_passage(),
        "first_passage: got energy_below=None, within=None; needs one set; pass energy_below=level, or "
        "within=radius with of=points",
    ),
    "first_passage, radius": (
        lambda: observers.first_passage(within=0, of=POINT),
        "within: got 0; needs a number above zero; pass a number above zero",
    ),
    "average of a number": (
        lambda: observers.average(3.0),
        "function: got float; needs a JAX function of (positions, energy); for example lambda x, energy: energy",
    ),
    "log_spaced_times, first": (
        lambda: observers.log_spaced_times(1.0, 0.1, first=-2),
        "first: got -2; needs a number above zero; pass a number above zero",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_this_line(case):
    call, message = BAD[case]
    assert message_of(call) == message


def test_every_message_is_one_line_of_three_parts():
    plain = {"with_temperature, none to change"}  # there is nothing that was given
    assert {name for name, (_, message) in BAD.items() if not THREE_PARTS.fullmatch(message)} == plain
    assert len(BAD) >= 40
