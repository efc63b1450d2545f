"""Default structure of the whole way, where nobody asks for one."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob.evaluation import nmse
from mpmtl_prob.inference import SharedPosterior, structure_for
from mpmtl_prob.inference.public.shared import REMEDIES
from mpmtl_prob.sampling.diagnostics import diagnose

FAST = {"chains": 2, "warmup": 140, "draws": 50, "progress_bar": False}


def release(epsilon, m=120, d=16, **options):
    W = np.random.default_rng(0).standard_normal((d, m))
    return mp.release(W, epsilon, unsafe_seed=0, **options)


def test_many_tasks_beside_little_noise_are_read_as_low_rank():
    assert [structure_for(release(epsilon)).name for epsilon in (0.01, 30.0)] == ["full", "low_rank"]
    assert structure_for(release(30.0, m=99)).name == "full"
    assert structure_for(release(1e4, d=51)).name == "full"  # which takes minutes otherwise
    assert structure_for(release(1e4, d=15)).name == "full"  # whose chains diverge otherwise
    assert structure_for(release(30.0, mechanism="gaussian")).name == "low_rank"


def test_little_noise_moves_the_mean_eigenvalue_by_less_than_it():
    """Little noise moves the average eigenvalue by less than the eigenvalue itself."""
    for epsilon in np.geomspace(1.0, 10.0, 10):
        one = release(epsilon)
        average = 120 / 16  # messages have length 1
        near = abs(average / one.mechanisms[0].operator_norm - 1) < 0.1  # what noise adds to the trace decides
        assert near or structure_for(one).name == ("low_rank" if average > one.mechanisms[0].operator_norm else "full")


@pytest.mark.parametrize(("message", "clip", "structure"), [("direction", None, "low_rank"), ("clip", 1.0, "full")])
def test_the_size_of_the_second_moment_is_read_from_the_release(message, clip, structure):
    """The size is read from the release: where messages are short beside their bound, its noise is large."""
    W = np.random.default_rng(0).standard_normal((16, 120))
    assert structure_for(mp.release(0.01 * W, 30.0, message=message, clip=clip, unsafe_seed=0)).name == structure


def test_the_whole_way_takes_it():
    train = mp.datasets.synthetic_low_rank(num_tasks=120, num_features=16, rows=10).train
    fitted = mp.NoiseAware(30.0, unsafe_seed=0, **FAST).fit(train)
    asked = mp.inference.shared_covariance(fitted.shared.release, structure="low_rank", **FAST)
    assert fitted.shared.structure is structure_for(fitted.shared.release) is asked.structure
    assert_array_equal(fitted.shared.shape(), asked.shape())
    assert "low rank: a few directions above a floor" in repr(fitted.shared)


def test_the_method_joint_has_the_structure_that_it_needs():
    assert mp.NoiseAware(method="joint")._structure == "full"
    assert mp.NoiseAware()._structure is None
    assert mp.NoiseAware(method="joint", structure="low_rank")._structure == "low_rank"  # which is then refused


def test_the_default_draws_until_its_diagnosis_is_content(monkeypatch):
    """300 draws of a chain say too little here: the first look asks for more."""
    asked = []
    extend = SharedPosterior.extend

    def more(self, *arguments, **options):
        asked.append(self.num_draws)
        return extend(self, *arguments, **options)

    monkeypatch.setattr(SharedPosterior, "extend", more)
    looks = iter([True, True, False])
    content = lambda self: replace(diagnose(self), asks_for_draws=next(looks, False))
    diagnose = SharedPosterior.diagnose
    monkeypatch.setattr(SharedPosterior, "diagnose", content)
    train = mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=10).train
    shared = mp.NoiseAware(1.0, unsafe_seed=0, chains=2, progress_bar=False).fit(train).shared
    assert asked == [300, 400]
    assert shared.num_draws == 500
    assert mp.NoiseAware(1.0, unsafe_seed=0, **FAST).fit(train).shared.num_draws == 50  # what is said is done


def test_more_draws_are_asked_for_where_they_mend_everything():
    rng = np.random.default_rng(0)
    few, many = ({"x": rng.standard_normal((4, n))} for n in (60, 2000))
    calm, diverging = ({"diverging": np.full((4, 60), flag)} for flag in (False, True))
    assert diagnose(few, calm, remedies=REMEDIES).asks_for_draws
    assert not diagnose(few, diverging, remedies=REMEDIES).asks_for_draws
    assert not diagnose(many, {}, remedies=REMEDIES).asks_for_draws


@pytest.mark.evidence
def test_so_read_owners_err_less():
    train, test, _ = mp.datasets.synthetic_low_rank()
    errors = {None: 0.0, "full": 0.0}
    for seed in range(2):
        for structure in errors:
            fit = mp.NoiseAware(10.0, structure=structure, unsafe_seed=seed, chains=2, progress_bar=False).fit(train)
            errors[structure] += nmse(fit.predict(test), test)
    assert errors[None] < 0.995 * errors["full"]
