"""A run of the public posterior: a first look, enough draws, interrupted and continued."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import HMC, NUTS, init_to_value

import mpmtl_prob as mp
from mpmtl_prob.inference import SharedPosterior, Until, first_look, shared_covariance
from mpmtl_prob.sampling import chains, checkpoint
from mpmtl_prob.sampling.runs import worst

FAST = {"chains": 2, "warmup": 200, "progress_bar": False}


def messages(num_tasks=60, seed=0):
    return np.array([3.0, 1.0, 0.3])[:, None] * np.random.default_rng(seed).standard_normal((3, num_tasks))


@pytest.fixture(scope="module")
def release():
    return mp.release(messages(), 1.0, 0.01, unsafe_seed=0)


def spectrum(posterior):
    return posterior.to_arviz()["posterior/spectrum"].values


def test_an_extended_posterior_is_the_longer_run(release):
    short = shared_covariance(release, draws=25, **FAST).extend(50, progress_bar=False)
    long = shared_covariance(release, draws=75, **FAST)
    assert_array_equal(short.to_arviz()["posterior/A"].values, long.to_arviz()["posterior/A"].values)
    assert_array_equal(spectrum(short), spectrum(long))


def test_extending_leaves_what_was_there_as_it_was(release):
    short = shared_covariance(release, draws=25, **FAST)
    before = spectrum(short)
    short.extend(25, progress_bar=False)
    assert_array_equal(spectrum(short), before)
    assert spectrum(short.extend(25, progress_bar=False)).shape[1] == 50


def test_a_run_stops_as_soon_as_there_are_enough_effective_draws(release):
    enough = shared_covariance(release, until=Until(ess=60), **FAST).to_arviz()["posterior"]
    A = np.linalg.eigvalsh(enough["A"].values)
    shares = A / A.sum(axis=-1, keepdims=True)
    log_phi = enough["log_phi"].values
    assert min(*effective_sample_size(shares), effective_sample_size(log_phi)) >= 60
    assert log_phi.shape[1] < 1000
    few = shared_covariance(release, until=Until(ess=1e9), draws=50, **FAST)
    assert spectrum(few).shape[1] == 50  # never more than draws


def test_enough_is_all_that_was_asked_for():
    assert Until(ess=100).is_met(100, 2.0)
    assert not Until(ess=100, rhat=1.01).is_met(100, 1.02)
    assert not Until(ess=100, rhat=1.01).is_met(99, 1.0)
    assert Until(rhat=1.01).is_met(1, 1.01)


def test_the_worst_of_what_is_watched_is_what_counts():
    rng = np.random.default_rng(0)
    good, stuck = rng.standard_normal((4, 200)), rng.standard_normal((4, 200)) + 5 * np.arange(4)[:, None]
    ess, rhat = worst({"good": good, "stuck": np.stack([good, stuck], axis=-1), "fixed": np.ones((4, 200))})
    assert ess < 20
    assert rhat > 2


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "until: expected ess, rhat, or both"), ({"ess": 0}, "ess: expected"), ({"rhat": 0.9}, "rhat: expected")],
)
def test_a_rule_that_says_nothing_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        Until(**options)


def test_bad_arguments_are_named(release):
    with pytest.raises(ValueError, match=r"until: expected Until\(ess=..., rhat=...\), got int"):
        shared_covariance(release, until=400)
    with pytest.raises(ValueError, match="draws: expected a whole number >= 1, got 0"):
        shared_covariance(release, draws=0)
    with pytest.raises(ValueError, match="release: expected a Release, got ndarray"):
        first_look(np.eye(3))


def test_an_interrupted_run_keeps_what_was_drawn_and_goes_on(release, monkeypatch):
    whole = shared_covariance(release, draws=75, **FAST)
    advance = chains.advance

    def interrupted(*args, **kwargs):
        for step in advance(*args, **kwargs):
            yield step
            if step[0].drawn == 50:
                raise KeyboardInterrupt

    monkeypatch.setattr(chains, "advance", interrupted)
    with pytest.warns(UserWarning, match="interrupted: 50 of 75 draws per chain are in the posterior") as caught:
        cut = shared_covariance(release, draws=75, **FAST)
    monkeypatch.undo()
    assert caught[0].filename == __file__
    assert spectrum(cut).shape[1] == 50
    again = cut.extend(25, progress_bar=False)
    assert_array_equal(again.to_arviz()["posterior/A"].values, whole.to_arviz()["posterior/A"].values)


def test_an_interrupt_in_warm_up_is_an_interrupt(release, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(chains, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shared_covariance(release, draws=25, **FAST)


def test_a_posterior_from_a_file_cannot_go_on_and_says_so(release, tmp_path):
    shared_covariance(release, draws=25, **FAST).save(tmp_path / "posterior.nc")
    with pytest.raises(ValueError, match="extend: this posterior holds no chains to go on from"):
        SharedPosterior.load(tmp_path / "posterior.nc").extend(10)


def test_the_progress_bar_counts_effective_draws(release, capsys):
    """Under a first look, the progress bar counts effective draws."""
    shared_covariance(release, chains=2, warmup=200, draws=75)
    shown = capsys.readouterr()
    assert "First look, from moments, not the posterior" in shown.out
    assert "effective draws, r-hat" in shown.err


def test_a_first_look_sees_what_stands_clear_and_invents_nothing():
    clear = first_look(mp.release(messages(20000), 10.0, 0.01, unsafe_seed=0))
    assert clear.visible == 3
    # directions of messages N(0, diag(9, 1, .09)): their second moment is diagonal, and descends
    assert np.argsort(np.diagonal(clear.omega)).tolist() == [2, 1, 0]
    np.testing.assert_allclose(np.trace(clear.omega), 3)
    nothing = first_look(mp.release(messages(20), 0.01, 0.01, unsafe_seed=0))
    assert nothing.visible == 0
    assert nothing.spectrum[0] < 0.7


def test_the_mark_of_a_run_has_the_settings_of_its_kernel():
    """Kernels with other settings draw other chains; the same ones, made anew, have the same mark."""
    mark = lambda kernel: checkpoint.fingerprint({"kernel": checkpoint.settings_of(kernel)}, [np.arange(3.0)])
    model = lambda: None
    kernels = [
        NUTS(model),
        NUTS(model, target_accept_prob=0.9),
        NUTS(model, dense_mass=True),
        NUTS(model, step_size=0.1),
        NUTS(model, init_strategy=init_to_value(values={"x": np.arange(2.0)})),
        NUTS(model, init_strategy=init_to_value(values={"x": np.arange(2.0) + 1})),
        HMC(model),
    ]
    marks = [mark(kernel) for kernel in kernels]
    assert len(set(marks)) == len(kernels)
    assert mark(NUTS(model, target_accept_prob=0.9)) == marks[1]
    assert "0x" not in str(checkpoint.settings_of(kernels[0]))  # no address, which another process would not have


def test_marks_of_two_checkpoints_say_nothing_of_each_other(tmp_path):
    """Two checkpoints of the same run have unrelated marks: else a mark that was seen could test guesses of the rows."""
    run = checkpoint.fingerprint({"seed": 0}, [np.arange(3.0)])
    reached = chains.ChainStates((np.zeros(2),), 1, 2)
    marks = set()
    for name in ("one.npz", "other.npz"):
        checkpoint.write(tmp_path / name, run, reached, {"W": np.ones((1, 2))}, {})
        with np.load(tmp_path / name) as file:
            marks.add(str(file["mark"]))
        again, draws, _ = checkpoint.read(tmp_path / name, run, reached)
        assert (again.warmed, again.drawn, draws["W"].tolist()) == (1, 2, [[1.0, 1.0]])
        with pytest.raises(ValueError, match="holds another run"):
            checkpoint.read(tmp_path / name, checkpoint.fingerprint({"seed": 0}, [np.arange(3.0) + 1]), reached)
    assert len(marks) == 2
    assert run not in marks
