"""Write one small file of every kind that version 0.3.0 can write, and what it says of each, into this folder.

Run it once, with version 0.3.0 (commit c1158eb), never with a later one: `tests/test_files_of_0_3_0.py` reads these
files with the version of today, so that nobody's ledger, release or posterior becomes unreadable.

    git worktree add /tmp/before c1158eb
    PYTHONPATH=/tmp/before .venv/bin/python tests/files_of_0_3_0/write.py

A site's signing keys are left out: they are PEM files as OpenSSL writes them. `expected.json` holds what 0.3.0 itself
read from each file: numbers, names and guarantees.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
from example import FEATURES, HOSPITALS, KEY, RUN, plain_regressions

import mpmtl_prob as mp
from mpmtl_prob import federated, inference
from mpmtl_prob.adaptation import Domain, MomentRelease, OneRelease, report
from mpmtl_prob.federated import wire
from mpmtl_prob.federated.kept import KeptSite
from mpmtl_prob.privacy import laws
from mpmtl_prob.privacy.laws import write_law
from mpmtl_prob.releases import buy_clip

HERE = Path(__file__).parent
EXPECTED: dict[str, dict] = {}

jax.config.update("jax_enable_x64", True)
train = mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=8).train


def tasks(count, binary=False):
    """The first so many hospitals, with names; of binary ones the outcomes are labels."""
    rows = [train.own(i) for i in range(count)]
    targets = [np.where(y > 0, 1.0, -1.0) if binary else y for _, y in rows]
    return mp.TaskData.from_lists([X for X, _ in rows], targets, tasks=HOSPITALS[:count], features=FEATURES)


named = tasks(12)


def guarantee(value):
    """The guarantee as plain values."""
    return value.to_dict()


def ledgers():
    """Ledgers of every unit and adjacency, with a charge of every noise law that something is proved of."""
    every = [
        laws.Wishart(3, 8.0, 2.0, 1.0),
        laws.PaperWishart(3, 0.5, 1.0),
        laws.Gaussian(3, 4.0, 1.0),
        laws.GaussianShares(3, 4.0, owners=5, step=2.0**-10, colluders=1),
        laws.Quantile(0.1),
    ]
    vectors = [laws.VectorLaplace(3, 0.2, 1.0), laws.IndependentLaplace(3, 0.2, 1.0), laws.VectorGaussian(3, 9.0, 1.0)]
    for name, unit, adjacency, adaptive, delta, charged in [
        ("ledger_task.db", "task", "replace", False, 0.5, every),
        ("ledger_zero_out.db", "task", "zero_out", True, 1e-3, [laws.Gaussian(3, 40.0, 1.0)]),
        ("ledger_row.db", "row", "replace", False, 1e-3, vectors),
        ("ledger_target_record.db", "target record", "replace", False, 1e-3, [laws.Gaussian(3, 4.0, 1.0)]),
    ]:
        declared = {"epsilon": 60.0, "delta": delta, "adjacency": adjacency, "unit": unit, "adaptive": adaptive}
        book = mp.privacy.Ledger(HERE / name, **declared)
        for law in charged:
            book.charge(law, data=np.eye(3), unit=unit)
        EXPECTED[name] = {
            "receipt": book.export_receipt(),
            "spent": book.spent.epsilon,
            "laws": [write_law(law) for charge in book.charges() for law in charge.mechanisms],
            "fingerprints": [charge.fingerprint for charge in book.charges()],
            "declared": [book.epsilon, book.delta, book.adjacency, book.unit, book.adaptive],
        }
    book = mp.privacy.Ledger(HERE / "ledger_of_a_clip.db", epsilon=5.0, delta=0.01)
    bought = buy_clip(named, 0.5, low=0.1, high=10.0, ledger=book)
    mp.release(named, 1.0, 1e-3, message="clip", clip=bought, ledger=book)
    EXPECTED["ledger_of_a_clip.db"] = {"receipt": book.export_receipt(), "spent": book.spent.epsilon}
    # The journal of a crash is not among these files: SQLite deletes it when a ledger is closed well.
    for path in HERE.glob("ledger*.db"):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def releases():
    """A release of each mechanism and message, alone, of two rounds, with a bought clip norm, seeded, signed."""
    answer = lambda release: 0.5 * np.ones((3, 12))
    made = {
        "release_wishart.nc": mp.release(named, 1.0),
        "release_gaussian.nc": mp.release(named, 1.0, mechanism="gaussian", adjacency="zero_out"),
        "release_paper.nc": mp.release(named, 1.0, mechanism="paper"),
        "release_clip.nc": mp.release(named, 2.0, message="clip", clip=2.5, scaling="none"),
        "release_bought_clip.nc": mp.release(
            named, 2.0, message="clip", clip=buy_clip(named, 0.5, low=0.1, high=10.0), scaling="unit"
        ),
        "release_two_rounds.nc": mp.release(named, 3.0, rounds=2, respond=answer),
        "release_intercept.nc": mp.release(named.with_intercept(), 1.0),
        "release_labels.nc": mp.release(tasks(12, binary=True), 1.0),
        "release_seeded.nc": mp.release(named, 1.0, unsafe_seed=7),
        "release_large_epsilon.nc": mp.release(named, 50.0, 1e-4),
    }
    for name, release in made.items():
        release.save(HERE / name)
    made["release_signed.nc"] = made["release_wishart.nc"]
    made["release_signed.nc"].save(HERE / "release_signed.nc", key=KEY)
    for name, release in made.items():
        EXPECTED[name] = {
            "sigma": release.sigma.tolist(),
            "features": list(release.features),
            "mechanisms": [write_law(law) for law in release.mechanisms],
            "message": release.message,
            "scaling": release.scaling,
            "num_tasks": release.num_tasks,
            "lattice": release.lattice,
            "guarantee": guarantee(release.guarantee),
        }
    return made


def posteriors(made):
    """Posteriors of the public, of owners and of the curator."""
    few = {"chains": 2, "warmup": 30, "draws": 5, "progress_bar": False}
    large, small = made["release_large_epsilon.nc"], made["release_wishart.nc"]
    shared = {
        "shared_full.nc": inference.shared_covariance(small, **few),
        "shared_gaussian.nc": inference.shared_covariance(made["release_gaussian.nc"], **few),
        "shared_low_rank.nc": inference.shared_covariance(large, structure="low_rank", **few),
        "shared_group_sparse.nc": inference.shared_covariance(large, structure="group_sparse", **few),
        "shared_auto.nc": inference.shared_covariance(large, structure="auto", **few),
        "shared_labels.nc": inference.shared_covariance(made["release_labels.nc"], **few),
    }
    for name, posterior in shared.items():
        posterior.save(HERE / name)
        Omega = posterior.to_arviz()["posterior"]["Omega"].values
        EXPECTED[name] = {"Omega": Omega.tolist(), "structure": type(posterior.structure).__name__}
    quiet = {"progress_bar": False}
    three, labels = tasks(3), tasks(3, binary=True)  # fewer owners make smaller files
    owners = {
        "owners_plug_in.nc": inference.task_posteriors(three, shared["shared_full.nc"], **quiet),
        "owners_mixture.nc": inference.task_posteriors(three, shared["shared_full.nc"], method="mixture", **quiet),
        "owners_labels.nc": inference.task_posteriors(
            labels, shared["shared_labels.nc"], likelihood="bernoulli", **quiet
        ),
        "owners_student_t.nc": inference.task_posteriors(
            three, shared["shared_full.nc"], likelihood="student_t", **quiet
        ),
        "owners_joint.nc": inference.task_posteriors(three, shared["shared_full.nc"], method="joint", **quiet),
        "owners_newcomers.nc": inference.task_posteriors(three, shared["shared_full.nc"], exclude_own=False, **quiet),
    }
    for name, posterior in owners.items():
        posterior.save(HERE / name)
        data = labels if "labels" in name else three
        EXPECTED[name] = {"mean": np.asarray(posterior.predict(data).mean).tolist()}
    checkpoint = HERE / "checkpoint.npz"
    fitted = inference.fit(plain_regressions, named, checkpoint=checkpoint, progress_bar=False, **RUN)
    fitted.save(HERE / "curator.nc")
    EXPECTED["curator.nc"] = {"W": fitted.to_arviz()["posterior"]["W"].values.tolist()}
    EXPECTED["checkpoint.npz"] = EXPECTED["curator.nc"]
    return shared["shared_full.nc"]


def adaptations(shared):
    """A moment release, the same signed, a saved model, and what `mpmtl-prob adapt` writes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ np.array([0.5, -0.3, 0.2]) + 0.1 * rng.standard_normal(60)
    names = ("age", "dose", "risk")
    public = Domain(X[:40], y[:40], names)
    private = Domain(X[40:], y[40:], names)
    model = OneRelease(epsilon=1.0, row_bound=3.0, target_bound=2.0, seed=0).fit(public, private)
    model.save(HERE / "one_release.nc")
    model.release_.save(HERE / "moment_release.nc")
    model.release_.save(HERE / "moment_release_signed.nc", key=KEY)
    back = MomentRelease.load(HERE / "moment_release.nc")
    for name in ("moment_release.nc", "moment_release_signed.nc"):
        EXPECTED[name] = {
            "sigma": back.sigma.tolist(),
            "centre": back.centre.tolist(),
            "features": list(back.features),
            "guarantee": guarantee(back.guarantee),
        }
    EXPECTED["one_release.nc"] = {
        "predictions": OneRelease.load(HERE / "one_release.nc").predict(X[40:]).tolist(),
        "X": X[40:].tolist(),
    }
    both = OneRelease(epsilon=1.0, row_bound=3.0, target_bound=2.0, seed=0)
    both.fit({"public": public, "hospitals": shared}, private).save(HERE / "one_release_of_tasks.nc")
    EXPECTED["one_release_of_tasks.nc"] = {"predictions": both.predict(X[40:]).tolist(), "X": X[40:].tolist()}
    adapted = report.adapt({"public": public}, private, label="effect", epsilon=1.0)
    (HERE / "adapt_model.json").write_text(json.dumps(adapted.to_dict(), indent=2) + "\n")
    EXPECTED["adapt_model.json"] = {"keys": sorted(adapted.to_dict())}


