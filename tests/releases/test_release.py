"""The one door out: what a release holds, what it refuses, and what it never shows."""

import logging
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.effort import effort
from helpers.tolerances import FAR

from mpmtl_prob import TaskData
from mpmtl_prob.privacy import (
    Bound,
    Gaussian,
    Guarantee,
    Ledger,
    PaperTaskWishart,
    PaperWishart,
    Wishart,
    calibrate,
    calibrate_gaussian,
    compute_delta,
)
from mpmtl_prob.privacy.lattice import clipped, cut, unit_columns
from mpmtl_prob.releases import Release, Terms, default_delta, message, private_clip_norm, release, terms
from mpmtl_prob.releases.publish import publish_rounds

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 8))
H = 2.0**-10
CUT = cut(W, H)


def tasks(m=6, d=3):
    X = [RNG.standard_normal((10, d)) for _ in range(m)]
    return TaskData.from_lists(X, [x @ np.ones(d) for x in X], features=[f"f{j}" for j in range(d)])


def through_the_door(law, A, features=range(3), **change):
    paying = {name: change.pop(name) for name in ("ledger", "data", "unsafe_seed") if name in change}
    return publish_rounds(lambda noise: (A + noise, None), terms_of(law, features=features, **change), **paying)[0]


def terms_of(law, **change):
    named = {"epsilon": 1.0, "adjacency": "replace", "num_tasks": 8, "features": range(3), "lattice": H}
    return Terms((law,), **(named | change))


def test_the_default_release_keeps_its_promise():
    out = release(tasks(), 1.0)
    assert out.guarantee.proved.delta == pytest.approx(default_delta(6), rel=1e-6)
    assert out.guarantee.proved.delta <= default_delta(6)
    assert out.guarantee.proved.epsilon == 1.0
    assert out.guarantee.proved.adjacency == "replace"
    assert out.guarantee.claimed is None
    assert (out.features, out.num_tasks, out.rounds) == (("f0", "f1", "f2"), 6, 1)


def test_the_papers_claim_and_the_truth_differ():
    """The papers' release has a claim and a true guarantee, and they differ."""
    guarantee = release(W, 1.0, 1e-3, mechanism="paper", adjacency="zero_out").guarantee
    assert guarantee.claimed == Bound(1.0, 0.0, "zero_out")
    assert guarantee.proved.delta == pytest.approx(1 - np.exp(-1))
    assert "the papers claim eps = 1, delta = 0" in str(guarantee)
    assert "proved: eps = 1, delta = 0.632" in str(guarantee)


def test_the_noise_is_the_law_that_is_stated():
    law, count = Wishart(3, 9.0, 0.4), effort(300, 1000)
    draws = np.stack([release(W, 1.0, mechanism=law).sigma[0] for _ in range(count)])
    directions = unit_columns(W)
    error = np.sqrt(2 * law.df) * law.scale / np.sqrt(count)
    assert np.all(np.abs(draws.mean(axis=0) - directions @ directions.T - law.mean) < FAR * error)


def test_releases_never_share_noise_and_seeds_prove_nothing():
    """Two releases never share noise, and a seed guarantees nothing."""
    assert not np.array_equal(release(W, 1.0, 1e-3).sigma, release(W, 1.0, 1e-3).sigma)
    seeded = [release(W, 1.0, 1e-3, unsafe_seed=5) for _ in range(2)]
    assert np.array_equal(seeded[0].sigma, seeded[1].sigma)
    assert seeded[0].guarantee.proved is None
    assert "fixed seed" in seeded[0].guarantee.reason


def test_a_message_is_the_same_alone_and_among_others():
    """Bit for bit: what an owner sends by itself is what the curator would have made of its rows.

    These are messages of whole steps of the grid whose length is the clip norm: the last bit of a computed length decides.
    """
    rng = np.random.default_rng(0)
    for _ in range(40):
        d = int(rng.integers(3, 40))
        half = rng.integers(1, 40, d - 1)
        square = int(np.sum(half**2))
        steps = np.append(2 * half, square - 1)  # of length square + 1
        agreed = terms(1.0, 5, d, 1e-3, message="clip", clip=(square + 1) / 4096, scaling="none")
        vectors = np.stack([rng.permutation(steps) for _ in range(5)], axis=1) / 4096
        together = message(vectors, agreed)
        alone = np.concatenate([message(vectors[:, [i]], agreed) for i in range(5)], axis=1)
        assert np.array_equal(together, alone)
        assert np.array_equal(together, message(np.asfortranarray(vectors), agreed))


