"""Several chains of any NumPyro kernel, run so that a second call with new numbers does not compile again.

``numpyro.infer.MCMC`` compiles its loop on every run; here the kernel is NumPyro's and the loop, chunked for the progress
bar, is traced once per kernel and shape. Between chunks the state is a value: what was drawn by then is never lost.

Chains do not run in step, where all would wait for the longest trajectory among them: each runs the program of one chain, in
a thread of its own, on one of the devices that there are. Each warms up by itself: with step size and mass matrix of another
that had found the mass, some never left their starts.
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
from numpy.typing import NDArray
from numpyro.infer import NUTS
from numpyro.infer.mcmc import MCMCKernel
from tqdm.auto import tqdm

from mpmtl_prob._util.devices import for_chain, for_chains
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.sampling import _numpyro
from mpmtl_prob.sampling._threefry import keys
from mpmtl_prob.sampling.flat import FlatNUTS

Draws = dict[str, NDArray[Any]]

_CHUNK = 25  # iterations between two updates of the progress bar, at most
_MOST = 1_200_000  # numbers that are kept of them, at most: they are there several times over


class Program(NamedTuple):
    """A kernel's compiled loop of one chain, in three parts."""

    first: Callable[..., Any]  #: key, unconstrained values or None, model arguments -> state
    fill: Callable[..., Any]  #: state, model arguments, number of draws -> state, room for draws filled so far
    constrain: Callable[..., Any]  #: unconstrained draws, model arguments -> draws
    kept: Callable[[Any], Any]  #: state -> what is kept of it: unconstrained values, statistics
    weighs: bool  #: ``first`` leaves potential energy and gradient to a step of the loop

    def loop(self, state: Any, args: Any, steps: Any) -> Any:
        """The state after so many draws, and (unconstrained draws, statistics), padded."""
        return self.fill(state, args, steps)

    def most(self, state: Any) -> int:
        """Return how many draws fit the loop: fewer where one has very many numbers."""
        return num_draws(self.kept(state))

    def chunks(self, state: Any, total: int) -> list[int]:
        """A number of draws in parts that fit the loop."""
        most = self.most(state)
        return [most] * (total // most) + [total % most] * (total % most > 0)

    def init(self, key: Any, params: Any, args: Any) -> Any:
        """The first state. ``params`` are unconstrained values or None."""
        state = self.first(key, params, args)
        return _numpyro.weighed(state, lambda state: self.loop(state, args, 1)[0]) if self.weighs else state

    def advance(self, state: Any, args: Any, steps: Any, keep: Callable[[Any], Any] = dict) -> Any:
        """The state after so many draws, and (draws, statistics), padded; of the draws only what is to be kept."""
        state, (draws, statistics) = self.loop(state, args, steps)
        if self.most(state) == _CHUNK:
            return state, (keep(self.constrain(draws, args)), statistics)
        one_draw = lambda draws: keep(self.constrain(draws, args))
        return state, (_one_by_one(one_draw, draws, max(steps, 1)), statistics)


def num_draws(kept: Any) -> int:
    """Number of draws that are made at a time, of which this is kept."""
    return max(1, min(_CHUNK, _MOST // sum(np.size(leaf) for leaf in jax.tree.leaves(kept))))


def _one_by_one(function: Callable[[Any], Any], draws: Any, number: int) -> Any:
    """Apply a function to each of so many draws: of all beside each other it takes several times what they are."""
    draws, found = jax.tree.map(np.asarray, draws), None
    for i in range(number):
        one = jax.tree.map(np.asarray, function(jax.tree.map(lambda every, i=i: every[i : i + 1], draws)))
        if found is None:
            found = jax.tree.map(lambda each: np.empty((number, *each.shape[1:]), each.dtype), one)
        for every, each in zip(jax.tree.leaves(found), jax.tree.leaves(one), strict=True):
            every[i] = each[0]
    return found


class ChainStates(NamedTuple):
    """States of chains.

    Attributes:
        state: the kernel's, of every chain.
        warmed: iterations of warm-up done.
        drawn: draws made.
    """

    state: tuple[Any, ...]
    warmed: int
    drawn: int


def most_steps(kernel: MCMCKernel) -> int | None:
    """Leapfrog steps of a kernel's longest trajectory after warm-up; None for one that has no such limit."""
    if isinstance(kernel, FlatNUTS):
        return int(2**kernel.depth) - 1
    if not isinstance(kernel, NUTS):
        return None
    return int(2 ** _numpyro.tree_depth(kernel)) - 1


@lru_cache(maxsize=32)
def program(kernel: MCMCKernel, warmup: int, thin: int = 1) -> Program:
    """Compile a kernel's loop. The same kernel object gives the same program, which is traced once per shape.

    Args:
        kernel: any that implements NumPyro's ``MCMCKernel``; its model's arguments are traced.
        warmup: iterations of adaptation.
        thin: iterations per draw.
    """

    weighs = isinstance(kernel, NUTS | FlatNUTS)

    def first(key: Any, params: Any, args: Any) -> Any:
        if isinstance(kernel, FlatNUTS):
            return _numpyro.raised(kernel.first(key, warmup, params, args))
        state = kernel.init(key, warmup, params, args, {})
        # compiled here too, the gradient would take as long as in the loop
        return _numpyro.raised(_numpyro.without_gradient(state)) if weighs else state

    def fill(state: Any, args: Any, steps: Any) -> Any:
        # the number of steps is traced: a last, shorter chunk does not compile again
        def body(i: Any, carry: Any) -> Any:
            state, found = carry
            step = lambda _, state: kernel.sample(state, args, {})
            state = step(i, state) if thin == 1 else jax.lax.fori_loop(0, thin, step, state)
            lay = lambda every, one: jax.lax.dynamic_update_index_in_dim(every, one, i, 0)
            return state, jax.tree.map(lay, found, kept(state))

        most = num_draws(kept(state))
        room = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), kept(state))
        return jax.lax.fori_loop(0, steps, body, (state, room))

    def kept(state: Any) -> Any:
        statistics = {k: getattr(state, v) for k, v in _numpyro.STATISTICS.items() if hasattr(state, v)}
        return getattr(state, kernel.sample_field), statistics

    def constrain(draws: Any, args: Any) -> Any:
        return jax.vmap(kernel.postprocess_fn(args, {}))(draws)

    # what takes long is LAPACK's: more than this level makes the loop no faster, and compiling it a quarter longer; to
    # optimise the others at all would take longer than they run
    low, lowest = ({"xla_backend_optimization_level": level} for level in (1, 0))
    return Program(
        first if isinstance(kernel, FlatNUTS) else jax.jit(first, compiler_options=lowest),
        jax.jit(fill, compiler_options=low),
        jax.jit(constrain, compiler_options=lowest),
        kept,
        weighs,
    )


def each(function: Callable[..., Any], every: Sequence[Any]) -> list[Any]:
    """Apply a function to each of several things, in threads: XLA leaves the interpreter's lock while it computes."""
    double = jax.config.jax_enable_x64  # a thread starts with the process's

    def one(item: Any) -> Any:
        with jax.enable_x64(double):
            return jax.block_until_ready(function(item))

    if len(every) == 1:
        return [one(every[0])]
    with ThreadPoolExecutor(min(len(every), os.cpu_count() or 1)) as pool:
        return list(pool.map(one, every))


def init(
    compiled: Program, args: Any, *, chains: int, seed: int, start: Mapping[str, Any] | None = None
) -> ChainStates:
    """The first state of several chains.

    Args:
        compiled: the program.
        args: model arguments.
        chains: number of chains.
        seed: of the chains.
        start: unconstrained values of the model's sites; chains start round them, a tenth apart. Default: the kernel's own.
    """
    check_not_forked()
    params: Sequence[Any] = [None] * chains
    if start is not None:
        rng = np.random.default_rng(seed)
        near = {k: np.asarray(v + 0.1 * rng.standard_normal((chains, *np.shape(v)))) for k, v in start.items()}
        params = [{k: v[i] for k, v in near.items()} for i in range(chains)]
    every = keys(seed, chains)
    # starting values stay where they are: on their way to a device JAX sorts the sites of a model by their names, and the
    # same random numbers would move others
    one = lambda i: compiled.init(every[i], params[i], for_chain(i, args))
    first = one(0)  # compiles, once for all threads
    others = each(one, range(1, chains)) if chains > 1 else []
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
    """Go on from where chains are until ``warmup`` iterations and ``draws`` draws are done.

    Yields after every chunk where the chains are then, with its draws and statistics, (chain, draw, ...); both are None
    during warm-up. ``warmup`` iterations are rounded up to whole draws. ``status`` is what the progress bar says besides,
    ``keep`` what is kept of every chain's draws.
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
            # of draws that nobody sees only where they end
            go_on = compiled.loop if warming else partial(compiled.advance, keep=keep)
            ran = each(lambda own, go_on=go_on, steps=steps: go_on(own[0], own[1], steps), work)
            state, of_chains = tuple(now for now, _ in ran), [found for _, found in ran]
            del work, ran
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
                stack = lambda *chunks, kept=steps: np.stack([np.asarray(chunk)[:kept] for chunk in chunks])
                samples, statistics = jax.tree.map(stack, *of_chains)
                if "lp" in statistics:
                    statistics["lp"] = -statistics["lp"]
                if longest is not None:
                    statistics["reached_max_treedepth"] = statistics["n_steps"] >= longest
                of_chains.clear()  # before the next ones are there
                yield reached, samples, statistics
                del samples, statistics


def join(parts: list[Draws], *, last: bool = False) -> Draws:
    """Chunks of draws, one after another; the last time, after which nobody needs them, each is let go of in turn."""
    if not last or not parts:
        return {k: np.concatenate([part[k] for part in parts], axis=1) for k in parts[0]} if parts else {}
    joined: Draws = {}
    for name in list(parts[0]):
        every, at = [part.pop(name) for part in parts], 0
        shape = list(every[0].shape)
        shape[1] = sum(chunk.shape[1] for chunk in every)
        joined[name] = np.empty(shape, np.result_type(*every))
        every.reverse()
        while every:
            chunk = every.pop()
            joined[name][:, at : at + chunk.shape[1]] = chunk
            at += chunk.shape[1]
    return joined
