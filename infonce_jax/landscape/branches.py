"""Branches: critical points of one index as functions of the loss temperature, and the events where they end."""

from __future__ import annotations

import dataclasses

import numpy as np

from infonce_jax.landscape.arclength import Curve, Turn, aside, correct, leave, trace
from infonce_jax.landscape.minima import Classes
from infonce_jax.landscape.relaxation import Family, Look, look

__all__ = ["Bifurcation", "Branch", "State", "grow", "state_at", "states_at"]

_HIGHEST_INDEX = 2  # of branches that are kept
_ROUNDS = 4  # of leaving curves at their crossings
_MOST_BRANCHES = 300
_SAME_EVENT = 1e-4  # relative, in tau and in energy
_BESIDE = 3e-3  # of tau: how far beside a crossing the branch that goes through it is looked for


@dataclasses.dataclass(frozen=True, eq=False)
class Branch:
    """Critical points of one index along an interval of temperatures.

    Attributes:
        index: number of unstable modes: 0 a minimum, 1 a saddle.
        temperatures: ascending, shape (k,).
        energies: shape (k,).
        positions: shape (k, n, d).
        spectra: eigenvalues without those of rotations, shape (k, m), padded with NaN.
        ends: why it ends below and above: "range" at the end of the temperatures; "fold", "branch point" or "index" at
            an event; "start" or "lost" where following stopped.
    """

    index: int
    temperatures: np.ndarray
    energies: np.ndarray
    positions: np.ndarray
    spectra: np.ndarray
    ends: tuple[str, str]

    def covers(self, temperature: float) -> bool:
        """Whether the branch exists at a temperature, as far as it was followed."""
        return bool(self.temperatures[0] <= temperature <= self.temperatures[-1])

    def near(self, temperature: float) -> np.ndarray:
        """Its configuration at a temperature, shape (n, d), interpolated between the points there are."""
        k = int(np.clip(np.searchsorted(self.temperatures, temperature), 1, max(len(self.temperatures) - 1, 1)))
        if len(self.temperatures) == 1:
            return self.positions[0]
        a, b = self.temperatures[k - 1 : k + 1]
        share = (temperature - a) / (b - a) if b > a else 0.0
        between = self.positions[k - 1] + share * (self.positions[k] - self.positions[k - 1])
        return between / np.linalg.norm(between, axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Bifurcation:
    """Where critical points appear, vanish or change their index.

    Attributes:
        kind: "fold", where two of them annihilate, or "branch point", where a mode of one changes sign while others
            split off; with symmetries this is a pitchfork as a rule.
        temperature: tau.
        energy: E.
        position: shape (n, d).
        indices: at a fold those of the two; at a branch point that of the branch that goes through, just below and just
            above the temperature.
        rising: at a fold, whether the two annihilate as tau rises (otherwise as it falls).
    """

    kind: str
    temperature: float
    energy: float
    position: np.ndarray
    indices: tuple[int, int]
    rising: bool = True

    def statement(self) -> str:
        """One line for the reader."""
        names = {0: "a minimum", 1: "a saddle"}
        first, second = (names.get(i, f"a point of index {i}") for i in self.indices)
        if self.kind == "fold":
            what = f"{first} and {second} annihilate as tau {'rises' if self.rising else 'falls'}"
        else:
            what = f"{first} becomes {second} as tau rises, where others split off or merge"
        return f"tau = {self.temperature:.6f}: {what}, at E = {self.energy:.6f}"


def _pieces(curve: Curve) -> tuple[list[Branch], list[Bifurcation]]:
    """A curve cut at its events into branches of one index on which tau is monotone."""
    count = len(curve.temperatures) - (curve.ends[1] == "mirror")
    first = 1 if curve.ends[0] == "mirror" else 0
    turns = {turn.after: turn for turn in curve.turns}
    bounds = [k for k in range(first, count - 1) if k in turns or curve.index(k) != curve.index(k + 1)]
    starts, stops = [first, *(k + 1 for k in bounds)], [*bounds, count - 1]
    branches = []
    for a, b in zip(starts, stops, strict=True):
        before = turns.get(a - 1) if a else curve.origin
        branches.append(_piece(curve, a, b, before, turns.get(b)))
    events = [event for k, turn in turns.items() if (event := _event(curve, k, turn)) is not None]
    return [branch for branch in branches if branch is not None], events


def _piece(curve: Curve, a: int, b: int, before: Turn | None, after: Turn | None) -> Branch | None:
    if b < a:
        return None
    places = range(a, b + 1)
    tau, energy = [curve.temperatures[k] for k in places], [curve.energies[k] for k in places]
    x, spectra = [curve.positions[k] for k in places], [curve.spectra[k] for k in places]
    ends = [_name(before, curve.ends[0] if a == 0 else "index"),
            _name(after, curve.ends[1] if b >= len(curve.temperatures) - 1 else "index")]  # fmt: skip
    for turn, first in ((before, True), (after, False)):
        if turn is not None:
            place = 0 if first else len(tau)
            tau.insert(place, turn.temperature)
            energy.insert(place, turn.energy)
            x.insert(place, turn.position)
            spectra.insert(place, turn.spectrum)
    order = np.argsort(tau, kind="stable")
    if tau[-1] < tau[0]:
        ends = ends[::-1]
    return Branch(curve.index(a), np.array(tau)[order], np.array(energy)[order], np.array(x)[order],
                  np.array(spectra)[order], (ends[0], ends[1]))  # fmt: skip


def _name(turn: Turn | None, otherwise: str) -> str:
    return otherwise if turn is None else ("fold" if turn.kind == "fold" else "branch point")


def _event(curve: Curve, k: int, turn: Turn) -> Bifurcation | None:
    if turn.kind == "mirror":  # the crossing that it ends at is an event of the other branch
        return None
    indices = (curve.index(k), curve.index(k + 1))
    if turn.kind == "fold":
        rising = curve.tangents[k][-1] > 0
        return Bifurcation("fold", turn.temperature, turn.energy, turn.position,
                           (min(indices), max(indices)), bool(rising))  # fmt: skip
    ordered = indices if curve.tangents[k][-1] > 0 else (indices[1], indices[0])
    return Bifurcation("branch point", turn.temperature, turn.energy, turn.position, ordered)


def _same(a: float, b: float) -> bool:
    return abs(a - b) < _SAME_EVENT * (abs(a) + abs(b)) / 2


def _new_events(known: list[tuple[float, float]], turns: list[Turn]) -> list[Turn]:
    """Turns that were not seen before, which are entered as seen."""
    fresh = []
    for turn in turns:
        if not any(_same(turn.temperature, t) and _same(turn.energy, e) for t, e in known):
            known.append((turn.temperature, turn.energy))
            fresh.append(turn)
    return fresh


class _Forest:
    """Branches found so far."""

    def __init__(self, members: Family, ends: tuple[float, float], rng: np.random.Generator) -> None:
        self.members, self.ends, self.rng = members, ends, rng
        self.branches: list[Branch] = []
        self.events: list[Bifurcation] = []
        self.crossed: list[tuple[float, float]] = []
        self.mirrored: list[tuple[float, float]] = []

    def plant(self, x: np.ndarray, tau: np.ndarray) -> None:
        """Trace curves through critical points that lie on no known branch, and all that crosses them."""
        # A point of a flat valley has no branch of its own.
        here = look(self.members, x, tau)
        flat = np.nanmin(np.abs(here.spectrum()), axis=1, initial=np.inf) < 1e-7 * here.curvature
        rows = [k for k in range(len(x)) if not (flat[k] or self.knows(x[k], float(tau[k])))]
        curves = trace(self.members, x[rows], tau[rows], *self.ends) if rows else []
        for _ in range(_ROUNDS):
            for curve in curves:
                self._enter(curve)
            if not curves or len(self.branches) > _MOST_BRANCHES:
                return
            curves = self._onward(curves)

    def knows(self, x: np.ndarray, tau: float) -> bool:
        """Whether a critical point is on a branch, up to symmetries."""
        _, here, good = correct(self.members, x[None], np.array([tau]))
        return bool(good[0]) and self._has(here, 0, tau)

    def _has(self, here: Look, row: int, tau: float) -> bool:
        spectrum = here.spectrum()[row]
        number = int(np.sum(spectrum < 0))
        there = state_at(self.members, [b for b in self.branches if b.index == number], tau)
        return there.holds(float(here.energy[row]), spectrum)

    def _enter(self, curve: Curve) -> None:
        branches, events = _pieces(curve)
        self.branches.extend(b for b in branches if b.index <= _HIGHEST_INDEX and not self._duplicate(b))
        for event in (e for e in events if min(e.indices) < _HIGHEST_INDEX):
            if not any(event.kind == e.kind and _same(event.temperature, e.temperature) and
                       _same(event.energy, e.energy) for e in self.events):  # fmt: skip
                self.events.append(event)

    def _duplicate(self, branch: Branch) -> bool:
        """Whether a known branch of the same index holds this one."""
        middle = float(branch.temperatures[len(branch.temperatures) // 2])
        _, here, good = correct(self.members, branch.near(middle)[None], np.array([middle]))
        if not good[0]:
            return False
        slack = 1e-3
        holding = [b for b in self.branches if b.index == branch.index
                   and b.temperatures[0] <= branch.temperatures[0] * (1 + slack)
                   and b.temperatures[-1] >= branch.temperatures[-1] * (1 - slack)]  # fmt: skip
        return state_at(self.members, holding, middle).holds(float(here.energy[0]), here.spectrum()[0])

    def _onward(self, curves: list[Curve]) -> list[Curve]:
        """Curves that cross those given."""
        grown: list[Curve] = []
        turns = [turn for curve in curves for turn in curve.turns]
        for turn in _new_events(self.crossed, [t for t in turns if t.kind == "crossing"]):
            x, log_tau, tangent, here = aside(self.members, turn, self.rng)
            new = [k for k in range(len(x)) if not self._has(here, k, float(np.exp(log_tau[k])))]
            grown += leave(self.members, turn, x[new], log_tau[new], tangent[new], self.ends)
        for turn in _new_events(self.mirrored, [t for t in turns if t.kind == "mirror"]):
            for beside in (turn.temperature * (1 - _BESIDE), turn.temperature * (1 + _BESIDE)):
                x, here, good = correct(self.members, turn.position[None], np.array([beside]))
                if good[0] and self.ends[0] < beside < self.ends[1] and not self._has(here, 0, beside):
                    grown += trace(self.members, x, np.array([beside]), *self.ends)
                    break
        return grown


def grow(
    members: Family, seeds: list[tuple[float, np.ndarray]], ends: tuple[float, float], rng: np.random.Generator
) -> tuple[list[Branch], list[Bifurcation]]:
    """All branches that critical points lie on or that cross those, within a range of temperatures.

    Args:
        members: the energy at every temperature.
        seeds: temperatures, each with critical points there, shape (k, n, d).
        ends: lowest and highest temperature.
        rng: of the directions in which a crossing of several modes is left.
    """
    forest = _Forest(members, ends, rng)
    for tau, x in seeds:
        forest.plant(x, np.full(len(x), tau))
    forest.branches.sort(key=lambda b: (b.index, -np.log(b.temperatures[-1] / b.temperatures[0])))
    return forest.branches, sorted(forest.events, key=lambda event: event.temperature)


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """Critical points at one temperature, each class once.

    Attributes:
        temperature: tau.
        branches: index into the branches given, for each point.
        positions: shape (k, n, d).
        energies: shape (k,).
        spectra: shape (k, m).
        modes: the lowest mode of each, shape (k, n(d-1)), in the basis of the position.
    """

    temperature: float
    branches: np.ndarray
    positions: np.ndarray
    energies: np.ndarray
    spectra: np.ndarray
    modes: np.ndarray

    def holds(self, energy: float, spectrum: np.ndarray) -> bool:
        """Whether a critical point of this energy and spectrum is among them, up to symmetries."""
        known = Classes()
        for k in range(len(self.energies)):
            known.assign(float(self.energies[k]), self.spectra[k], k)
        return known.find(energy, spectrum) >= 0


def state_at(members: Family, branches: list[Branch], temperature: float) -> State:
    """The points of branches at one temperature."""
    return states_at(members, branches, [temperature])[0]


def states_at(members: Family, branches: list[Branch], temperatures: list[float]) -> list[State]:
    """The points of branches at each of several temperatures, computed together."""
    asked = [(t, k) for t, tau in enumerate(temperatures) for k, b in enumerate(branches) if b.covers(tau)]
    shape = members.energy.shape
    if not asked:
        m = shape[0] * (shape[1] - 1)
        nothing = (np.zeros(0, int), np.zeros((0, *shape)), np.zeros(0), np.zeros((0, m)), np.zeros((0, m)))
        return [State(float(tau), *nothing) for tau in temperatures]
    starts = np.stack([branches[k].near(temperatures[t]) for t, k in asked])
    x, here, good = correct(members, starts, np.array([temperatures[t] for t, _ in asked]))
    spectra = here.spectrum()
    states = []
    for t, tau in enumerate(temperatures):
        classes, rows = Classes(), []
        for row in (r for r, (s, _) in enumerate(asked) if s == t):
            right = int(np.sum(spectra[row] < 0)) == branches[asked[row][1]].index
            if good[row] and right and classes.assign(float(here.energy[row]), spectra[row], row) == len(rows):
                rows.append(row)
        states.append(State(float(tau), np.array([asked[r][1] for r in rows], dtype=int), x[rows], here.energy[rows],
                            spectra[rows], here.vectors[rows][:, :, 0]))  # fmt: skip
    return states
