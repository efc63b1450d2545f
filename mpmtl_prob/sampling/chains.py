"""Several chains of any NumPyro kernel, run so that a second call with new numbers does not compile again.

``numpyro.infer.MCMC`` compiles its loop on every run. Here the kernel is NumPyro's, and the loop is traced once per kernel
and shape. It runs in chunks, between which the progress bar moves and the chains' state is returned, so that an interruption
loses at most one chunk.

Chains do not run in step, because all would wait for the longest trajectory among them. Each runs in its own thread, on one
of the available devices. Each adapts its own step size and mass matrix: where chains took them from one that had reached the
typical set, others never left their starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import NUTS
from numpyro.infer.mcmc import MCMCKernel
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import Draws
from mpmtl_prob._util.devices import for_chain, for_chains
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.sampling import _numpyro
from mpmtl_prob.sampling._threefry import keys
from mpmtl_prob.sampling.flat import DEPTH, FlatNUTS

_CHUNK = 25  # draws of a chunk, at most
_MOST = 1_200_000  # numbers in a chunk's draws, at most, because several copies of them are in memory


class Program(NamedTuple):
    """Compiled loop of a kernel for one chain, in three parts."""

    first: Callable[..., Any]  #: key, unconstrained values or None, model arguments -> state
    fill: Callable[..., Any]  #: state, model arguments, number of draws -> state, recorded draws padded to a chunk
    constrain: Callable[..., Any]  #: unconstrained draws, model arguments -> draws
    record: Callable[[Any], Any]  #: state -> what is recorded of it: unconstrained values, statistics
    lacks_gradient: bool  #: ``first`` leaves potential energy and gradient to a step of the loop

    def loop(self, state: Any, args: Any, steps: Any) -> Any:
        """Return the state after ``steps`` draws, and (unconstrained draws, statistics), padded to a chunk."""
        return self.fill(state, args, steps)

    def most(self, state: Any) -> int:
        """Return how many draws a chunk holds: fewer where a draw has very many numbers."""
        return num_draws(self.record(state))

    def chunks(self, state: Any, total: int) -> list[int]:
        """Divide a number of draws into chunks."""
        most = self.most(state)
        return [most] * (total // most) + [total % most] * (total % most > 0)

    def init(self, key: Any, params: Any, args: Any) -> Any:
        """Return the first state. ``params`` are unconstrained values or None."""
        state = self.first(key, params, args)
        return (
            _numpyro.with_gradient(state, lambda state: self.loop(state, args, 1)[0]) if self.lacks_gradient else state
        )

    def advance(self, state: Any, args: Any, steps: Any, keep: Callable[[Any], Any] = dict) -> Any:
        """Return the state after ``steps`` draws, and (draws, statistics), padded; of the draws what ``keep`` returns."""
        state, (draws, statistics) = self.loop(state, args, steps)
        if self.most(state) == _CHUNK:
            return state, (keep(self.constrain(draws, args)), statistics)
        one_draw = lambda draws: keep(self.constrain(draws, args))
        return state, (_one_by_one(one_draw, draws, max(steps, 1)), statistics)


def num_draws(record: Any) -> int:
    """Return how many draws a chunk holds, given what is recorded of one."""
    return max(1, min(_CHUNK, _MOST // sum(np.size(leaf) for leaf in jax.tree.leaves(record))))


def _one_by_one(function: Callable[[Any], Any], draws: Any, number: int) -> Any:
    """Apply a function to ``number`` draws, one after another.

    Applied to all at once it would take several times the memory of the draws.
    """
    draws = jax.tree.map(np.asarray, draws)
    results = None
    for i in range(number):
        result = jax.tree.map(np.asarray, function(jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], draws)))
        if results is None:
            results = jax.tree.map(lambda leaf: np.empty((number, *leaf.shape[1:]), leaf.dtype), result)
        for leaf, value in zip(jax.tree.leaves(results), jax.tree.leaves(result), strict=True):
            leaf[i] = value[0]
    return results


class ChainStates(NamedTuple):
    """States of several chains, and how far they have come.

    Attributes:
        state: the kernel's state of every chain.
        warmed: number of warm-up iterations done.
        drawn: number of draws done.
    """

    state: tuple[Any, ...]
    warmed: int
    drawn: int


def most_steps(kernel: MCMCKernel) -> int | None:
    """Return the number of leapfrog steps of a kernel's longest trajectory after warm-up.

    None where there is no limit, or one that was chosen for the model, so that reaching it is no sign of bad coordinates.
    """
    if isinstance(kernel, FlatNUTS):
        return int(2**kernel.depth) - 1 if kernel.depth >= DEPTH else None
    if not isinstance(kernel, NUTS):
        return None
    return int(2 ** _numpyro.tree_depth(kernel)) - 1


@lru_cache(maxsize=32)
def program(kernel: MCMCKernel, warmup: int, thin: int = 1) -> Program:
    """Compile a kernel's loop. The same kernel object gives the same program, which is traced once per shape.

    Args:
        kernel: an implementation of NumPyro's ``MCMCKernel``; its model's arguments are traced.
        warmup: iterations of adaptation.
        thin: iterations per draw.
    """

    lacks_gradient = isinstance(kernel, NUTS | FlatNUTS)

    def first(key: Any, params: Any, args: Any) -> Any:
        if isinstance(kernel, FlatNUTS):
            return _numpyro.with_huge_energy(kernel.first(key, warmup, params, args))
        state = kernel.init(key, warmup, params, args, {})
        # compiling the gradient here would take as long as compiling it in the loop, so that the loop computes it
        return _numpyro.with_huge_energy(_numpyro.without_gradient(state)) if lacks_gradient else state

    def fill(state: Any, args: Any, steps: Any) -> Any:
        # the number of steps is traced, so that a last, shorter chunk does not compile again
        def body(i: Any, carry: Any) -> Any:
            state, records = carry
            step = lambda _, state: kernel.sample(state, args, {})
            state = step(i, state) if thin == 1 else jax.lax.fori_loop(0, thin, step, state)
            put = lambda leaf, value: jax.lax.dynamic_update_index_in_dim(leaf, value, i, 0)
            return state, jax.tree.map(put, records, record(state))

        most = num_draws(record(state))
        empty = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), record(state))
        return jax.lax.fori_loop(0, steps, body, (state, empty))

    def record(state: Any) -> Any:
        statistics = {k: getattr(state, v) for k, v in _numpyro.STATISTICS.items() if hasattr(state, v)}
        return getattr(state, kernel.sample_field), statistics

    def constrain(draws: Any, args: Any) -> Any:
        return jax.vmap(kernel.postprocess_fn(args, {}))(draws)

    # LAPACK takes most of the loop's time, so that a higher level makes the loop no faster, and its compilation a quarter
    # longer. The other two parts run for less time than any optimisation of them takes.
    low, lowest = ({"xla_backend_optimization_level": level} for level in (1, 0))
    return Program(
        first if isinstance(kernel, FlatNUTS) else jax.jit(first, compiler_options=lowest),
        jax.jit(fill, compiler_options=low),
        jax.jit(constrain, compiler_options=lowest),
        record,
        lacks_gradient,
    )


def map_in_threads(function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
    """Apply a function to each item in a thread; XLA releases the interpreter's lock while it computes."""
    double = jax.config.jax_enable_x64  # a new thread has the process's setting, not its caller's

    def one(item: Any) -> Any:
        with jax.enable_x64(double):
            return jax.block_until_ready(function(item))

    if len(items) == 1:
        return [one(items[0])]
    with ThreadPoolExecutor(min(len(items), os.cpu_count() or 1)) as pool:
        return list(pool.map(one, items))


