"""Tracing is clean: no number changes its type unasked, and no traced value outlives its trace.

Under strict promotion a product of whole numbers and doubles, of single and double precision, is an error: each is a place
where half the digits could go unseen. A leaked tracer is a value that a sampler kept from the making of its program.
"""

from functools import partial

import jax
import numpy as np
import pytest
from numpyro.infer.util import initialize_model, potential_energy

import mpmtl_prob as mp
from mpmtl_prob import estimators, inference, models
from mpmtl_prob.estimators import L1, GroupLasso, LeastSquares, Logistic, MultiTask, SquaredTraceNorm, TraceNorm
from mpmtl_prob.inference.public import init as starts
from mpmtl_prob.inference.public import structures
from mpmtl_prob.models import penalised

DATA = mp.datasets.synthetic_low_rank(12, 4, 9, 4, variance=30.0, group=3, seed=0)
LABELS = mp.TaskData.from_lists(list(DATA.train.X), list(np.sign(DATA.train.y)))
#: Of the shapes and lengths of other tests, whose programs are there.
AS_IN_FIT, AS_IN_KERNELS = (
    mp.datasets.synthetic_low_rank(*sizes, seed=0).train for sizes in ((6, 3, 20, 5), (4, 2, 6, 5))
)
LOUD = {"epsilon": 1e3, "unsafe_seed": 0}
RELEASES = {
    "wishart": mp.release(DATA.W, **LOUD),
    "gaussian": mp.release(DATA.W, mechanism="gaussian", **LOUD),
    "few tasks": mp.release(DATA.W[:, :2], **LOUD),
}


def traced_strictly(model, *args):
    """The gradient of the model's log density, as NUTS takes it: traced, not computed. Where it is taken, unconstrained."""

    def unconstrained(key):
        return initialize_model(key, model, model_args=args, validate_grad=False).param_info.z

    z = jax.eval_shape(unconstrained, jax.random.key(0))
    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(jax.grad(partial(potential_energy, model, args, {})), z)
    return z


@pytest.mark.parametrize("model", penalised.PRIORS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("options", [{}, {"precondition": False}, {"with_release": RELEASES["wishart"]}])
def test_densities_of_the_curator_promote_nothing(model, options):
    traced_strictly(model, penalised.observe(model, DATA.train, **options))


@pytest.mark.parametrize(
    ("structure", "release"),
    [
        *((structure, law) for structure in structures.STRUCTURES for law in ("wishart", "gaussian")),
        ("full", "few tasks"),
    ],
)
def test_densities_of_the_public_promote_nothing(structure, release):
    published = RELEASES[release]
    model, start = structures.model_for(structure, published)
    z = traced_strictly(model, starts.observed(published))
    assert {name: np.shape(value) for name, value in start.items()} == {name: each.shape for name, each in z.items()}


@pytest.mark.parametrize("model", ["gaussian", "joint", "joint_bernoulli"])  # not "bernoulli": NumPyro's own promotes
def test_densities_of_an_owner_promote_nothing(model):
    X, y = (DATA.train if model != "joint_bernoulli" else LABELS).rows_of(0)
    public = starts.observed(RELEASES["wishart"])
    args = (X, y, np.eye(4)) if model == "gaussian" else (public, X, y, np.ones(len(y)), np.ones(4))
    traced_strictly(getattr(models.task, model), *args)


@pytest.mark.parametrize(
    ("norm", "loss"),
    [
        *((norm, LeastSquares()) for norm in (TraceNorm(), GroupLasso(), L1(), SquaredTraceNorm())),
        (L1(), Logistic()),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_convex_iteration_promotes_nothing(norm, loss):
    with jax.numpy_dtype_promotion("strict"):
        MultiTask(norm, 1.0, loss).fit(LABELS)


@pytest.mark.parametrize("kind", ["LowRank", "GroupSparse", "LowRankSparse"])
def test_the_papers_rounds_promote_nothing(kind):
    penalty = (1.0, 0.5) if kind == "LowRankSparse" else 1.0
    with jax.numpy_dtype_promotion("strict"):
        getattr(estimators, kind)(penalty, rounds=12, clip=1.0, unsafe_seed=0).fit(AS_IN_KERNELS)


SHORT = {"chains": 1, "warmup": 30, "draws": 5, "progress_bar": False}
#: Each traced anew: kernels that are new, and as many rounds as nowhere else. Not NUTS: NumPyro's keeps the potential of the
#: trace that made it, and makes it anew before it is used again.
SAMPLERS = {
    "mala": lambda: inference.fit(
        models.group_sparse, AS_IN_FIT, kernel=inference.ProximalLangevin(models.group_sparse), **SHORT
    ),
    "myula": lambda: inference.fit(
        models.group_sparse,
        AS_IN_FIT,
        kernel=inference.ProximalLangevin(models.group_sparse, adjusted=False),
        rate=1.0,
        sigma=1.0,
        **SHORT,
    ),
    "rounds": lambda: inference.private_langevin(
        estimators.LowRank(1.0, rounds=3, clip=1.0, unsafe_seed=0), AS_IN_KERNELS, progress_bar=False
    ),
}


@pytest.mark.parametrize("sampler", ["mala", pytest.param("myula", marks=pytest.mark.evidence), "rounds"])
def test_a_sampler_leaks_no_tracer(sampler):
    with jax.checking_leaks():
        SAMPLERS[sampler]()
