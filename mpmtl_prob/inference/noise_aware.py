"""Estimator from rows to owners' posteriors: a release, its public posterior, and every owner's use of it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import numpy as np

from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.matching import task_data
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.answers import posterior_draws
from mpmtl_prob.inference.owner.effects import OwnerEffects, check_likelihood, effect_posteriors
from mpmtl_prob.inference.owner.likelihoods import Likelihood, likelihood_of
from mpmtl_prob.inference.owner.posteriors import OwnerPosteriors, check_method, task_posteriors
from mpmtl_prob.inference.public.effects import STRUCTURES, shared_effects
from mpmtl_prob.inference.public.posterior import PublicPosterior, check_sampling, extend_until_sound
from mpmtl_prob.inference.public.shared import shared_covariance
from mpmtl_prob.inference.public.structures import Structure, structure_for, structure_of
from mpmtl_prob.models.noise import of_law
from mpmtl_prob.privacy import Ledger
from mpmtl_prob.privacy.mechanisms import MatrixMechanism
from mpmtl_prob.releases import ReleaseSpec, release
from mpmtl_prob.releases.rounds import attach_paid_release
from mpmtl_prob.sampling.extent import WARMUP


@dataclass(frozen=True)
class NoiseAware(ReleaseSpec):
    """Estimator that makes one release and uses its posterior for every owner, for comparison with the papers' algorithms.

    ``fit`` calls :func:`mpmtl_prob.release`, :func:`shared_covariance` and :func:`task_posteriors`. Call these yourself to
    keep the release, or to have one seat only. Do so too where tasks are so many that 1200 draws of every weight, ten
    kilobytes,
    do not fit in memory: ``task_posteriors(tasks, shared, draws=25)`` makes a hundred. Only the guarantee has to be chosen.

    It has the fields of :class:`ReleaseSpec`, which say what is published: ``NoiseAware(epsilon=1.0)``, or
    ``NoiseAware(spec)``.

    Attributes:
        rounds: number of rounds of the release, or "auto": one, or two where tasks are many and the noise is small; always
            one with the method "joint".
        structure: structure of the shared covariance; default: by :func:`structure_for`, "low_rank" where tasks and features
            are many and the noise is small, otherwise "full"; always "full" with the method "joint".
        method: how owners use the public posterior.
        likelihood: of the targets: "gaussian", the default, "student_t", or "bernoulli" for labels -1 and 1; with reference
            values, the likelihood of their outcome.
        chains: number of chains of NUTS.
        warmup: iterations of adaptation per chain.
        draws: number of draws of every chain; default: 300, and up to 2000 as long as the diagnosis asks for more.
        seed: seed of the samplers; the release's noise comes from the operating system.
        unsafe_seed: seed of the noise, for demonstrations; such a release guarantees nothing.
        ledger: pays for the release, on disk, before any noise is drawn. Every fit makes a release, and pays again.
        progress_bar: show one.
    """

    _: KW_ONLY
    rounds: int | str = "auto"
    structure: str | Structure | None = None
    method: str = "plug_in"
    likelihood: str | Likelihood | None = None
    chains: int = 4
    warmup: int = WARMUP
    draws: int | None = None
    seed: int = 0
    unsafe_seed: int | None = None
    ledger: Ledger | None = None
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, ReleaseSpec):
            spec = self.epsilon
            for field in fields(ReleaseSpec):
                object.__setattr__(self, field.name, getattr(spec, field.name))
        super().__post_init__()

    @property
    def spec(self) -> ReleaseSpec:
        """Specification of the release."""
        return ReleaseSpec(**{field.name: getattr(self, field.name) for field in fields(ReleaseSpec)})

    def fit(self, tasks: TaskData | Estimates) -> OwnerPosteriors | OwnerEffects:
        """Make one release, and let every owner use it.

        An error or interrupt after the release has it as its attribute ``release``. Go on from it with
        :func:`shared_covariance`, which spends nothing more.

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range. Nothing was charged.
        """
        check_not_forked()
        if self.spec.kind == "effects":
            return self._fit_effects(tasks)
        tasks = task_data(tasks)
        kind = self._checked(tasks)
        published = release(
            tasks,
            replace(self.spec, rounds=self._rounds),
            respond=posterior_draws(tasks, self.seed, kind),
            unsafe_seed=self.unsafe_seed,
            ledger=self.ledger,
        )
        with attach_paid_release(published):
            structure = self._structure
            shared = shared_covariance(
                published,
                structure=structure_for(published) if structure is None else structure,
                chains=self.chains,
                warmup=self.warmup,
                draws=self.draws,
                seed=self.seed,
                progress_bar=self.progress_bar,
            )
            shared = self._extended(shared)
            return task_posteriors(
                tasks, shared, method=self.method, likelihood=kind, seed=self.seed, progress_bar=self.progress_bar
            )

    def _fit_effects(self, tasks: TaskData | Estimates) -> OwnerEffects:
        """Fit as :meth:`fit` with messages of effects, by a mixed model."""
        kind = check_likelihood(self.likelihood, tasks, "number" if self.reference is None else self.reference.outcome)
        check_sampling(self.chains, self.warmup, self.draws, self.seed)
        if self.method != "plug_in":
            raise ValueError(f"method: expected none with messages of effects, got {self.method!r}")
        structure = "full" if self.structure is None else one_of("structure", self.structure, STRUCTURES)
        if isinstance(tasks, TaskData):
            self.spec.layout(tasks.features)
        published = release(tasks, self.spec, unsafe_seed=self.unsafe_seed, ledger=self.ledger)
        with attach_paid_release(published):
            shared = shared_effects(
                published,
                structure=structure,
                chains=self.chains,
                warmup=self.warmup,
                draws=self.draws,
                seed=self.seed,
                progress_bar=self.progress_bar,
            )
            shared = self._extended(shared)
            return effect_posteriors(tasks, shared, likelihood=kind, seed=self.seed)

    def _extended[P: PublicPosterior[Any]](self, shared: P) -> P:
        """Return the public posterior, with more draws if ``draws`` is None and its diagnosis asks for more."""
        if self.draws is None:
            shared = extend_until_sound(shared, progress_bar=self.progress_bar)
        return shared

    @property
    def _rounds(self) -> int | str:
        """Return the number of rounds, which is one for "auto" with the method "joint"."""
        return 1 if self.method == "joint" and self.rounds == "auto" else self.rounds

    @property
    def _structure(self) -> str | Structure | None:
        """Return the structure, whose default is "full" with the method "joint"."""
        return "full" if self.method == "joint" and self.structure is None else self.structure

    def _checked(self, tasks: TaskData) -> Likelihood:
        """Return the likelihood.

        Raises:
            ValueError: an argument that would end the fit after the release is paid for.
        """
        kind = likelihood_of(self.likelihood, tasks)
        structure = structure_of("full" if self._structure is None else self._structure)
        d = tasks.slopes.num_features
        rounds = 1 if isinstance(self._rounds, str) else self._rounds
        structure.check(tasks.num_tasks, d)
        check_sampling(self.chains, self.warmup, self.draws, self.seed)
        check_method(self.method, tasks, kind, structure, tasks.num_tasks, whole("rounds", rounds))
        if isinstance(self.mechanism, MatrixMechanism):
            of_law(self.mechanism, np.eye(d))
        return kind