def init(
    compiled: Program, args: Any, *, chains: int, seed: int, start: Mapping[str, Any] | None = None
) -> ChainStates:
    """Return the first states of several chains.

    Args:
        compiled: the program.
        args: model arguments.
        chains: number of chains.
        seed: seed of the chains.
        start: unconstrained values of the model's sites. Chains start at these plus normal numbers with a standard deviation
            of 0.1. Default: where the kernel starts by itself.
    """
    check_not_forked()
    params: Sequence[Any] = [None] * chains
    if start is not None:
        rng = np.random.default_rng(seed)
        near = {k: np.asarray(v + 0.1 * rng.standard_normal((chains, *np.shape(v)))) for k, v in start.items()}
        params = [{k: v[i] for k, v in near.items()} for i in range(chains)]
    chain_keys = keys(seed, chains)

    def of_chain(i: int) -> Any:
        # only `args` are moved to the chain's device: moving `params` would sort the sites by their names, and the same
        # random numbers would then move other sites
        return compiled.init(chain_keys[i], params[i], for_chain(i, args))

    first = of_chain(0)  # compiles, once for all threads
    others = map_in_threads(of_chain, range(1, chains)) if chains > 1 else []
    return ChainStates((first, *others), 0, 0)


def advance(
    compiled: Program,
    kernel: MCMCKernel,
    args: Any,
    reached: ChainStates,
    *,
    warmup: int,
    draws: int,
    thin: int,
    progress_bar: bool,
    status: Callable[[], str] = lambda: "",
    keep: Callable[[Draws], Draws] = dict,
) -> Iterator[tuple[ChainStates, Draws | None, Draws | None]]:
    """Go on from the states ``reached`` until ``warmup`` iterations and ``draws`` draws are done.

    Args:
        compiled: the program.
        kernel: its kernel.
        args: model arguments.
        reached: where the chains are.
        warmup: iterations of adaptation, which are rounded up to whole draws.
        draws: number of draws of every chain, those already done included.
        thin: iterations per draw.
        progress_bar: show one.
        status: returns a text that the progress bar shows.
        keep: from a chain's draws to those that are returned.

    Yields:
        After every chunk, the chains' states, and the chunk's draws and statistics, (chain, draw, ...), which are None during
        warm-up.
    """
    check_not_forked()
    longest = most_steps(kernel)
    placed = for_chains(len(reached.state), args)
    reached = reached._replace(state=tuple(for_chain(i, state) for i, state in enumerate(reached.state)))
    compiled.advance(reached.state[0], placed[0], 0)  # compiles, once for all threads
    most = compiled.most(reached.state[0])
    with tqdm(total=warmup + draws * thin, desc="warm-up", disable=not progress_bar) as bar:
        bar.update(reached.warmed + reached.drawn * thin)
        while reached.warmed < warmup or reached.drawn < draws:
            warming = reached.warmed < warmup
            left = -(-(warmup - reached.warmed) // thin) if warming else draws - reached.drawn
            steps = min(most, left)
            work = list(zip(reached.state, placed, strict=True))
            # draws of the warm-up are not returned, so that they are not constrained either
            run = compiled.loop if warming else partial(compiled.advance, keep=keep)
            results = map_in_threads(lambda of_chain, run=run, steps=steps: run(of_chain[0], of_chain[1], steps), work)
            state = tuple(now for now, _ in results)
            of_chains = [chunk for _, chunk in results]
            del work, results
            if progress_bar:
                bar.set_description("warm-up" if warming else "sampling")
                bar.set_postfix_str(status() or kernel.get_diagnostics_str(state[0]), refresh=False)
            bar.update(steps * thin)
            if warming:
                reached = ChainStates(state, reached.warmed + steps * thin, reached.drawn)
                of_chains.clear()
                yield reached, None, None
            else:
                reached = ChainStates(state, reached.warmed, reached.drawn + steps)
                unpad_and_stack = lambda *chunks, steps=steps: np.stack([np.asarray(chunk)[:steps] for chunk in chunks])
                samples, statistics = jax.tree.map(unpad_and_stack, *of_chains)
                if "lp" in statistics:
                    statistics["lp"] = -statistics["lp"]
                if longest is not None:
                    statistics["reached_max_treedepth"] = statistics["n_steps"] >= longest
                of_chains.clear()  # to free their memory before the next chunk
                yield reached, samples, statistics
                del samples, statistics


def join(parts: list[Draws], *, last: bool = False) -> Draws:
    """Concatenate chunks of draws (chain, draw, ...).

    With ``last`` the chunks are emptied on the way, so that there are never two copies of all draws in memory.
    """
    if not last or not parts:
        return {k: np.concatenate([part[k] for part in parts], axis=1) for k in parts[0]} if parts else {}
    joined: Draws = {}
    for name in list(parts[0]):
        chunks = [part.pop(name) for part in parts]
        shape = list(chunks[0].shape)
        shape[1] = sum(chunk.shape[1] for chunk in chunks)
        joined[name] = np.empty(shape, np.result_type(*chunks))
        chunks.reverse()
        at = 0
        while chunks:
            chunk = chunks.pop()
            joined[name][:, at : at + chunk.shape[1]] = chunk
            at += chunk.shape[1]
    return joined
