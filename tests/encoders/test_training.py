"""Training is a function of (seed, index) alone, computes what a plain loop computes, and stops where it should."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import infonce_jax as ij
from infonce_jax import encoders
from infonce_jax.encoders import FullBatch, TrainingStopped, Views, learned, mlp, optimise, train
from infonce_jax.encoders.trainer import _advance_all
from tests.refusals import THREE_PARTS, message_of

ENCODER, DATA = mlp((8,), 2), np.eye(5)
RING = ij.scenarios.ring(5).energy
ADAM = optax.adam(1e-2)
NOISY = optax.chain(optax.sgd(1e-2), encoders.langevin(50.0))


@functools.cache
def trained(seeds=1, devices=1, every=None, temperature="linear:1:0.5", optimizer=ADAM, steps=60, seed=0):
    return train(ENCODER, DATA, RING, temperature, optimizer, steps, seeds, seed, record_every=every,
                 num_devices=devices, progress=False)  # fmt: skip


def same(a, b):
    """Equal bits, first seeds of the second against the first."""
    pairs = zip(jax.tree.leaves(a.parameters), jax.tree.leaves(b.parameters), strict=True)
    return all(np.array_equal(x, y[: len(x)]) for x, y in pairs)


def test_a_training_computes_what_a_plain_loop_computes():
    run = trained(seeds=3, every=10)
    loss = jax.jit(jax.value_and_grad(lambda p, tau: RING.with_temperature(tau)(ENCODER.apply(p, DATA))))
    key = jax.random.wrap_key_data(ij.noise.chain_keys(0, np.array([1]))[:, 0])
    parameters, losses, tau = ENCODER.init(key, DATA), [], lambda i: 1 - 0.5 * i / 60
    state = ADAM.init(parameters)
    for i in range(60):
        value, gradient = loss(parameters, tau(i))
        losses.append(float(value))
        updates, state = ADAM.update(gradient, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    one = run.data.isel(seed=1)
    np.testing.assert_allclose(one["loss"][:-1], losses[::10], rtol=2e-5)
    np.testing.assert_allclose(one["temperature"], [tau(i) for i in range(0, 61, 10)], rtol=1e-6)
    np.testing.assert_allclose(run.embeddings[1], ENCODER.apply(parameters, DATA), atol=2e-4)
    np.testing.assert_array_equal(one["step"], np.arange(0, 61, 10))
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("optimizer", [ADAM, NOISY], ids=["adam", "langevin"])
def test_neither_seeds_nor_devices_nor_records_change_a_bit(optimizer):
    whole = trained(seeds=37, devices=2, optimizer=optimizer)
    for other in (trained(optimizer=optimizer), trained(seeds=16, every=7, optimizer=optimizer)):
        assert same(other, whole)
    one, last = trained(optimizer=optimizer).data, whole.data.isel(seed=[0])
    for name in one:
        np.testing.assert_array_equal(one[name], last[name])


def test_seeds_differ_also_in_their_noise():
    first = [leaf.reshape(37, -1) for leaf in jax.tree.leaves(trained(seeds=37, devices=2).parameters)]
    assert all(len(np.unique(leaf, axis=0)) == 37 for leaf in first)
    assert not same(trained(), trained(seed=1))
    still = dataclasses.replace(FullBatch.of(ENCODER, DATA, RING))
    quiet = optax.chain(optax.sgd(0.0), encoders.langevin(1.0, 0.01))
    options: dict[str, Any] = {"temperature": 0.5, "optimizer": quiet, "num_steps": 1, "progress": False}
    run = optimise(still, **options, num_seeds=16, num_devices=1)
    biases = np.asarray(run.parameters["output"]["bias"])  # 0 at the start, so this is the noise
    assert len(np.unique(biases)) == biases.size


def test_large_encoders_go_one_by_one_to_the_same_bits(monkeypatch):
    monkeypatch.setattr("infonce_jax.encoders.trainer._LARGE", 0)
    options: dict[str, Any] = {"temperature": 0.5, "optimizer": ADAM, "num_steps": 20, "progress": False}
    one, three = (optimise(FullBatch.of(ENCODER, DATA, RING), **options, num_seeds=n, num_devices=1) for n in (1, 3))
    assert same(one, three)


def test_a_snapshot_continues_to_the_same_bits():
    taken = []

    def on_chunk(trainer):
        taken.append(pickle.loads(pickle.dumps(trainer.snapshot())))
        if trainer.step >= 30:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"num_steps": 60, "num_seeds": 3, "record_every": 10, "progress": False}
    call = functools.partial(train, ENCODER, DATA, RING, "linear:1:0.5", NOISY, **options)
    with pytest.raises(KeyboardInterrupt):
        call(on_chunk=on_chunk, num_devices=1)
    assert taken[-1].step == 30
    resumed, whole = call(resume=taken[-1], num_devices=2), call(num_devices=1)
    assert same(resumed, whole)
    assert resumed.data.identical(whole.data)


def test_new_temperatures_do_not_compile_anew():
    trained()
    before = _advance_all._cache_size()
    trained(temperature="cosine:2:0.6:30")
    trained(temperature=0.7)
    assert _advance_all._cache_size() == before


def test_a_learned_temperature_moves_and_stays_above_a_hundredth():
    run = trained(seeds=2, temperature=learned(0.5))
    taus = run.data["temperature"]
    np.testing.assert_allclose(taus[:, 0], 0.5, rtol=1e-6)
    assert np.all(taus[:, 1] != 0.5)
    assert np.all(np.abs(np.log(taus[:, 1] / 0.5)) < 0.011)  # Adam's first step is its learning rate
    # Coincident embeddings would be let go; here positives are apart, so the only way of a steep descent is the clip.
    fast = train(ENCODER, DATA, RING, learned(0.011), optax.sgd(-1.0), 3, progress=False)
    assert abs(float(fast.data["temperature"][0, -1]) - 0.01) < 1e-8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Drifting:
    """A loss that counts its steps in the memory and draws from its key; not finite from a step on."""

    target: Any
    breaks_at: Any
    name: ClassVar[str] = "drifting"
    batch_log: ClassVar[float] = 1.0

    def init(self, key):
        return jax.random.normal(key, (2,)), jnp.zeros((), jnp.int32)

    def loss(self, parameters, memory, key, temperature):
        z = jnp.stack([jnp.cos(parameters), jnp.sin(parameters)], axis=1)
        noise = jax.random.normal(key)
        value = jnp.sum((parameters - self.target) ** 2) / temperature + 0 * noise
        return jnp.where((memory >= self.breaks_at) & (parameters[0] > self.target), jnp.nan, value), Views(z, z)

    def after(self, parameters, memory, views):
        return memory + 1


SGD = optax.sgd(0.01)


def test_memory_is_updated_once_a_step():
    run = optimise(Drifting(np.float32(0), np.int32(1000)), temperature=1.0, optimizer=SGD, num_steps=25,
                   num_seeds=2, progress=False)  # fmt: skip
    np.testing.assert_array_equal(run.memory, [25, 25])


def test_a_loss_that_is_not_finite_stops_with_what_there_was():
    objective = Drifting(np.float32(0), np.int32(23))
    with pytest.raises(TrainingStopped) as caught:
        optimise(objective, temperature=1.0, optimizer=SGD, num_steps=50, num_seeds=8, record_every=10, progress=False)
    stop = caught.value
    starts = np.asarray(optimise(objective, temperature=1.0, optimizer=SGD, num_steps=1, num_seeds=8,
                                 progress=False).parameters)  # fmt: skip
    assert stop.seed == int(np.argmax(starts[:, 0] > 0))
    assert stop.step == 23
    assert np.isnan(stop.value)
    np.testing.assert_array_equal(stop.training.data["step"], [0, 10, 20])
    assert np.all(np.isfinite(stop.training.data["loss"]))
    assert str(stop).startswith(f"seed {stop.seed}: the loss became nan at step 23; ")
    assert pickle.loads(pickle.dumps(stop)).step == 23


def test_a_broken_last_step_is_noticed():
    with pytest.raises(TrainingStopped) as caught:
        optimise(Drifting(np.float32(-100), np.int32(10)), temperature=1.0, optimizer=SGD, num_steps=10, progress=False)
    assert caught.value.step == 10


def test_progress_counts_seed_steps(capsys):
    with pytest.raises(ij.InputError):
        trained(devices=99)
    train(ENCODER, DATA, RING, 0.7, ADAM, 60, 2, progress=True, num_devices=1)
    assert "120/120" in capsys.readouterr().err.replace(" ", "")


def test_the_temperature_of_the_energy_is_kept_where_none_is_given():
    run = train(ENCODER, DATA, RING, num_steps=2, progress=False)
    np.testing.assert_allclose(run.data["temperature"], 0.5)
    free = ij.energies.from_function(lambda x: x[0, 0], (5, 2))
    assert train(ENCODER, DATA, free, num_steps=2, progress=False).num_steps == 2


def test_encoding_new_inputs():
    run = trained(seeds=3, every=10)
    inputs = np.random.default_rng(0).normal(size=(7, 5))
    z = run.encode(inputs)
    assert z.shape == (3, 7, 2)
    one = jax.tree.map(lambda a: a[2], run.parameters)
    np.testing.assert_allclose(z[2], ENCODER.apply(one, inputs), atol=1e-6)
    assert run.features(inputs).shape == (3, 7, 8)


class Plain(Drifting):
    """Not registered, so no pytree."""


def fails(**changes):
    arguments: dict[str, Any] = {"encoder": ENCODER, "data": DATA, "energy": RING, "temperature": 0.5,
                                 "optimizer": ADAM, "num_steps": 10} | changes  # fmt: skip
    return lambda: train(**arguments)


BAD = {
    "encoder": fails(encoder="mlp"),
    "energy": fails(energy=lambda x: 0.0),
    "rows": fails(data=np.eye(4)),
    "one row": fails(data=np.ones(5)),
    "NaN": fails(data=np.full((5, 5), np.nan)),
    "text": fails(data="digits"),
    "dim": fails(encoder=mlp((8,), 3)),
    "temperature": fails(temperature=0.0),
    "schedule": fails(temperature=optax.linear_schedule(1.0, -1.0, 10)),
    "text of a temperature": fails(temperature="warm"),
    "no temperature to change": fails(energy=ij.energies.from_function(lambda x: x[0, 0], (5, 2))),
    "optimizer": fails(optimizer="adam"),
    "steps": fails(num_steps=0),
    "seeds": fails(num_seeds=0),
    "seed": fails(seed=-1),
    "records": fails(record_every=0),
    "progress": fails(progress="bar"),
    "devices": fails(num_devices=0),
    "objective": lambda: optimise(1, temperature=1.0, optimizer=ADAM, num_steps=1),  # type: ignore[arg-type]
    "no pytree": lambda: optimise(Plain(0, 0), temperature=1.0, optimizer=ADAM, num_steps=1),
    "no encoder": lambda: optimise(Drifting(np.float32(0), np.int32(9)), temperature=1.0, optimizer=SGD, num_steps=1,
                                   progress=False).embeddings,
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(name):
    assert THREE_PARTS.fullmatch(message_of(BAD[name]))
