"""The figures of hitting times: survival curves, and mean times against inverse temperature."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from infonce_jax.measure import kaplan_meier
from infonce_jax.study.figures import STYLE

__all__ = ["draw_arrhenius", "draw_survival"]


def draw_survival(data: xr.Dataset) -> Figure:
    """Kaplan-Meier curves of time over mean time with their bands, beside the exponential law.

    Args:
        data: from `measure.hitting_times`.
    """
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, data.sizes["beta"]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.subplots()
        reach = 1.0
        for colour, (_, at) in zip(colours, data.groupby("beta", squeeze=False), strict=True):
            mean, beta = float(at["mean"].squeeze()), float(at["beta"].squeeze())
            if not np.isfinite(mean):
                continue
            times, censored = at["time"].values.squeeze(), at["censored"].values.squeeze()
            curve = kaplan_meier(times, censored, data.attrs["level"])
            x = np.concatenate([[0.0], curve.times / mean])
            reach = max(reach, float(x[-1]))
            axes.step(x, np.concatenate([[1.0], curve.probability]), where="post", color=colour, linewidth=1.3,
                      label=rf"$\beta$ = {beta:.3g}")  # fmt: skip
            axes.fill_between(x[1:], curve.low, curve.high, step="post", color=colour, alpha=0.15, linewidth=0)
        law = np.linspace(0, reach, 200)
        axes.plot(law, np.exp(-law), "k--", linewidth=1.1, label="exponential law")
        axes.set(yscale="log", ylim=(0.5 / data.sizes["chain"], 1.5), xlim=(0, reach * 1.02),
                 xlabel="time / mean time (1)", ylabel="P(not yet arrived)")  # fmt: skip
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure


def draw_arrhenius(data: xr.Dataset) -> Figure:
    """Mean times with their intervals against inverse temperature, log axis, beside every prediction there is.

    Args:
        data: from `measure.hitting_times`.
    """
    beta, mean = data["beta"].values, data["mean"].values
    e_star = data.attrs["critical_depth"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.subplots()
        lines = {
            "eyring_kramers": ("--", "#cb181d", "Eyring-Kramers (harmonic)"),
            "corrected": ("-.", "#238b45", "corrected rates"),
            "exact": ("-", "#888888", "exact"),
        }
        for name, (line, colour, label) in lines.items():
            if name in data and np.isfinite(data[name].values).any():
                axes.plot(beta, data[name].values, line, color=colour, label=label)
        seen = np.isfinite(mean)
        spread = np.stack([mean - data["mean_low"].values, data["mean_high"].values - mean])[:, seen]
        axes.errorbar(beta[seen], mean[seen], yerr=spread, fmt="o", color="#2171b5", markersize=4, capsize=3,
                      label=f"measured, {100 * data.attrs['level']:g} % intervals")  # fmt: skip
        # No passage at all bounds the mean from below.
        axes.plot(beta[~seen], data["mean_low"].values[~seen], "^", color="#2171b5", markerfacecolor="none")
        axes.set(yscale="log", xlabel=r"inverse temperature $\beta$ (1/energy)", ylabel="mean time (time units)")
        above = axes.secondary_xaxis("top", functions=(lambda b: b * e_star, lambda s: s / e_star))
        above.set_xlabel(r"$\beta$ E* (1)")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure
