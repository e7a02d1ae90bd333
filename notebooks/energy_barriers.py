# %% [markdown]
# # From a handwritten digit to its energy barriers
#
# Take one handwritten digit, turn it eight times, and let InfoNCE place the eight views on a circle. Does it lay them
# out in the order of their turns? This notebook finds every arrangement that holds still, and the lowest way from one
# to the other.

# %%
import os

import matplotlib.pyplot as plt  # noqa: F401  (it teaches a notebook to show figures)
import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from infonce_jax.study import figures, landscape_figures

ij.use_all_cores()
QUICK = os.environ.get("INFONCE_JAX_QUICK") == "1"

# %% [markdown]
# ## The views
# Digit 4 of scikit-learn's collection, turned by 45 degrees from view to view.

# %%
scenario = ij.scenarios.digit_orbit()
views = len(scenario.images)
figure = Figure(figsize=(9, 1.7), layout="constrained")
for k, axes in enumerate(figure.subplots(1, views)):
    axes.imshow(scenario.images[k], cmap="gray_r")
    axes.set_title(f"view {k}\n{360 * k // views}°", fontsize=9)
    axes.set_axis_off()
figure

# %% [markdown]
# ## Who attracts whom
# Views that look alike are positives of each other. The weights come from pixels alone: nobody told them about angles.
# Neighbours in angle are the strongest pairs, but not all are equally strong, and that is what makes the data real.

# %%
weights = np.asarray(scenario.energy.positives)
figure = Figure(figsize=(4.6, 3.8), layout="constrained")
axes = figure.subplots()
picture = axes.imshow(weights, cmap="Blues", vmin=0)
axes.set(xlabel="view", ylabel="view", title="Neighbours in angle attract each other")
figure.colorbar(picture, label="weight (rows sum to 1)")
figure

# %% [markdown]
# ## The arrangements that hold still
# From many random starts we walk downhill. All of them end in one of two arrangements, up to rotations, reflections and
# relabellings: the **circle**, which is the global minimum, and a **fold**, where the orbit lies on top of itself.
# Between them stands a saddle, the highest point of the lowest way out of the fold.

# %%
land = ij.landscape.explore(scenario.energy, num_quenches=256 if QUICK else 2048, num_searches=192 if QUICK else 1024)
for name, minimum in zip(figures.minimum_names(land), land.minima, strict=True):
    print(f"{name:15s} E = {minimum.energy:.4f}   reached by {100 * minimum.share:.0f} % of random starts")
print(land.statement())

# %%
figure = figures.draw_configurations(scenario, land)
figure.suptitle("The circle, the fold, and the saddle between them", fontsize=11)
figure

# %% [markdown]
# ## The barrier
# A chain in the fold has to climb E\* to get out. At inverse temperature beta that takes a time of order e^(beta E\*).
# Below is the way down from the saddle to both sides: how far one has to go (in radians, all views together), and how
# high.

# %%
print(f"E* = {land.critical_depth:.4f}")
passage = next(k for k, saddle in enumerate(land.saddles) if saddle.ends == (0, 1))
way = ij.landscape.steepest_descent_path(land, passage)
landscape_figures.path_figure(way, land, "The lowest way between the fold and the circle")

# %% [markdown]
# A search can miss a lower passage. An elastic band that knows nothing of the saddle is a second opinion. (It takes a
# while, so the quick version leaves it out.)

# %%
if not QUICK:
    print(ij.landscape.check_saddles(land, [passage]))

# %% [markdown]
# ## All of it in one picture
# In a disconnectivity graph every line ends below at a minimum; lines meet at the height at which a rising flood would
# join their valleys. On the right each copy has its own line: the copies of the fold join early, the two circles
# (clockwise and not) only through the fold.

# %%
figure = landscape_figures.disconnectivity_figure(land)
figure.suptitle("Traps hang high, the global minima low", fontsize=11)
figure

# %% [markdown]
# ## Change it
# Try `ij.scenarios.digit_orbit(index=7)`, another number of views, or another temperature inside the loss. Does the
# fold survive? How does E\* move?
