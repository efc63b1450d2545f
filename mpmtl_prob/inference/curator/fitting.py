"""Posterior of a model of all tasks, by any kernel, with checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import jax
import numpy as np
from numpyro.infer import NUTS
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob._util.arrays import Draws
from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob._util.devices import without_copies
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.matching import task_data
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.curator.posterior import Posterior
from mpmtl_prob.models import penalised
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling import chains as loop
from mpmtl_prob.sampling.chains import ChainStates
from mpmtl_prob.sampling.checkpoint import fingerprint, read, settings_of, write
from mpmtl_prob.sampling.extent import Interrupted
from mpmtl_prob.sampling.langevin import ProximalLangevin
from mpmtl_prob.sampling.runs import Chunk, Sampling

Model = Callable[..., None]


class Kernel(Protocol):
    """Interface of a kernel that :func:`fit` runs: these parts of NumPyro's ``MCMCKernel``, which most kernels inherit."""

    @property
    def sample_field(self) -> str:
        """The field of the state that holds the unconstrained values."""
        ...

    def init(self, rng_key: Any, num_warmup: int, init_params: Any, model_args: Any, model_kwargs: Any) -> Any:
        """Return the first state."""
        ...

    def sample(self, state: Any, model_args: Any, model_kwargs: Any) -> Any:
        """Return the next state."""
        ...

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Callable[[Any], Any]:
        """Return the function from unconstrained values to those of all sites."""
        ...

    def get_diagnostics_str(self, state: Any) -> str:
        """Return a few words about a state, for the progress bar."""
        ...

    def wrap_model(self, wrapper: Callable[[Any], Any]) -> Any:
        """Return a copy of the kernel on ``wrapper(model)``."""
        ...


#: Kernels by name.
KERNELS: dict[str, Callable[[Model], MCMCKernel]] = {
    "nuts": partial(NUTS, max_tree_depth=8),
    "mala": partial(ProximalLangevin, adjusted=True),
    "myula": partial(ProximalLangevin, adjusted=False),
}
_SAVE_EVERY = 30.0  # seconds between two writes of a checkpoint