def test_directions_say_nothing_of_norms():
    # the same noise: a seed makes the two releases comparable
    first, second = (release(W * scale, 1.0, 1e-3, unsafe_seed=1).sigma for scale in (1.0, 1e-150))
    assert np.allclose(first, second, rtol=1e-12)
    assert np.allclose(np.linalg.norm(unit_columns(W), axis=0), 1)
    assert np.array_equal(unit_columns(np.zeros((3, 2))), np.zeros((3, 2)))


def test_clipping_shortens_what_is_longer_and_nothing_else():
    short = clipped(W, 1.5)
    assert np.linalg.norm(short, axis=0).max() <= 1.5 * (1 + 1e-12)
    kept = np.linalg.norm(W, axis=0) <= 1.5
    assert np.array_equal(short[:, kept], W[:, kept])
    assert np.linalg.norm(clipped(np.full((3, 1), 1e300), 2.0)) == pytest.approx(2)


def test_a_private_clip_norm_is_near_the_quantile_and_is_paid():
    """A private clip norm is near the quantile, and is part of the price."""
    long = RNG.standard_normal((3, 4000))
    norms = np.linalg.norm(long, axis=0)
    bought = private_clip_norm(long, 0.2, low=0.01, high=100.0)
    assert abs(np.mean(norms <= bought.clip) - 0.5) < 0.1
    out = release(long, 1.0, 1e-3, message="clip", clip=bought)
    assert out.mechanisms[0].clip == bought.clip
    assert out.composed_with == (bought.law,)
    spent = compute_delta(1.0, (*out.mechanisms, bought.law))
    assert out.guarantee.proved.delta == pytest.approx(spent)
    assert spent <= 1e-3
    free = calibrate(1.0, 1e-3, 3, clip=bought.clip)
    assert out.mechanisms[0].scale > free.scale


@pytest.mark.parametrize("mechanism", ["calibrated", "paper", Gaussian(3, 2.0), Wishart(3, 9.0, 0.4)])
def test_a_release_survives_the_disk(tmp_path, mechanism):
    out = release(W, 1.0, mechanism=mechanism)
    out.save(tmp_path / "out.nc")
    back = Release.load(tmp_path / "out.nc")
    assert np.array_equal(back.sigma, out.sigma)
    assert repr(back) == repr(out)
    for name in (
        "mechanisms",
        "num_tasks",
        "features",
        "guarantee",
        "message",
        "scaling",
        "library_version",
        "composed_with",
    ):
        assert getattr(back, name) == getattr(out, name)
    assert list(tmp_path.iterdir()) == [tmp_path / "out.nc"]


def test_a_failed_save_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    release(W, 1.0, 1e-3).save(tmp_path / "out.nc")
    before = (tmp_path / "out.nc").read_bytes()

    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    with pytest.raises(OSError, match="no space left"):
        release(W, 1.0, 1e-3).save(tmp_path / "out.nc")
    assert (tmp_path / "out.nc").read_bytes() == before


