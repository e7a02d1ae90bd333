# %% [markdown]
# # How long does a chain stay in a trap?
#
# Theory has an old answer: the mean time grows as e^(beta E\*), and the time itself is exponentially distributed. Here
# chains start at the bottom of a trap and we wait for each of them, first where the exact answer is known, then where
# the textbook formula is wrong by a factor of three.

# %%
import os

import matplotlib.pyplot as plt  # noqa: F401  (it teaches a notebook to show figures)
import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from infonce_jax.study import hitting_figures

ij.use_all_cores()
QUICK = os.environ.get("INFONCE_JAX_QUICK") == "1"
CHAINS = 128 if QUICK else 1024
SEARCH = {"num_quenches": 128, "num_searches": 96 if QUICK else 384}

# %% [markdown]
# ## Two wells on a circle
# One embedding, a few frozen keys, two wells. On a line or circle the mean time can be computed exactly, so every part
# of the measurement can be checked.

# %%
well = ij.scenarios.double_well()
land = ij.landscape.explore(well.energy, **SEARCH)
angle = np.linspace(-np.pi, np.pi, 400)
circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None]
figure = Figure(figsize=(6.5, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(np.degrees(angle), ij.landscape.energies_of(well.energy, circle))
for minimum, name in zip(land.minima, ("global minimum", "trap"), strict=True):
    at = np.degrees(np.arctan2(minimum.position[0, 1], minimum.position[0, 0]))
    axes.plot(at, minimum.energy, "o", color="black")
    axes.annotate(name, (at, minimum.energy), xytext=(0, -14), textcoords="offset points", ha="center")
axes.margins(y=0.15)
axes.set(xlabel="angle (degrees)", ylabel="energy", title=f"Two wells; the way out of the trap climbs E* = "
         f"{land.critical_depth:.3f}")  # fmt: skip
figure

# %% [markdown]
# ## Measure
# For several temperatures, many chains from the bottom of the trap, each until it has come down on the other side.

# %%
depths = np.array([2.0, 3.0]) if QUICK else np.array([2.0, 3.0, 4.0, 5.0])
data = ij.measure.hitting_times(well.energy, land, depths / land.critical_depth, CHAINS, halve_step=False)
for k, depth in enumerate(depths):
    at = data.isel(beta=k)
    print(f"beta E* = {depth:g}   measured {float(at['mean']):7.1f} [{float(at['mean_low']):.1f}, "
          f"{float(at['mean_high']):.1f}]   exact {float(at['exact']):7.1f}   Eyring-Kramers "
          f"{float(at['eyring_kramers']):7.1f}")  # fmt: skip

# %% [markdown]
# The **Arrhenius plot**: the logarithm of the mean time against beta is nearly a straight line, and its slope is the
# barrier. Points with error bars are measured; the grey line is exact and passes through them, or within the percent or
# two that finite steps cost. The dashed formula of Eyring and Kramers catches up as beta grows: it is a statement about
# low temperatures.

# %%
figure = hitting_figures.draw_arrhenius(data)
figure.suptitle("Two wells: waiting grows as e^(beta E*)", fontsize=11)
figure

# %% [markdown]
# The **exponential law**: divided by its mean, the time forgets everything but chance. The share of chains that have
# not arrived falls along the same straight line at every temperature. The probability below is that of so large a
# deviation by chance.

# %%
print("p values:", np.round(data["p_value"].values, 3))
figure = hitting_figures.draw_survival(data)
figure.suptitle("Divided by its mean, every waiting time follows one law", fontsize=11)
figure

# %% [markdown]
# ## Five views on a ring: a trap that is no simple well
# The trap of `ring5` is ten copies of one arrangement, joined by saddles so low that together they are one soft valley.
# The formula takes each for a narrow well, and overestimates the time by a factor of about three. The mend is to
# *measure* how much room the valley has (its free energy) and put that into the rate.

# %%
ring = ij.scenarios.ring(5)
soft = ij.landscape.explore(ring.energy, **SEARCH)
betas = (np.array([3.0]) if QUICK else np.array([3.0, 4.0, 5.0])) / soft.critical_depth
size = {"num_betas": 8, "num_moves": 1} if QUICK else {"num_betas": 16, "num_moves": 6}
free = ij.measure.basin_free_energies(soft, num_chains=128, **size)
print(free.statement())

# %%
mend = ij.theory.corrections(soft, free.table) if not QUICK else None
if mend is None:  # the quick version leaves the shape of the saddle harmonic
    mend = ij.theory.Corrections(free.table, np.array([1.0, 100.0]), np.ones((2, len(soft.saddles))))
rates = [ij.theory.rate(soft, 1, 0, beta, corrections=mend) for beta in betas]
times = ij.measure.hitting_times(ring.energy, soft, betas, CHAINS, halve_step=False, corrected=rates)
for k, beta in enumerate(betas):
    at = times.isel(beta=k)
    print(f"beta E* = {beta * soft.critical_depth:.0f}   measured {float(at['mean']):7.1f} "
          f"[{float(at['mean_low']):.1f}, {float(at['mean_high']):.1f}]   "
          f"harmonic {float(at['eyring_kramers']):7.1f}   corrected {float(at['corrected']):7.1f}")  # fmt: skip

# %%
figure = hitting_figures.draw_arrhenius(times)
figure.suptitle("ring5: harmonic rates far off, corrected ones not", fontsize=11)
figure

# %% [markdown]
# ## Change it
# Try `ij.scenarios.ring(8)` or `square_keys()`, more chains, lower temperatures. At which beta E\* does the exponential
# law begin to hold? What happens to it when chains start at random points of the basin, not at its bottom?
