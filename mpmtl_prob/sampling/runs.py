"""One run of several chains, up to a number of draws or until enough of them are effective. An interrupt keeps all draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob._util.arrays import Draws
from mpmtl_prob._util.former import former_names
from mpmtl_prob.sampling import chains as loop
from mpmtl_prob.sampling.chains import ChainStates
from mpmtl_prob.sampling.extent import Interrupted, Until

#: Draws and statistics of a chunk, (chain, draw, ...).
Chunk = tuple[Draws, Draws]
#: From draws to the functionals that a run watches, by name, (chain, draw, ...).
Watched = Callable[[Draws], Mapping[str, NDArray[Any]]]
_PACKAGE = str(Path(__file__).parents[1])
_FEWEST = 50  # draws of a chain; with fewer, r-hat and effective sample size mean little


@dataclass(frozen=True, eq=False)
class Sampling:
    """Settings of a run, which stay the same when it is extended.

    Attributes:
        kernel: the kernel, NumPyro's or of its kind.
        args: arguments of its model.
        warmup: iterations of adaptation.
        thin: iterations per draw.
        watched: functionals, of the draws that ``keep`` returns, whose effective number is shown and counted; default: none.
        keep: from a chain's draws to those that are stored; default: all.
    """

    kernel: MCMCKernel
    args: tuple[Any, ...]
    warmup: int
    thin: int = 1
    watched: Watched | None = None
    keep: Callable[[Draws], Draws] = dict

    @property
    def compiled(self) -> loop.Program:
        """The kernel's compiled loop."""
        return loop.program(self.kernel, self.warmup, self.thin)

    def init(self, chains: int, seed: int, start: Mapping[str, Any] | None = None) -> ChainStates:
        """Return the first states of several chains: :func:`mpmtl_prob.sampling.chains.init`."""
        return loop.init(self.compiled, self.args, chains=chains, seed=seed, start=start)

    def extend(
        self,
        reached: ChainStates,
        parts: list[Chunk],
        draws: int,
        *,
        until: Until | None = None,
        progress_bar: bool = True,
        after: Callable[[ChainStates, list[Chunk]], None] = lambda reached, parts: None,
    ) -> ChainStates:
        """Run the chains up to ``draws`` draws of each, or until a stopping rule is met.

        An interrupt after the first draws ends the run with the warning :class:`Interrupted`.

        Args:
            reached: where the chains are.
            parts: their draws and statistics so far, to which those of every chunk are appended.
            draws: number of draws of every chain, those already done included.
            until: when to stop earlier; default: never.
            progress_bar: show one.
            after: called with the states and ``parts`` after every chunk.

        Returns:
            Where the chains are then.

        Raises:
            KeyboardInterrupt: an interrupt before the first draw.
        """
        # functionals of large matrices take seconds, so that they are computed only where they are shown or compared
        watched = self.watched if progress_bar or until is not None else None
        of_chunks = [] if watched is None else [watched(samples) for samples, _ in parts]
        status = ""
        steps = loop.advance(
            self.compiled, self.kernel, self.args, reached,
            warmup=self.warmup, draws=draws, thin=self.thin, progress_bar=progress_bar, status=lambda: status,
            keep=self.keep,
        )  # fmt: skip
        try:
            for now, samples, statistics in steps:
                reached = now
                if samples is not None and statistics is not None:
                    parts.append((samples, statistics))
                    if watched is not None:
                        of_chunks.append(watched(samples))
                del samples, statistics
                after(reached, parts)
                if reached.drawn < _FEWEST or not of_chunks:
                    continue
                ess, rhat = worst(loop.join([dict(part) for part in of_chunks]))
                status = f"{ess:.0f} effective draws, r-hat {rhat:.3f}"
                if until is not None and until.is_met(ess, rhat):
                    break
        except KeyboardInterrupt:
            after(reached, parts)
            if not parts:
                raise
            warnings.warn(
                f"interrupted: {reached.drawn} of {draws} draws per chain are in the posterior; extend() goes on from there",
                Interrupted,
                skip_file_prefixes=(_PACKAGE,),  # so that the warning shows the user's line
            )
        return reached


def worst(functionals: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
    """Return the smallest effective number of draws and the largest r-hat of all functionals that are not constant."""
    flat = [x.astype(np.float64).reshape(*x.shape[:2], -1) for x in functionals.values()]
    entries = np.concatenate(flat, axis=2)
    moving = entries[..., np.ptp(entries, axis=(0, 1)) > 0]
    if not moving.size:
        return np.inf, 1.0
    return float(np.min(effective_sample_size(moving))), float(np.max(split_gelman_rubin(moving)))


__getattr__ = former_names(
    __name__, {"Part": "Chunk", "uninterrupted": "mpmtl_prob.sampling.extent:raise_on_interrupt"}
)
