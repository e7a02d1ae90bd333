"""geoopt's retraction Langevin (`geoopt.samplers.RSGLD` on `geoopt.Sphere`), batched over chains, in PyTorch.

RSGLD moves x -> (x + v)/|x + v| with v = P_x(epsilon/2 grad log p + sqrt(epsilon) xi): with log p = -beta E and
epsilon = 2h/beta it is projected Euler-Maruyama with step h, one gradient per step. (geoopt's samplers refuse manifolds
whose retraction is not reversible, its spheres among them; that matters to schemes that accept or reject, which this
one does not, so the sphere is told that it is.) The sum of the energies over chains has the gradient of each in its
place.

This file imports neither JAX nor the package, since PyTorch may live in an environment without them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.systems import System

__all__ = ["GeooptChains"]


class GeooptChains:
    """Chains as one (chains, n, d) parameter on the sphere, on the GPU where PyTorch sees one.

    Args:
        system: the energy and the step size.
        beta: inverse temperature.
        chains: how many.
        start: shape (chains, n, d), unit rows.
        seed: of PyTorch's generator.

    Raises:
        ImportError: geoopt or PyTorch is not installed.
    """

    def __init__(self, system: System, beta: float, chains: int, start: np.ndarray, seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # geoopt uses what newer PyTorch deprecates
            import geoopt  # type: ignore[import-not-found]
            import torch  # type: ignore[import-not-found]
        self.torch, self.chains, self.beta = torch, chains, beta
        torch.manual_seed(seed)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        tensors = (torch.as_tensor(a, device=device) for a in (system.positives, system.counts, system.keys))
        self.positives, self.counts, self.keys = tensors
        self.temperature = system.temperature
        sphere = geoopt.Sphere()
        sphere.reversible = True
        self.x: Any = geoopt.ManifoldParameter(torch.as_tensor(np.array(start), device=device), sphere)
        self.sampler = geoopt.samplers.RSGLD([self.x], epsilon=2 * system.step_size / beta)
        self.total: Any = torch.zeros(chains, device=device)

    def energies(self) -> Any:
        """Energy of each chain, shape (chains,)."""
        torch, x = self.torch, self.x
        products = x @ x.transpose(1, 2)
        if len(self.keys):
            products = torch.cat([products, x @ self.keys.T], dim=2)
        s = products / self.temperature
        spread = torch.log(torch.sum(self.counts * torch.exp(s), dim=2)).sum(dim=1)
        return spread - (self.positives * s).sum(dim=(1, 2))

    def log_density(self) -> Any:
        """Of all chains together; adds their energies to the running total."""
        values = self.energies()
        self.total += values.detach()
        return -self.beta * values.sum()

    def run(self, steps: int) -> np.ndarray:
        """Mean energy of each chain over the next steps, shape (chains,)."""
        self.total.zero_()
        for _ in range(steps):
            self.sampler.step(self.log_density)
        return (self.total / steps).cpu().numpy()