def fit(
    model: Model,
    data: TaskData,
    *,
    kernel: str | MCMCKernel = "nuts",
    chains: int = 4,
    warmup: int | None = None,
    draws: int = 300,
    thin: int = 1,
    seed: int = 0,
    progress_bar: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Posterior:
    """Sample the posterior of a model of all tasks, which conditions on everybody's rows and is the curator's.

    Args:
        model: of :mod:`mpmtl_prob.models`: ``low_rank``, ``group_sparse``, ``low_rank_sparse``; or any NumPyro model of a
            TaskData with a site ``W`` (d, m), and ``sigma`` for predictions.
        data: the rows of m tasks.
        kernel: "nuts", with proximal gradients and local coordinates where the model has them; "mala" or "myula"
            (:class:`ProximalLangevin`, adjusted or not, the latter for fixed rate and sigma only); or any NumPyro kernel on
            this model, such as ``NUTS(model)`` with settings of your own or ``Gibbs([...])``.
        chains: number of chains.
        warmup: iterations of adaptation per chain; default: as many as draws.
        draws: number of draws of every chain.
        thin: iterations per draw.
        seed: seed of the chains. The result is a function of the arguments.
        progress_bar: show one.
        checkpoint: a file to which the run is written from time to time, and which only its owner may read (mode 0600). If it
            exists, the same call goes on from it; with more draws, it adds them.
        options: of :func:`mpmtl_prob.models.penalised.observe`, for models of this library: ``rate``, ``sigma``,
            ``smoothing``, ``precondition``, ``with_release``.

    Raises:
        ValueError: an argument outside its range, a checkpoint of another run, or no start of positive density for a chain.
        KeyboardInterrupt: an interrupt during warm-up. A later one ends the run with a warning, and the draws so far are
            returned.
    """
    warmup = draws if warmup is None else warmup
    for name, value in (("chains", chains), ("draws", draws), ("warmup", warmup), ("thin", thin)):
        whole(name, value)
    whole("seed", seed, 0)
    if not isinstance(kernel, str):
        implements("kernel", kernel, Kernel)
    task_data(data, "data")
    check_not_forked()  # the model's arguments are JAX arrays
    args = _arguments(model, data, options)
    structure = jax.tree.structure(args)
    fresh_kernel = _fresh(_named(model, kernel) if isinstance(kernel, str) else kernel, structure)
    settings: dict[str, Any] = {
        "model": getattr(model, "__qualname__", repr(model)),
        "name": f"{getattr(model, '__name__', 'model')}, {kernel if isinstance(kernel, str) else type(kernel).__name__}",
        "chains": chains,
        "warmup": warmup,
        "thin": thin,
        "seed": seed,
    }
    double = {"x64": jax.config.jax_enable_x64}
    own = {} if isinstance(kernel, str) else {"kernel": settings_of(kernel)}  # kernels by name have no settings
    mark = "" if checkpoint is None else fingerprint(settings | double | own, args)
    if args != (data,):  # arguments of this library's models are converted to the sampler's precision once
        args = without_copies(args)
    run = _Run(
        name=settings["name"],
        tasks=data,
        kernel=fresh_kernel,
        args=args,
        chains=chains,
        warmup=warmup,
        thin=thin,
        seed=seed,
        release=options.get("with_release"),
        checkpoint=checkpoint,
        mark=mark,
    )
    return run.start(draws, progress_bar)


@dataclass(frozen=True, eq=False, repr=False)
class _Run:
    """Run of the chains of a posterior."""

    name: str
    tasks: TaskData
    kernel: MCMCKernel
    args: Any
    chains: int
    warmup: int
    thin: int
    seed: int
    release: Release | None
    checkpoint: str | os.PathLike[str] | None
    mark: str  #: of the run, in its checkpoint

    def start(self, draws: int, progress_bar: bool) -> Posterior:
        """Run new chains, or go on with those of the checkpoint."""
        begin = time.perf_counter()
        reached = self._run.init(self.chains, self.seed)
        lost = sum(not np.isfinite(getattr(state, "potential_energy", 0.0)) for state in reached.state)
        if lost:  # such chains would never move
            raise ValueError(
                f"model: found no start of positive density for {lost} of {self.chains} chains; beside a release only "
                "weights that could be behind it have any, and local coordinates (precondition=True) begin near them"
            )
        earlier: Chunk = ({}, {})
        if self.checkpoint is not None and os.path.exists(self.checkpoint):
            reached, samples, statistics = read(self.checkpoint, self.mark, reached)
            earlier = (samples, statistics)
        return self._go_on(reached, earlier, draws, progress_bar, -begin)

    @property
    def _run(self) -> Sampling:
        return Sampling(self.kernel, self.args, self.warmup, self.thin, keep=_without_local)

    def _go_on(self, reached: ChainStates, earlier: Chunk, draws: int, progress_bar: bool, seconds: float) -> Posterior:
        """Run the chains up to a number of draws.

        Args:
            reached: where the chains are.
            earlier: draws and statistics so far; empty before the first draw.
            draws: number of draws of every chain, those already done included.
            progress_bar: show one.
            seconds: time that the run has taken so far, less the time on the clock now.
        """
        parts = [earlier] if earlier[0] else []
        latest = reached
        saved = time.monotonic()

        def after(now: ChainStates, parts: list[Chunk]) -> None:
            nonlocal latest, saved
            latest = now
            if time.monotonic() - saved >= _SAVE_EVERY:
                self._save(now, parts)
                saved = time.monotonic()

        try:
            self._run.extend(reached, parts, draws, progress_bar=progress_bar, after=after)
        except (KeyboardInterrupt, Interrupted):
            self._save(latest, parts)
            raise
        self._save(latest, parts)
        return Posterior(
            name=self.name,
            tasks=self.tasks,
            draws=loop.join([samples for samples, _ in parts], last=True),
            statistics=loop.join([statistics for _, statistics in parts], last=True),
            release=self.release,
            seconds=seconds + time.perf_counter(),
            exact=getattr(self.kernel, "exact", True),
            _extend=partial(self._more, latest),
        )

    def _more(self, reached: ChainStates, posterior: Posterior, draws: int, progress_bar: bool) -> Posterior:
        """Return the posterior with more draws."""
        earlier = (dict(posterior.draws), dict(posterior.statistics))
        seconds = posterior.seconds - time.perf_counter()
        return self._go_on(reached, earlier, reached.drawn + whole("draws", draws), progress_bar, seconds)

    def _save(self, reached: ChainStates, parts: list[Chunk]) -> None:
        """Write the checkpoint, if there is to be one."""
        if self.checkpoint is not None:
            samples = loop.join([samples for samples, _ in parts])
            statistics = loop.join([of_chunk for _, of_chunk in parts])
            write(self.checkpoint, self.mark, reached, samples, statistics)


def _without_local(samples: Draws) -> Draws:
    """Return draws without local coordinates, which W determines."""
    return {k: v for k, v in samples.items() if not k.endswith("_local")}


def _arguments(model: Model, data: TaskData, options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a model, prepared for those of this library."""
    if model in penalised.PRIORS:
        return (penalised.observe(model, data, **options),)
    if options:
        raise ValueError(f"options: expected none for a model of your own, got {', '.join(options)}")
    return (data,)


@lru_cache(maxsize=32)
def _named(model: Model, name: str) -> MCMCKernel:
    one_of("kernel", name, tuple(KERNELS))
    return KERNELS[name](model)


@lru_cache(maxsize=32)
def _fresh(kernel: MCMCKernel, structure: Any) -> MCMCKernel:
    """Return a copy of a kernel for every structure of the arguments.

    Kernels have closures over the sites of the model that they were first used with.
    """
    return kernel.wrap_model(_identity)


def _identity(model: Model) -> Model:
    return model
