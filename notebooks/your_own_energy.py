# %% [markdown]
# # Your own energy, your own schedule
#
# Everything in `infonce_jax` works for any smooth function on a product of spheres. Here we write one, find its
# landscape, invent ways to cool, and see who gets trapped, beside what the master equation predicts.

# %%
import os

import jax.numpy as jnp
import matplotlib.pyplot as plt  # noqa: F401  (it teaches a notebook to show figures)
import numpy as np
import optax
from matplotlib.figure import Figure

import infonce_jax as ij

ij.use_all_cores()
QUICK = os.environ.get("INFONCE_JAX_QUICK") == "1"
CHAINS, STEPS = (256, 2000) if QUICK else (2048, 20_000)

# %% [markdown]
# ## An energy
# One embedding on the sphere, pulled towards two places: a narrow deep hole, and a wide shallow one that more random
# starts fall into. Any JAX function of an array of shape (n, d) with unit rows will do.

# %%
PLACES = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def two_holes(x):
    """Two smooth holes; a larger second number makes a hole narrower."""
    deep, wide = jnp.asarray(PLACES) @ x[0]
    return -2.0 * jnp.exp(4.0 * (deep - 1)) - 1.6 * jnp.exp(3.0 * (wide - 1))


energy = ij.energies.from_function(two_holes, shape=(1, 3))

# %%
longitude, latitude = np.meshgrid(np.linspace(-np.pi, np.pi, 120), np.linspace(-np.pi / 2, np.pi / 2, 60))
points = np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], -1)
values = ij.landscape.energies_of(energy, points.reshape(-1, 1, 3)).reshape(longitude.shape)
figure = Figure(figsize=(7.5, 3.6), layout="constrained")
axes = figure.subplots()
levels = axes.contourf(np.degrees(longitude), np.degrees(latitude), values, 24, cmap="viridis")
figure.colorbar(levels, label="energy")
for (x, y, z), name in zip(PLACES, ("deep, narrow", "shallow, wide"), strict=True):
    axes.annotate(name, (np.degrees(np.arctan2(y, x)), np.degrees(np.arcsin(z))), color="white", ha="center")
axes.set(xlabel="longitude (degrees)", ylabel="latitude (degrees)", title="A map of the sphere: two holes")
figure

# %% [markdown]
# ## Its landscape
# Minima, the saddle between them, and the barrier E\* out of the trap.

# %%
land = ij.landscape.explore(energy, num_quenches=256 if QUICK else 1024, num_searches=128 if QUICK else 512)
for k, minimum in enumerate(land.minima):
    print(f"{'global minimum' if k == 0 else 'trap':15s} E = {minimum.energy:.4f}   share {minimum.share:.2f}")
print(f"E* = {land.critical_depth:.4f}   {land.statement()}")

# %% [markdown]
# ## Schedules
# A schedule is an inverse temperature beta(t). Write your own function, take one from optax, or give points to join.
# The logarithm with c = 1.5 E\* stands beside them as the safe, slow choice.

# %%
e_star, step_size = land.critical_depth, 0.2 / land.curvature
horizon = STEPS * step_size
ramp = optax.linear_schedule(2.0 / e_star, 8.0 / e_star, transition_steps=1000)
schedules = {
    "logarithm, c = 1.5 E*": ij.schedules.logarithmic(1.5 * e_star),
    "own: square root": ij.schedules.FixedSchedule("own", lambda t: np.sqrt(1 + t) / e_star),
    "optax: linear ramp": ij.schedules.from_optax(ramp, time_per_count=horizon / 1000),
    "points: wait, then cool": ij.schedules.piecewise(
        [0, horizon / 4, horizon / 2], [3 / e_star, 4 / e_star, 12 / e_star]
    ),
}
times = np.geomspace(20 * step_size, horizon, 10)
figure = Figure(figsize=(7.5, 3.6), layout="constrained")
axes = figure.subplots()
fine = np.geomspace(step_size, horizon, 300)
for name, schedule in schedules.items():
    axes.plot(fine, schedule(fine) * e_star, label=name)
axes.set(xscale="log", yscale="log", xlabel="time (time units)", ylabel=r"$\beta$ E* (1)", title="Four ways to cool")
axes.legend(frameon=False)
figure

# %% [markdown]
# ## Prediction
# Rates between the two holes, with measured free energies of the holes, make a small Markov chain: the master equation.
# It is solved before any chain runs, and nothing in it is fitted.

# %%
size = {"num_betas": 8, "num_moves": 2} if QUICK else {"num_betas": 16, "num_moves": 6}
free = ij.measure.basin_free_energies(land, num_chains=128, **size)
print(free.statement())
mend = ij.theory.corrections(land, free.table)
predicted = {
    name: 1 - ij.theory.master_equation.occupancies(land, schedule, times, corrections=mend)[:, 0]
    for name, schedule in schedules.items()
}

# %% [markdown]
# ## Chains
# Each chain starts at a random point of the sphere. At the marked times we follow it downhill and note where it ends.

# %%
measured = {}
for seed, (name, schedule) in enumerate(schedules.items()):
    run = ij.run_chains(
        energy,
        schedule,
        ij.integrators.geodesic_euler(step_size),
        num_chains=CHAINS,
        num_steps=STEPS,
        seed=seed,
        observers=(ij.observers.snapshots(times),),
        progress=False,
    )
    positions = run.data["positions"].transpose("chain", "time", "embedding", "coordinate").values
    measured[name] = ij.measure.proportions(land.basin_of(positions) != 0)

# %%
figure = Figure(figsize=(8, 4.2), layout="constrained")
axes = figure.subplots()
for k, name in enumerate(schedules):
    shares = np.array([[p.estimate, p.low, p.high] for p in measured[name]]).T
    shown = shares[0] > 0
    bars = np.stack([shares[0] - shares[1], shares[2] - shares[0]])[:, shown]
    axes.errorbar(times[shown], shares[0, shown], yerr=bars, fmt="o", markersize=4, color=f"C{k}", label=name)
    axes.plot(times, predicted[name], linewidth=1, color=f"C{k}")
axes.set(xscale="log", yscale="log", ylim=(0.5 / CHAINS, 1.0), xlabel="time (time units)",
         ylabel="share of chains in the trap", title="Points: measured, 95 % intervals. Lines: predicted")  # fmt: skip
axes.legend(frameon=False, loc="lower left")
figure

# %% [markdown]
# Where beta E\* is below about 3 the barrier is no barrier yet, and the lines need not fit. Later they do.
#
# ## Change it
# Make the shallow hole wider, or the deep one narrower. Add a third. Invent a schedule that beats the logarithm at this
# horizon. Does it still win when the run is ten times as long?
