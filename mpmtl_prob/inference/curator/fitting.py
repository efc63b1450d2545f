"""One call from a model and data to a posterior."""

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

from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob._util.devices import without_copies
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.matching import task_data
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.curator.posterior import Posterior
from mpmtl_prob.models import penalised
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling import chains as loop
from mpmtl_prob.sampling.chains import ChainStates, Draws
from mpmtl_prob.sampling.checkpoint import fingerprint, read, write
from mpmtl_prob.sampling.langevin import ProximalLangevin
from mpmtl_prob.sampling.runs import Chunk, Interrupted, Sampling

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
    """Sample the posterior of a model of all tasks. The curator's: it conditions on everybody's rows.

    Args:
        model: of :mod:`mpmtl_prob.models`: ``low_rank``, ``group_sparse``, ``low_rank_sparse``; or any NumPyro model of a
            TaskData with a site ``W`` (d, m), and ``sigma`` for predictions.
        data: the rows of m tasks.
        kernel: "nuts", with proximal gradients and local coordinates where the model offers them; "mala" or "myula"
            (:class:`ProximalLangevin`, adjusted or not, the latter for fixed rate and sigma only); or any NumPyro kernel on
            this model, such as ``NUTS(model)`` with settings of your own or ``Gibbs([...])``.
        chains: number of chains.
        warmup: iterations of adaptation per chain; default as many as draws.
        draws: kept per chain.
        thin: iterations per draw.
        seed: of the chains. The result is a function of the arguments.
        progress_bar: show one.
        checkpoint: a file in which the run is kept while it goes on, for its owner alone (mode 0600). If it is there, the
            same call goes on from it; with more draws, it adds them.
        options: of :func:`mpmtl_prob.models.penalised.observe`, for models of this library: ``rate``, ``sigma``,
            ``smoothing``, ``precondition``, ``with_release``.

    Raises:
        ValueError: an argument outside its range, a checkpoint of another run, or no start of positive density for a chain.
        KeyboardInterrupt: during warm-up. Later an interrupt ends the run with a warning, and what was drawn is returned.
    """
    warmup = draws if warmup is None else warmup
    for name, value in (("chains", chains), ("draws", draws), ("warmup", warmup), ("thin", thin)):
        whole(name, value)
    whole("seed", seed, 0)
    if not isinstance(kernel, str):
        implements("kernel", kernel, Kernel)
    task_data(data, "data")
    args = _arguments(model, data, options)
    structure = jax.tree.structure(args)
    own = _fresh(_named(model, kernel) if isinstance(kernel, str) else kernel, structure)
    settings: dict[str, Any] = {
        "model": getattr(model, "__qualname__", repr(model)),
        "name": f"{getattr(model, '__name__', 'model')}, {kernel if isinstance(kernel, str) else type(kernel).__name__}",
        "chains": chains,
        "warmup": warmup,
        "thin": thin,
        "seed": seed,
    }
    double = {"x64": jax.config.jax_enable_x64}
    mark = "" if checkpoint is None else fingerprint(settings | double, args)
    if args != (data,):  # in the sampler's precision, once
        args = without_copies(args)
    run = _Run(
        name=settings["name"],
        tasks=data,
        kernel=own,
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
    """The chains behind a posterior."""

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
        begin = time.perf_counter()
        reached = self._run.init(self.chains, self.seed)
        lost = sum(not np.isfinite(getattr(state, "potential_energy", 0.0)) for state in reached.state)
        if lost:  # they would stay where they are
            raise ValueError(
                f"model: found no start of positive density for {lost} of {self.chains} chains; beside a release only "
                "weights that could be behind it have any, and local coordinates (precondition=True) begin near them"
            )
        found: tuple[Draws, Draws] = ({}, {})
        if self.checkpoint is not None and os.path.exists(self.checkpoint):
            reached, *kept = read(self.checkpoint, self.mark, reached)
            found = (kept[0], kept[1])
        return self._go_on(reached, found, draws, progress_bar, -begin)

    @property
    def _run(self) -> Sampling:
        return Sampling(self.kernel, self.args, self.warmup, self.thin, keep=_without_local)

    def _go_on(
        self, reached: ChainStates, found: tuple[Draws, Draws], draws: int, progress_bar: bool, seconds: float
    ) -> Posterior:
        """Until there are that many draws; ``seconds`` is what the run took so far, less the time now."""
        parts, latest, saved = [found] if found[0] else [], reached, time.monotonic()

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
        joined = (loop.join([p[0] for p in parts], last=True), loop.join([p[1] for p in parts], last=True))
        return Posterior(
            name=self.name,
            tasks=self.tasks,
            draws=joined[0],
            statistics=joined[1],
            release=self.release,
            seconds=seconds + time.perf_counter(),
            exact=getattr(self.kernel, "exact", True),
            _extend=partial(self._more, latest),
        )

    def _more(self, reached: ChainStates, posterior: Posterior, draws: int, progress_bar: bool) -> Posterior:
        found = (dict(posterior.draws), dict(posterior.statistics))
        seconds = posterior.seconds - time.perf_counter()
        return self._go_on(reached, found, reached.drawn + whole("draws", draws), progress_bar, seconds)

    def _save(self, reached: ChainStates, parts: list[tuple[Draws, Draws]]) -> None:
        if self.checkpoint is not None:
            write(
                self.checkpoint,
                self.mark,
                reached,
                loop.join([p[0] for p in parts]),
                loop.join([p[1] for p in parts]),
            )


def _without_local(samples: Draws) -> Draws:
    """Local coordinates say nothing that W does not."""
    return {k: v for k, v in samples.items() if not k.endswith("_local")}


def _arguments(model: Model, data: TaskData, options: dict[str, Any]) -> tuple[Any, ...]:
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
    """A copy per structure of the arguments: kernels keep closures over the sites of the model that they first saw."""
    return kernel.wrap_model(_same)


def _same(model: Model) -> Model:
    return model