def test_what_is_no_release_is_not_loaded(tmp_path):
    (tmp_path / "text.nc").write_text("not a release")
    xr.Dataset({"sigma": ((), 1.0)}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    for name in ("text.nc", "other.nc"):
        with pytest.raises(ValueError, match=r"path: .* holds no release"):
            Release.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Release.load(tmp_path / "nowhere.nc")


def test_a_release_cannot_be_changed():
    out = release(W, 1.0, 1e-3)
    with pytest.raises(ValueError, match="read-only"):
        out.sigma[0, 0, 0] = 1.0
    with pytest.raises(AttributeError):
        out.guarantee = None


def test_gaussian_noise_may_leave_the_cone_and_is_published():
    """Gaussian noise may leave the cone of positive definite matrices, and is published all the same."""
    out = through_the_door(Gaussian(3, 50.0), np.zeros((3, 3)), unsafe_seed=0)
    assert np.linalg.eigvalsh(out.sigma[0])[0] < 0


def test_the_tasks_own_second_moment_is_released_without_a_proof():
    out = through_the_door(PaperTaskWishart(8, 1.0), CUT.T @ CUT, features=[f"task {i}" for i in range(8)])
    assert out.guarantee.proved is None
    assert "W'W" in out.guarantee.reason
    assert "Nothing is proved" in out.guarantee.explain()


def test_explain_says_what_is_compared_and_what_is_not_covered():
    """The explanation says which data sets are compared, and what is not covered."""
    text = release(W, 1.0, 1e-3).guarantee.explain()
    for words in (
        "any other task",
        "factor of 2.72",
        "all other tasks' owners",
        "hyper-parameters",
        "clip norm",
        "Arithmetic is covered",
    ):
        assert words in text
    assert "had this task not taken part" in release(W, 1.0, 1e-3, adjacency="zero_out").guarantee.explain()
    papers = release(W, 1.0, 1e-3, mechanism="paper", adjacency="zero_out").guarantee.explain()
    assert "must not be quoted" in papers


@pytest.mark.parametrize(("epsilon", "power"), [(0.5, "9%"), (3.0, "95%")])
def test_explain_bounds_the_power_of_a_test_from_both_sides(epsilon, power):
    """The explanation bounds the power of a test by both sides of the promise."""
    text = Guarantee(None, Bound(epsilon, 0.01, "replace"), "").explain()
    assert f"at most {power} of the time" in text


def test_a_law_that_breaks_the_delta_is_refused_before_paying():
    """A user's law that does not keep the delta asked for is refused before anything is paid."""
    book, law = Ledger(epsilon=1.0, delta=0.5), Gaussian(3, 2.0)
    true = compute_delta(1.0, law, "replace")
    with pytest.raises(ValueError, match=f"delta: the given mechanism has {true:.3g} at eps = 1, more than the 0.001"):
        release(W, 1.0, 1e-3, mechanism=law, ledger=book)
    with pytest.raises(ValueError, match="delta: expected a number in"):
        release(W, 1.0, 1.5, mechanism=law, ledger=book)
    assert book.charges() == []
    for asked in (None, 1.01 * true):
        assert release(W, 1.0, asked, mechanism=law).guarantee.proved.delta == true


def test_a_users_law_is_drawn_once_where_rounds_are_automatic():
    """A user's law is drawn once where the number of rounds is left to the release."""
    many = np.tile(np.eye(3), 200)
    law = calibrate_gaussian(1.0, 1e-3, 3)
    ask = {"rounds": "auto", "respond": lambda so_far: many}
    assert release(many, 1.0, 1e-3, **ask).rounds == 2
    assert release(many, 1.0, 1e-3, mechanism=law, **ask).rounds == 1
    with pytest.raises(ValueError, match="delta: the given mechanism has"):
        release(many, 1.0, 1e-3, mechanism=law, **ask | {"rounds": 2})


def test_what_is_neither_tasks_nor_messages_is_named():
    for wrong in (pd.DataFrame(W), (W, W)):
        with pytest.raises(
            ValueError, match=f"source: expected TaskData, or .* matrix, got {type(wrong).__name__}; make"
        ):
            release(wrong, 1.0)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"mechanisms": ()}, "mechanisms"),
        ({"mechanisms": (Wishart(4, 9.0, 1.0),)}, "mechanisms"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"ledger": "ledger.db"}, "ledger"),
        ({"unsafe_seed": -1, "ledger": None}, "unsafe_seed"),
    ],
)
def test_the_door_charges_and_draws_nothing_on_bad_input(change, name):
    book, ran = Ledger(epsilon=1.0, delta=1e-3), []
    named = {
        "mechanisms": (Wishart(3, 9.0, 5.0),),
        "epsilon": 1.0,
        "adjacency": "replace",
        "num_tasks": 8,
        "features": range(3),
        "lattice": H,
    }
    paying = {"ledger": book} | {name: change[name] for name in ("ledger", "unsafe_seed") if name in change}
    settled = named | {name: value for name, value in change.items() if name not in paying}
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        publish_rounds(lambda noise: ran.append(noise), Terms(**settled), **paying)
    assert ran == []
    assert book.charges() == []