def sites():
    """The files of a federated site: its account, the state that waits between two stages, and an invitation."""
    rows = lambda i: mp.TaskData.from_lists([train.own(i)[0]], [train.own(i)[1]])
    invitation = federated.invite(1.0, 5, 3, trust="no_curator", dropouts=1)
    (HERE / "invitation.json").write_bytes(wire.write(invitation))
    folder = HERE / "site"
    kept = KeptSite(0, rows(0), folder)
    others = [federated.Site(i, rows(i)) for i in range(1, 5)]
    server = federated.serve(invitation)
    stage, sending = next(server)
    everybody = [kept, *others]
    while stage != "mask":
        stage, sending = server.send({i: everybody[i].answer(invitation, stage, sending[i]) for i in sending})
    answered = federated.Account(folder / "account.db").answered()
    EXPECTED["site"] = {
        "run": invitation.agreed.run.hex(),
        "answered": [list(row) for row in answered],
        "received_at_mask": {name: part.hex() for name, part in sending[0].items()},
        "terms": {"epsilon": invitation.terms.epsilon, "num_tasks": invitation.terms.num_tasks},
    }
    done = federated.Account(HERE / "account_of_a_finished_run.db", runs=3)
    outcome = federated.run(
        federated.invite(1.0, 5, 3, trust="secure_sum", dropouts=1),
        [federated.Site(i, rows(i), done if i == 0 else None) for i in range(5)],
        progress_bar=False,
    )
    EXPECTED["account_of_a_finished_run.db"] = {"answered": [list(row) for row in done.answered()]}
    outcome.release.save(HERE / "release_secure_sum.nc")
    shares = federated.run(
        federated.invite(1.0, 5, 3, trust="no_curator", dropouts=1),
        [federated.Site(i, rows(i)) for i in range(5)],
        progress_bar=False,
    )
    shares.release.save(HERE / "release_no_curator.nc")
    for name, release in [("release_secure_sum.nc", outcome.release), ("release_no_curator.nc", shares.release)]:
        EXPECTED[name] = {
            "sigma": release.sigma.tolist(),
            "features": list(release.features),
            "mechanisms": [write_law(law) for law in release.mechanisms],
            "message": release.message,
            "scaling": release.scaling,
            "num_tasks": release.num_tasks,
            "lattice": release.lattice,
            "guarantee": guarantee(release.guarantee),
        }


if __name__ == "__main__":
    assert not hasattr(mp, "ReleaseSpec"), "run this with version 0.3.0"
    for path in HERE.iterdir():
        if path.name not in ("write.py", "example.py", "__pycache__"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    ledgers()
    made = releases()
    shared = posteriors(made)
    adaptations(shared)
    sites()
    EXPECTED["rows"] = {"X": named.X.tolist(), "y": named.y.tolist()}
    (HERE / "expected.json").write_text(json.dumps(EXPECTED, indent=1) + "\n")
