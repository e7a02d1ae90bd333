"""How deep every minimum is at temperatures along branches: the network of minima and saddles at each of them."""

from __future__ import annotations

import dataclasses

import networkx as nx
import numpy as np

from infonce_jax.landscape.branches import Branch, State, states_at
from infonce_jax.landscape.derivatives import displace
from infonce_jax.landscape.minima import Classes
from infonce_jax.landscape.model import SAME_ENERGY
from infonce_jax.landscape.network import add_passage, depths
from infonce_jax.landscape.relaxation import Family, settle

__all__ = ["Depths", "depths_at"]

_ASIDE, _NUDGE = 2e-3, 2e-5  # radians: a descent from a symmetric saddle would stay symmetric
_FURTHEST = 0.02  # radians in one step: the minimum beside a saddle may be close


@dataclasses.dataclass(frozen=True, eq=False)
class Depths:
    """Minima at one temperature and how deep they are.

    Attributes:
        temperature: tau.
        branches: index into the branches for each minimum, -1 for one that lies on no branch that was followed.
        energies: of the classes of minima, ascending.
        barriers: min over global minima g of H(x, g) - E(x); zero for the global ones, infinite without known passage.
    """

    temperature: float
    branches: tuple[int, ...]
    energies: tuple[float, ...]
    barriers: tuple[float, ...]

    @property
    def critical_depth(self) -> float:
        """E*, the largest barrier; zero where every minimum is global."""
        return max(self.barriers, default=0.0)


def depths_at(members: Family, branches: list[Branch], temperatures: list[float]) -> list[Depths]:
    """Depths at each temperature, all descents from saddles together.

    As in `explore` a saddle joins the minima that descents to either side of it end at.
    """
    minima = [k for k, branch in enumerate(branches) if branch.index == 0]
    saddles = [k for k, branch in enumerate(branches) if branch.index == 1]
    low = states_at(members, [branches[k] for k in minima], temperatures)
    high = states_at(members, [branches[k] for k in saddles], temperatures)
    counts = [len(state.energies) for state in high]
    if not sum(counts):
        return [_depths(state, minima, []) for state in low]
    x = np.concatenate([state.positions for state in high])
    mode = np.concatenate([state.modes for state in high])
    tau = np.repeat([state.temperature for state in high], counts)
    noise = _NUDGE * np.random.default_rng(11).normal(size=(2, *mode.shape))
    sides = [displace(x, sign * _ASIDE * mode + noise[s]) for s, sign in enumerate((1.0, -1.0))]
    ends = settle(members, np.concatenate(sides), np.tile(tau, 2), _FURTHEST)
    spectra = ends.look.spectrum().reshape(2, len(x), -1)
    energies = np.where(ends.converged, ends.look.energy, np.nan).reshape(2, -1)
    heights = np.concatenate([state.energies for state in high])
    result, first = [], 0
    for state, number in zip(low, counts, strict=True):
        passages = [(float(heights[k]), energies[:, k], spectra[:, k]) for k in range(first, first + number)]
        result.append(_depths(state, minima, passages))
        first += number
    return result


def _depths(state: State, minima: list[int], passages: list[tuple[float, np.ndarray, np.ndarray]]) -> Depths:
    classes = Classes()
    branch = []
    for row, energy in enumerate(state.energies):
        classes.assign(float(energy), state.spectra[row], row)
        branch.append(minima[int(state.branches[row])])
    edges = []
    for height, energies, spectra in passages:
        if np.isfinite(energies).all():
            pair = [classes.assign(float(e), s, 0) for e, s in zip(energies, spectra, strict=True)]
            edges.append((pair[0], pair[1], height))
    branch += [-1] * (len(classes.energies) - len(branch))
    order = np.argsort(classes.energies, kind="stable")
    rank = {int(old): new for new, old in enumerate(order)}
    graph = nx.Graph()
    graph.add_nodes_from(range(len(order)))
    for number, (a, b, height) in enumerate(edges):
        add_passage(graph, rank[a], rank[b], height, number)
    levels = [classes.energies[k] for k in order]
    if not levels:
        return Depths(state.temperature, (), (), ())
    number_global = sum(e - levels[0] < SAME_ENERGY * (1 + abs(levels[0])) for e in levels)
    barriers = [0.0] * number_global + depths(graph, levels, number_global)
    return Depths(state.temperature, tuple(branch[k] for k in order), tuple(levels), tuple(barriers))
