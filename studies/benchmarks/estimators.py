"""Speed of the estimators beside other packages, as ratios within one run, and what bounds it.

    pip install -c constraints.txt -e '.[bench]'
    OPENBLAS_NUM_THREADS=1 python studies/benchmarks/estimators.py [--repeats 5] [--json OUT]

School data, 30 % of the rows, penalties as cross-validation picks them. Every solver runs to an objective within 1e-6 of the
best known, with the loosest stopping number that reaches it. Cold is the first call of a process, compilation included and no
cache read; warm the median of later calls, taken in turns. Seconds are CPU seconds of all threads, which a busy machine
lengthens less than those of the clock, and which count against us where we use both cores. Ours include the Gram matrices
each time; the others get their design and their step size for nothing. A peer that is not installed is skipped. The logistic
gradient is of made-up data, one sum in two ways.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)  # else a cold call might read what an earlier run compiled
sys.path.insert(0, str(Path(__file__).parent))

import peers  # noqa: E402
import record  # noqa: E402

from mpmtl_prob import datasets  # noqa: E402
from mpmtl_prob._util.arrays import FloatArray  # noqa: E402
from mpmtl_prob.convex.losses import LeastSquares, Logistic  # noqa: E402
from mpmtl_prob.data.tasks import TaskData  # noqa: E402
from mpmtl_prob.estimators import GroupLasso, LowRank, MultiTask, Noise, TraceNorm  # noqa: E402

ACCURACY = 1e-6
GIVE_UP = 20_000  # iterations of a peer
Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    record.option(parser)
    options = parser.parse_args()
    train, _ = datasets.school().split(0.3, seed=0)
    print(f"{train}; CPU seconds")
    problems = {
        "trace norm": trace_norm(train, 4.6, options.repeats),
        "l2,1": l21(train, 2.4, options.repeats),
        "Algorithm 2": algorithm_2(train, options.repeats),
        "logistic gradient": several_targets(options.repeats),
    }
    record.write(options.json, {"accuracy": ACCURACY, "problems": problems}, "pyproximal", "pylops", "skglm")


def trace_norm(train: TaskData, penalty: float, repeats: int) -> Record:
    """Compare the trace norm with pyproximal's accelerated proximal gradient."""
    print(f"\ntrace norm, penalty {penalty:g}, against pyproximal's ProximalGradient(acceleration='fista')")
    ours, best, cold, iterations = our_solver(TraceNorm(), train, penalty)
    prox = f"eigendecompositions, one of {train.num_features} x {train.num_features} a step"
    bound = shares(ours, of_fit(TraceNorm(), prox, train, iterations))
    try:
        peer = peers.pyproximal_trace_norm(train, penalty, LeastSquares().of(train).curvature().max())
    except ImportError:
        return skipped("pyproximal", cold, seconds(ours), bound)
    gap = relative_gap(TraceNorm(), train, penalty, best)
    needed = first_accurate(peer, gap)
    start = time.process_time()
    reached = gap(peer(needed))
    peer_cold = time.process_time() - start  # nothing of it is compiled: cold is warm
    warm = interleaved({"ours": ours}, repeats) | {"peer": peer_cold}
    print(
        f"  peer: {needed} iterations, objective {reached:.1e} above the best" + " (gave up)" * bool(reached > ACCURACY)
    )
    return verdict("pyproximal", cold, peer_cold, warm["ours"], warm["peer"], bound, reached)


def l21(train: TaskData, penalty: float, repeats: int) -> Record:
    """Compare the l2,1 norm with skglm's GroupBCD on the block design."""
    print(f"\nl2,1, penalty {penalty:g}, against skglm's GroupBCD on the sparse block design")
    ours, best, cold, iterations = our_solver(GroupLasso(), train, penalty)
    bound = shares(ours, of_fit(GroupLasso(), "row norms", train, iterations))
    try:
        peer = peers.skglm_group_lasso(train, penalty)
    except ImportError:
        return skipped("skglm", cold, seconds(ours), bound)
    gap = relative_gap(GroupLasso(), train, penalty, best)
    peer_cold = timed(lambda: peer(1e-5))
    tolerance = next(tol for tol in 10.0 ** -np.arange(3.5, 12, 0.25) if gap(peer(tol)) <= ACCURACY)
    warm = interleaved({"ours": ours, "peer": lambda: peer(tolerance)}, repeats)
    reached = gap(peer(tolerance))
    print(f"  peer: tolerance {tolerance:.1e}, objective {reached:.1e} above the best")
    return verdict("skglm", cold, peer_cold, warm["ours"], warm["peer"], bound, reached)


