"""What an energy is: a pytree that maps one configuration to a scalar."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from infonce_jax.checks import InputError, positive, refuse

__all__ = ["Energy", "FunctionEnergy", "from_function"]


class Energy:
    """A scalar function of one configuration x of shape (n, d) with unit rows.

    Subclasses are frozen dataclasses registered as pytrees. Numbers that may change without recompiling (weights, keys,
    temperature) are leaves; choices that change the computation are static fields. `shape` tells `run_chains` and
    `landscape.explore` what a configuration looks like.

    Attributes:
        gradient_shows_failure: a promise of the class, for energies that are finite where a chain starts: at every
            configuration of unit rows at which the energy is not finite, an entry of its gradient is not finite either.
            A chain that follows the gradient then leaves the sphere by itself, and the loop need not compute the value
            of the energy at each step to see that it stopped being finite, which costs 6 to 15 % of a step. False
            promises nothing.
    """

    gradient_shows_failure: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d): the number of free embeddings and the dimension of the space around them."""
        raise NotImplementedError

    def __call__(self, x: jax.Array) -> jax.Array:
        """Energy of the configuration x, shape (n, d), as a scalar of x's dtype."""
        raise NotImplementedError

    def with_temperature(self, temperature: Any) -> Self:
        """The same energy at another temperature (tau, inside the loss); a tracer is welcome.

        Raises:
            InputError: the energy has no temperature.
        """
        if getattr(self, "temperature", None) is None:
            raise InputError(f"temperature: {type(self).__name__} has none to change; use an energy built with one")
        return dataclasses.replace(self, temperature=temperature)  # type: ignore[type-var]

    def coupled(self) -> Self:
        """The potential V = tau * E of the coupled mode, in which tau(t) = 1/beta(t) and so beta * V = E."""
        raise InputError(f"coupled mode: {type(self).__name__} has no temperature; use an energy built with one")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FunctionEnergy(Energy):
    """A user's function as an energy; see `from_function`."""

    parameters: Any
    function: Callable[..., jax.Array] = dataclasses.field(metadata={"static": True})
    size: tuple[int, int] = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        return self.size

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.function(x) if self.parameters is None else self.function(x, self.parameters)


def from_function(function: Callable[..., jax.Array], shape: tuple[int, int], parameters: Any = None) -> FunctionEnergy:
    """Turn a scalar JAX function of one configuration into an energy.

    Args:
        function: `function(x)` or, when `parameters` is given, `function(x, parameters)`; x has shape (n, d) with unit
            rows; the result is a scalar. It is differentiated, so write it with `jax.numpy`.
        shape: (n, d) with n >= 1 and d >= 2.
        parameters: pytree of arrays that may change between runs without recompiling.

    Raises:
        InputError: the shape is not a pair of such numbers, or the function does not return a scalar float.

    >>> import infonce_jax as ij, jax.numpy as jnp
    >>> energy = ij.energies.from_function(lambda x: -x[0, 2], shape=(1, 3))
    >>> float(energy(jnp.array([[0.0, 0.0, 1.0]])))
    -1.0
    """
    shape = check_shape(shape)
    energy = FunctionEnergy(parameters, function, shape)
    try:
        out = jax.eval_shape(energy, jax.ShapeDtypeStruct(shape, jnp.float32))
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise refuse("function", f"an error on an array of shape {shape} ({first})", "a JAX function of one array",
                     "try it on one configuration first") from error  # fmt: skip
    if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
        got = f"{out.dtype}{list(out.shape)}" if hasattr(out, "shape") else type(out).__name__
        raise refuse("function", f"a result {got}", "a float scalar", "end it with jnp.sum or jnp.mean")
    return energy


def check_shape(shape: Any) -> tuple[int, int]:
    """Return (n, d) as ints, refusing anything but n >= 1, d >= 2."""
    try:
        n, d = (int(v) for v in shape)
    except (TypeError, ValueError):
        raise refuse("shape", repr(shape), "(n, d)", "n embeddings in R^d, for example (5, 2)") from None
    if n < 1 or d < 2:
        raise refuse("shape", (n, d), "n >= 1 and d >= 2", "n embeddings in R^d, for example (5, 2)")
    return n, d


def check_temperature(temperature: Any) -> Any:
    """A concrete temperature as a positive float64 scalar array; a tracer passes through."""
    if isinstance(temperature, Tracer):
        return temperature
    if isinstance(temperature, jax.Array) and temperature.ndim == 0:
        temperature = float(temperature)
    return np.asarray(positive("temperature", temperature, "tau inside the loss is positive, for example 0.5"))
