"""Density of a NumPyro model at many points, with its gradient, as one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import numpyro

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.sampling import _numpyro
from mpmtl_prob.sampling.chains import map_in_threads
from mpmtl_prob.sampling.flat import Sites

#: Points in a call of the compiled program; more do not fit a processor's cache.
_BATCH = 16


class CompiledDensity:
    """Energies, gradients and sites of a model at many points, computed in batches by several threads.

    Attributes:
        start: a point, (n,).
    """

    def __init__(
        self, model: Callable[..., None], args: tuple[Any, ...], start: Mapping[str, Any], keep: Sequence[str]
    ) -> None:
        """Compile the density of a NumPyro model with continuous sites.

        Args:
            model: the model; its arguments are traced.
            args: its arguments, pytrees of arrays.
            start: unconstrained values of its sites, in their order.
            keep: names of the sites that are computed, deterministic ones too.
        """
        check_not_forked()
        shapes = tuple((name, np.shape(value)) for name, value in start.items())
        self.start = np.concatenate([np.ravel(value) for value in start.values()]).astype(np.float64)
        self._compiled = _program(model, shapes, tuple(keep))
        with jax.enable_x64(True):
            self._args = jax.device_put(args)

    def __call__(self, points: FloatArray, *, gradient: bool = True) -> tuple[FloatArray, FloatArray, Draws]:
        """Return energies (N,), gradients (N, n), requested or not, and sites at points (N, n)."""
        batches = [points[i : i + _BATCH] for i in range(0, len(points), _BATCH)]
        with jax.enable_x64(True):
            first = self._of_batch(batches[0])  # compiles, once for all threads
            others = map_in_threads(self._of_batch, batches[1:]) if len(batches) > 1 else []
        out: tuple[FloatArray, FloatArray, Draws]
        out = jax.tree.map(lambda *parts: np.concatenate(parts), first, *others)
        return out

    def _of_batch(self, batch: FloatArray) -> Any:
        return jax.tree.map(np.asarray, self._compiled(batch, self._args))


@lru_cache(maxsize=16)
def _program(model: Callable[..., None], shapes: Any, keep: tuple[str, ...]) -> Any:
    """Return the compiled function from a batch of points and the model's arguments to energies, gradients and sites."""

    def energy(vector: Any, args: Any) -> Any:
        with numpyro.validation_enabled(False):
            return _numpyro.energy_and_sites(model, args, Sites(vector, shapes).by_name(), keep)

    def one(vector: Any, args: Any) -> Any:
        (value, sites), gradient = jax.value_and_grad(energy, has_aux=True)(vector, args)
        return value, gradient, sites

    return jax.jit(jax.vmap(one, in_axes=(0, None)), compiler_options={"xla_backend_optimization_level": 1})