def algorithm_2(train: TaskData, repeats: int, rounds: int = 30) -> Record:
    """Compare Algorithm 2 with NumPy, with the same noise and the same start."""
    print(f"\nAlgorithm 2, {rounds} rounds, against the same rounds in NumPy")
    algorithm = LowRank(penalty=4.6, epsilon=1.0, rounds=rounds, clip=50.0, record=False)
    plan = algorithm.plan(train)
    rng = np.random.default_rng(0)
    zero = np.zeros((plan.size, plan.size))
    noise = np.stack([law.sample(rng, zero) for law in plan.mechanisms])
    methods = {
        "ours": lambda: plan.execute(Noise(noise), algorithm.sharing, record=False)[1][-1],
        "loops": lambda: peers.algorithm_2_by_loops(train, plan.run, plan.W0, noise),
        "batches": lambda: peers.algorithm_2_in_batches(train, plan.run, plan.W0, noise),
    }
    cold = {name: timed(method) for name, method in methods.items()}
    W = {name: method() for name, method in methods.items()}
    apart = max(np.abs(W["ours"] - W[other]).max() for other in ("loops", "batches")) / np.abs(W["ours"]).max()
    print(f"  the three agree to {apart:.0e}")
    warm = interleaved(methods, repeats * 3)
    loss: Any = plan.run.loss
    parts = {
        f"eigendecompositions, {rounds} of {plan.size} x {plan.size}": loop(
            lambda S: S + 1e-12 * jnp.linalg.eigh(S)[1], noise[0], rounds
        ),
        f"memory traffic, {loss.xx.nbytes / 1e6:.1f} MB of Gram matrices a round": loop(
            lambda Z: Z - 1e-3 * loss.gradient(Z), plan.W0, rounds
        ),
        "dispatch": empty_call((plan.run, plan.W0)),
    }
    bound = shares(methods["ours"], parts)
    compared = verdict(
        "the printed loops in NumPy", cold["ours"], cold["loops"], warm["ours"], warm["loops"], bound, apart
    )
    print(f"  stacked products in NumPy: {warm['batches']:.4f}, ours {warm['batches'] / warm['ours']:.1f} times faster")
    return compared | {"stacked products in NumPy": warm["batches"] / warm["ours"]}


def several_targets(repeats: int, subjects: int = 1000, d: int = 293, m: int = 41, steps: int = 30) -> Record:
    """Compare one table of features for all targets with the same rows task by task, at the sizes of LSOA II."""
    print(f"\n{steps} gradients of logistic losses, {m} targets of {subjects} subjects with {d} features")
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((subjects, m)) < 0.5, -1.0, 1.0)
    tasks = TaskData.from_targets(rng.standard_normal((subjects, d)), labels, rng.random((subjects, m)) < 0.9)
    losses: dict[str, Any] = {"ours": Logistic().of(tasks), "rows": Logistic().alone(tasks)}

    @jax.jit
    def descend(loss: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, W: W - 1e-4 * loss.gradient(W), jnp.zeros((d, m)))

    descents: dict[str, Callable[[], Any]] = {
        name: partial(descend, jax.tree.map(jnp.asarray, loss)) for name, loss in losses.items()
    }
    cold = {name: timed(descent) for name, descent in descents.items()}
    W = {name: np.asarray(descent()) for name, descent in descents.items()}
    apart = np.abs(W["ours"] - W["rows"]).max() / np.abs(W["ours"]).max()
    warm = interleaved(descents, repeats)
    bound = shares(descents["ours"], {"dispatch": empty_call(losses["ours"])})
    return verdict("the same rows task by task", cold["ours"], cold["rows"], warm["ours"], warm["rows"], bound, apart)


def our_solver(norm: Any, train: TaskData, penalty: float) -> tuple[Callable[[], Any], float, float, int]:
    """Return a fit that stops at ACCURACY, the best objective, the time of the first call, and the iterations."""
    fit = lambda tolerance: MultiTask(norm, penalty, tolerance=tolerance).fit(replace(train))  # replace: no Gram kept
    begin = time.process_time()
    tight = fit(1e-8)
    cold = time.process_time() - begin
    best = float(tight.history["objective"][0])
    loose = next(
        tol for tol in 10.0 ** -np.arange(0, 8) if fit(tol).history["objective"][0] - best <= ACCURACY * abs(best)
    )
    done = fit(loose)
    print(
        f"  ours: tolerance {loose:.0e}, {int(done.history['iterations'][0])} iterations, objective "
        f"{(done.history['objective'][0] - best) / best:.1e} above the best; cold call to {1e-8:.0e}"
    )
    return lambda: fit(loose), best, cold, int(done.history["iterations"][0])