@pytest.mark.parametrize(
    "sigma",
    [
        np.eye(2)[None],
        np.full((1, 3, 3), np.nan),
        np.triu(np.ones((3, 3)))[None],
        -np.eye(3)[None],
        np.zeros((1, 3, 3)),
    ],
    ids=["another d", "not finite", "not symmetric", "negative", "singular"],
)
def test_a_release_holds_definite_matrices_of_its_dimension(sigma):
    """A release holds positive definite matrices of its own dimension."""
    good = release(W, 1.0, 1e-3)
    with pytest.raises(ValueError, match=r"^sigma: expected"):
        Release(sigma, good.mechanisms, 8, good.features, good.guarantee, "direction", "none", "0")


def test_nothing_private_is_in_anything_that_comes_out(tmp_path, caplog, capsys):
    # recognisable digits in X, y, W and, through a seed, in E
    caplog.set_level(logging.DEBUG)
    rng = np.random.default_rng(7)
    X = [rng.standard_normal((9, 3)) * 7.7712345 + 3.3391827 for _ in range(6)]
    y = [rng.standard_normal(9) * 5.5518293 for _ in range(6)]
    data, private = TaskData.from_lists(X, y), rng.standard_normal((3, 6)) * 4.4417264
    book, texts = Ledger(tmp_path / "book", epsilon=9.0, delta=1e-2), []
    noise = []
    A = cut(private, H) @ cut(private, H).T

    def run(E):
        noise.append(E)
        return A + E, private

    law = calibrate(1.0, 1e-3, 3, clip=99.0)
    outs = [
        release(data, 1.0, 1e-3, ledger=book),
        release(private, 1.0, 1e-3, message="clip", clip=3.0),
        publish_rounds(run, terms_of(law, num_tasks=6), ledger=book, data=private)[0],
    ]
    for k, out in enumerate(outs):
        held = vars(out) | {"sigma": None}  # its digits are random, and public
        texts += [repr(out), str(out), out.guarantee.explain(), repr(out.to_xarray().attrs), repr(held)]
        out.save(tmp_path / f"{k}.nc")
    bad = private.copy()
    bad[1, 2] = np.nan
    for attempt in (
        lambda: release(bad, 1.0, 1e-3),
        lambda: release(private.tolist() + [["x"] * 6], 1.0, 1e-3),
        lambda: release(private, 1.0, 1e-3, message="clip", clip=np.linalg.norm(private, axis=0)),
        lambda: release(private[..., None], 1.0, 1e-3),
        lambda: release(private, 50.0, 1e-3, ledger=book),
        lambda: TaskData.from_lists([*X[:-1], X[-1][:, :2]], y),
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is examined below
            attempt()
        texts.append(str(error.value))
    texts += [repr(book), repr(book.charges()), repr(data), caplog.text, *capsys.readouterr()]

    secrets = [
        np.concatenate([x.ravel() for x in X]),
        np.concatenate(y),
        private.ravel(),
        np.linalg.norm(private, axis=0),
    ]
    secrets += [A.ravel(), noise[0].ravel()]
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    printed = "\n".join(texts)
    for value in np.concatenate(secrets):
        for digits in (f"{value:.4f}", f"{value:.6g}"):
            if len(digits.strip("-0.")) > 4:
                assert re.search(rf"(?<!\d){re.escape(digits[:7])}", printed) is None, digits
        assert np.float64(value).tobytes() not in files
        assert repr(float(value)).encode() not in files
    # the search does find what is public
    assert np.float64(outs[0].sigma[0, 0, 0]).tobytes() in files
    assert f"{outs[2].mechanisms[0].scale:.4f}"[:6] in printed


def test_the_papers_law_is_the_default_of_the_name_paper():
    assert isinstance(release(W, 1.0, 1e-3, mechanism="paper").mechanisms[0], PaperWishart)
