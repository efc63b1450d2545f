"""One run of several chains: until there are enough draws, or their effective number is; what was drawn is never lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob._util.former import FormerName, former_names
from mpmtl_prob.sampling import chains as loop
from mpmtl_prob.sampling.chains import ChainStates, Draws

#: Draws and statistics of a chunk, (chain, draw, ...).
Chunk = tuple[Draws, Draws]
#: What is watched of a run: functionals by name, (chain, draw, ...), of its draws.
Watched = Callable[[Draws], Mapping[str, NDArray[Any]]]
_HERE = str(Path(__file__).parents[1])  # this package
_FEWEST = 50  # draws of a chain, before which neither measure means anything


class Interrupted(UserWarning):
    """A run was interrupted, and its posterior has fewer draws than were asked for.

    Where a posterior is one of many things to come, as in a loop, make it an error:
    ``warnings.simplefilter("error", Interrupted)``.
    """


@contextmanager
def raise_on_interrupt() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt inside, where a run would otherwise return what was drawn by then."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Interrupted)
        try:
            yield
        except Interrupted:
            raise KeyboardInterrupt from None


@dataclass(frozen=True)
class Until:
    """Stopping rule of a run: as soon as all that is asked for holds of everything that is watched.

    Attributes:
        ess: effective draws, of all chains together.
        rhat: largest split r-hat.

    Raises:
        ValueError: numbers outside their range, or neither.

    Source: Vehtari et al. (2021), Bayesian Analysis 16(2), with ranks left out: what is watched has no heavy tails.
    """

    ess: float | None = None
    rhat: float | None = None

    reached = FormerName("is_met")

    def __post_init__(self) -> None:
        if self.ess is None and self.rhat is None:
            raise ValueError("until: expected ess, rhat, or both")
        if self.ess is not None:
            positive("ess", self.ess)
        if self.rhat is not None:
            in_range("rhat", self.rhat, 1, np.inf)

    def is_met(self, ess: float, rhat: float) -> bool:
        """Return whether this many effective draws and this r-hat are enough."""
        return (self.ess is None or ess >= self.ess) and (self.rhat is None or rhat <= self.rhat)


@dataclass(frozen=True, eq=False)
class Sampling:
    """Settings that stay the same while chains go on.

    Attributes:
        kernel: of NumPyro.
        args: of its model.
        warmup: iterations of adaptation.
        thin: iterations per draw.
        watched: functionals, of what is kept, whose effective draws are shown and counted; default none.
        keep: what is kept of a chain's draws; default all.
    """

    kernel: MCMCKernel
    args: tuple[Any, ...]
    warmup: int
    thin: int = 1
    watched: Watched | None = None
    keep: Callable[[Draws], Draws] = dict

    @property
    def compiled(self) -> loop.Program:
        return loop.program(self.kernel, self.warmup, self.thin)

    def init(self, chains: int, seed: int, start: Mapping[str, Any] | None = None) -> ChainStates:
        """The first state of several chains: :func:`mpmtl_prob.sampling.chains.init`."""
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
        """Until there are that many draws of every chain or enough of them; ``parts`` grows, and ``after`` sees every chunk.

        An interrupt after the first draws ends the run with the warning :class:`Interrupted`.

        Raises:
            KeyboardInterrupt: before there is a draw.
        """
        # what nobody reads is not computed: of large matrices it takes seconds
        watched = self.watched if progress_bar or until is not None else None
        seen = [] if watched is None else [watched(samples) for samples, _ in parts]
        said = ""
        steps = loop.advance(
            self.compiled, self.kernel, self.args, reached,
            warmup=self.warmup, draws=draws, thin=self.thin, progress_bar=progress_bar, status=lambda: said,
            keep=self.keep,
        )  # fmt: skip
        try:
            for now, samples, statistics in steps:
                reached = now
                if samples is not None and statistics is not None:
                    parts.append((samples, statistics))
                    if watched is not None:
                        seen.append(watched(samples))
                del samples, statistics
                after(reached, parts)
                if reached.drawn < _FEWEST or not seen:
                    continue
                ess, rhat = worst(loop.join([dict(part) for part in seen]))
                said = f"{ess:.0f} effective draws, r-hat {rhat:.3f}"
                if until is not None and until.is_met(ess, rhat):
                    break
        except KeyboardInterrupt:
            after(reached, parts)
            if not parts:
                raise
            warnings.warn(
                f"interrupted: {reached.drawn} of {draws} draws per chain are in the posterior; extend() goes on from there",
                Interrupted,
                skip_file_prefixes=(_HERE,),  # the line that asked for the run
            )
        return reached


def worst(functionals: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
    """The smallest effective number of draws and the largest r-hat of anything that moves."""
    every = [x.astype(np.float64).reshape(*x.shape[:2], -1) for x in functionals.values()]
    moving = np.concatenate(every, axis=2)
    moving = moving[..., np.ptp(moving, axis=(0, 1)) > 0]
    if not moving.size:
        return np.inf, 1.0
    return float(np.min(effective_sample_size(moving))), float(np.max(split_gelman_rubin(moving)))


__getattr__ = former_names(__name__, {"Part": "Chunk", "uninterrupted": "raise_on_interrupt"})