def of_fit(norm: Any, prox: str, train: TaskData, iterations: int) -> dict[str, Callable[[], Any]]:
    """Return the parts of a fit, to be timed separately."""
    d, m = train.num_features, train.num_tasks
    loss: Any = LeastSquares().of(train)
    nearest = loss.resolvent()
    W = np.random.default_rng(0).standard_normal((d, m))
    check = jax.jit(lambda V: norm.optimality(V, loss.gradient(V), 1.0))
    decompose = jax.jit(jnp.linalg.eigh)
    traffic = f"{2 * 8 * m * d * d / 1e6:.1f} MB of eigenvectors a step"
    return {
        f"set-up, {m} Gram matrices and two decompositions of each": lambda: (
            replace(train).gram, loss.curvature(), decompose(loss.xx)
        ),
        f"memory traffic, {traffic}": loop(lambda V: nearest(V, 1.0), W, iterations),
        prox: loop(lambda V: norm.prox(V, 1e-6), W, iterations),
        "optimality before and after": lambda: (check(W), check(W)),
        "dispatch": empty_call((loss, W)),
    }  # fmt: skip


def shares(whole: Callable[[], Any], parts: dict[str, Callable[[], Any]], repeats: int = 9) -> dict[str, float]:
    """Return the share of each part in the time of the whole, the largest first; all are timed in turns."""
    times = interleaved({"whole": whole} | parts, repeats)
    total = times.pop("whole")
    ranked = {name: part / total for name, part in sorted(times.items(), key=lambda one: -one[1])}
    return ranked | {"the rest": 1 - sum(ranked.values())}


def loop(step: Callable[[Any], Any], start: FloatArray, steps: int) -> Callable[[], Any]:
    """Return a compiled call that runs a number of steps."""
    run = jax.jit(lambda x: jax.lax.fori_loop(0, steps, lambda _, x: step(x), x))
    return lambda: run(start)


def empty_call(tree: Any) -> Callable[[], Any]:
    """Return a compiled call that does nothing with its arguments."""
    leaves = jax.tree.map(jnp.asarray, tree)
    empty = jax.jit(lambda leaves: leaves)
    return lambda: empty(leaves)


def relative_gap(norm: Any, train: TaskData, penalty: float, best: float) -> Callable[[FloatArray], float]:
    """Return the relative excess of the objective at W over the best."""
    X, y = peers.design(train)

    def gap(W: FloatArray) -> float:
        loss = 0.5 * np.sum((y - X @ W.T.ravel()) ** 2)
        return (loss + float(norm.value(jnp.asarray(W), penalty)) - best) / best

    return gap


def first_accurate(solve: Callable[..., Any], gap: Callable[[FloatArray], float], every: int = 50) -> int:
    """Return the fewest iterations, in steps of ``every``, after which the gap is closed; GIVE_UP if there are none."""

    class Found(Exception):
        pass

    count = 0

    def watch(W: FloatArray) -> None:
        nonlocal count
        count += 1
        if count % every == 0 and gap(W) <= ACCURACY:
            raise Found

    try:
        solve(GIVE_UP, watch)
    except Found:
        return count
    return GIVE_UP


def interleaved(methods: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return median CPU seconds of functions that are called in turns, after one round that does not count."""
    times = {name: [] for name in methods}  # type: dict[str, list[float]]
    for method in methods.values():
        method()
    for _ in range(repeats):
        for name, method in methods.items():
            times[name].append(timed(method))
    return {name: float(np.median(each)) for name, each in times.items()}


def timed(method: Callable[[], Any]) -> float:
    begin = time.process_time()
    jax.block_until_ready(method())
    return time.process_time() - begin


def seconds(method: Callable[[], Any], repeats: int = 7) -> float:
    """Return median CPU seconds, after one call that does not count."""
    return float(np.median([timed(method) for _ in range(repeats + 1)][1:]))


def verdict(
    peer: str, cold: float, peer_cold: float, warm: float, peer_warm: float, bound: dict[str, float], gap: float
) -> Record:
    """Print a comparison, and return it with how far the peer's answer is from the best, or from ours."""
    print(f"  cold   ours {cold:8.4f}   peer {peer_cold:8.4f}   {peer_cold / cold:6.1f} times faster")
    print(f"  warm   ours {warm:8.4f}   peer {peer_warm:8.4f}   {peer_warm / warm:6.1f} times faster")
    ratios = {"cold": peer_cold / cold, "warm": peer_warm / warm, "gap of the peer": gap}
    return {"peer": peer, "ratios": ratios, "bound": bounded_by(bound)}


def skipped(peer: str, cold: float, warm: float, bound: dict[str, float]) -> Record:
    print(f"  {peer} is not installed (pip install -e '.[bench]'): skipped; ours cold {cold:.4f}, warm {warm:.4f}")
    return {"peer": peer, "ratios": None, "bound": bounded_by(bound)}


def bounded_by(bound: dict[str, float]) -> dict[str, float]:
    print("  bounded by " + "; ".join(f"{name} {share:.0%}" for name, share in bound.items()), flush=True)
    return bound


if __name__ == "__main__":
    main()
