"""A process that was forked after JAX had started says so, where what it computes would never end."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")  # JAX's own, which names no way out
import numpy as np
import mpmtl_prob as mp

train = mp.datasets.synthetic_low_rank(13, 3, 12, 1, group=5).train
release = mp.release(train, 8.0, unsafe_seed=0)
ledger = mp.privacy.Ledger(sys.argv[2], epsilon=100.0, delta=0.1)
WORK = {
    "lasso": lambda: mp.estimators.Lasso(0.1).fit(train),
    "path": lambda: mp.estimators.MultiTask(mp.estimators.TraceNorm(), 1.0).path(train, [1.0, 0.5]),
    "shared": lambda: mp.inference.shared_covariance(release, chains=2, warmup=20, draws=20, progress_bar=False),
    "effects": lambda: mp.inference.shared_effects(averages, chains=2, warmup=20, draws=20, progress_bar=False),
    "owner": lambda: mp.inference.task_posteriors(with_levels, public),
    "curator": lambda: mp.inference.fit(mp.models.low_rank, train, chains=1, draws=10, progress_bar=False),
    "adaptation": lambda: mp.adaptation.MomentAdaptation(1.0, posterior="nuts", unsafe_seed=0).fit(None, train.rows_of(0)),
    "noise-aware": lambda: mp.NoiseAware(1.0, delta=0.01, ledger=ledger, progress_bar=False).fit(train),
    "ridge": lambda: mp.estimators.Ridge(0.1).fit(train),
    "before": lambda: mp.estimators.Lasso(0.1).fit(train),
}
if sys.argv[1] != "before":
    mp.estimators.Lasso(0.1).fit(train)
with_levels = train.with_intercept()
averages = mp.release(with_levels, 8.0, reference=mp.Reference.standard(train.features), unsafe_seed=0)
if sys.argv[1] == "owner":
    public = mp.inference.shared_effects(averages, chains=2, warmup=20, draws=20, progress_bar=False)
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    print(len(ledger.charges()), "charges")
    sys.exit(os.waitstatus_to_exitcode(status))
signal.alarm(30)  # ends the child, whatever it waits for
try:
    WORK[sys.argv[1]]()
    print("done", flush=True)
except RuntimeError as error:
    print(error, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize(
    "work", ["lasso", "path", "shared", "effects", "owner", "curator", "adaptation", "noise-aware", "ridge", "before"]
)
def test_a_forked_child_says_so_and_does_not_hang(work, tmp_path):
    """A forked child says so: code without JAX goes on, as does a child forked before JAX started; nothing is paid for."""
    command = [sys.executable, "-c", SCRIPT, work, str(tmp_path / "ledger.db")]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
    said, charges = completed.stdout.splitlines()
    assert charges == "0 charges"
    if work in ("ridge", "before"):
        assert said == "done"
    else:
        assert said.startswith("JAX had started before this process was forked")
        assert "get_context('spawn')" in said
