"""Ask the accountant for deltas whose truth is known by another way, from one round to a million, and look for one below it.

The truth comes from closed forms in hundreds of bits, from binomial sums, and from tests that an adversary can make: whatever
they find of a release, its delta must not be below.
"""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, ctx
from scipy.special import expit, gammaln

from attacks import Case
from mpmtl_prob.privacy import compute_delta, compute_epsilon
from mpmtl_prob.privacy import mechanisms as laws
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.mechanisms import exact

BITS = 512

GAUSSIAN = "Gaussian rounds beside one of another law, up to a million, against the closed form"
SUMS = "equal rounds of Wishart noise, up to 100,000, against an adversary who adds up what each round shows"
PURE = "rounds of pure privacy, equal or of two sizes, up to a million, against binomial sums"
PAPERS = "the papers' noise beside another law, against 1 - exp(-sum of eps)"
ONE = "one release, against its closed form in hundreds of bits"
FAINT = "noise that hides nearly all, eps from 1e-9, against its closed form"
CALIBRATED = (
    "calibrations, eps from 1e-6 and delta from 1e-12: the delta of the noise against the one that was asked for"
)
INVERTED = "the eps that is stated at a delta, against the true delta there"
POSITIVE = "deltas that are not 0, however small"
EXTREME = "laws of any size, as files may hold them: a delta in [0, 1] or an error that names the argument"
PRECISION = "FLINT's precision after draws and deltas, in threads and after errors"
WAYS = (GAUSSIAN, SUMS, PURE, PAPERS, ONE, FAINT, CALIBRATED, INVERTED, POSITIVE, EXTREME, PRECISION)


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Every way; the number of cases goes with the effort."""
    many = lambda number: max(1, round(number * effort))
    longest = 1e6 if effort >= 1 else 3e5
    yield from gaussian_rounds(rng, many(60), longest)
    yield from sums_of_rounds(rng, many(100), 1e5)
    yield from pure_rounds(rng, many(150), longest if effort >= 1 else 1e4)
    yield from papers_rounds(rng, many(300))
    yield from one_release(rng, many(20_000))
    yield from faint(rng, many(500))
    yield from calibrated(rng, many(120))
    yield from inverted(rng, many(400))
    yield from positive(rng, many(800))
    yield from extreme(rng, many(500))
    yield from precision_kept(rng, many(200))


# What is true


def in_bits(value: Callable[[], arb]) -> float:
    """A real number that is computed in hundreds of bits, as the double nearest to it."""
    before, bits = ctx.prec, BITS
    try:
        while True:
            ctx.prec = bits
            number = value()
            if number.rel_accuracy_bits() > 60 or number < 1e-280 or bits > 8 * BITS:
                return float(number.mid())
            bits *= 2
    finally:
        ctx.prec = before


def true_gaussian(eps: float, mu_squared: Callable[[], arb]) -> float:
    def value() -> arb:
        mu = mu_squared().sqrt()
        below = lambda z: (-z / arb(2).sqrt()).erfc() / 2
        return below(mu / 2 - arb(eps) / mu) - arb(eps).exp() * below(-mu / 2 - arb(eps) / mu)

    return in_bits(value)


def true_gamma(eps: float, shape: Callable[[], arb], theta: Callable[[], arb]) -> float:
    """The larger of the two directions of Gamma(k, theta) noise on a number in [0, 1], k > 1."""

    def add() -> arb:
        k, loss = shape(), 1 / theta()
        x = 1 / ((arb(eps) + loss) / (k - 1)).expm1()
        above = lambda y: (y * loss).gamma_upper(k, True)
        return (1 - above(x + 1)) - arb(eps).exp() * (1 - above(x))

    def remove() -> arb:
        k, loss = shape(), 1 / theta()
        if not loss > arb(eps):
            return arb(0)
        x = 1 / ((loss - arb(eps)) / (k - 1)).expm1()
        above = lambda y: (y * loss).gamma_upper(k, True)
        return above(x) - arb(eps).exp() * above(x + 1)

    return max(in_bits(add), in_bits(remove))


def of_wishart(law: Any) -> tuple[Callable[[], arb], Callable[[], arb]]:
    """k and theta of a law, from the numbers that it is made of."""
    return (
        lambda: (arb(law.df) - law.num_features + 1) / 2,
        lambda: 2 * arb(law.scale) / (arb(law.clip) * arb(law.clip)),
    )


def true_pure(eps: float, each: float, rounds: int) -> float:
    """delta of randomised responses: a sum over how many are right."""
    right = np.arange(rounds + 1)
    log_mass = gammaln(rounds + 1) - gammaln(right + 1) - gammaln(rounds - right + 1)
    log_mass += right * -np.log1p(np.exp(-each)) + (rounds - right) * -np.log1p(np.exp(each))
    loss = (2.0 * right - rounds) * each
    return math.fsum(np.exp(log_mass) * -np.expm1(np.minimum(eps - loss, 0.0)))


def fits(way: str, said: float, true: float, what: str, slack: float = 1e-14) -> Case:
    """Held if what is said is not below the truth, of which the truth's own error is taken off."""
    held = 0 <= said <= 1 and said >= true * (1 - slack)
    return Case(way, held, f"{what}: {said:.17g} said, {true:.17g} true")


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Two gigabytes more than there are in use, where that can be said: an attack must not end the process."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# The ways


def gaussian_rounds(rng: np.random.Generator, number: int, longest: float) -> Iterator[Case]:
    """delta is at least that of the Gaussian rounds alone; another law takes the closed form away from the accountant."""
    other = laws.Wishart(2, 193.0, 1e9)
    for i in range(number):
        rounds = (int(longest), 300_000)[i] if i < 2 else int(log_uniform(rng, 1, longest))
        together = 1.0 if i < 2 else log_uniform(rng, 0.05, 3.0)
        law = laws.Gaussian(2, math.sqrt(rounds) / (math.sqrt(2) * together))
        mu_squared = lambda law=law, rounds=rounds: rounds / (2 * arb(law.sd) * arb(law.sd))
        for deviations in (0.0, 3.0, 6.0, 6.3, 6.6, 6.9, 9.0):
            eps = together * (deviations + together / 2)
            said = compute_delta(eps, (law,) * rounds + (other,), "zero_out")
            yield fits(GAUSSIAN, said, true_gaussian(eps, mu_squared), f"{rounds} of {law} at eps = {eps:g}")


def sums_of_rounds(rng: np.random.Generator, number: int, longest: float) -> Iterator[Case]:
    """The sum of what T rounds show is Gamma(T k) noise on a number in [0, T]."""
    for i in range(number):
        rounds = int(longest) if i == 0 else int(log_uniform(rng, 2, longest))
        shape, together = log_uniform(rng, 3.0, 3000.0), log_uniform(rng, 0.1, 2.0)
        law = laws.Wishart(2, 1 + 2 * shape, math.sqrt(rounds / shape) / together / 2)
        k, theta = of_wishart(law)
        for deviations in (1.0, 4.0, 6.5):
            eps = together * (deviations + together / 2)
            true = true_gamma(eps, lambda k=k, T=rounds: T * k(), lambda theta=theta, T=rounds: theta() / T)
            for adjacency in ("zero_out", "replace"):
                said = compute_delta(eps, (law,) * rounds, adjacency)
                yield fits(SUMS, said, true, f"{rounds} of {law}, {adjacency}, at eps = {eps:g}")


def pure_rounds(rng: np.random.Generator, number: int, longest: float) -> Iterator[Case]:
    """Yield rounds of pure laws beside exact sums: of equal rounds, and of rounds of two sizes."""
    for i in range(number):
        rounds = int(longest) if i == 0 else int(log_uniform(rng, 1, longest))
        each = log_uniform(rng, 0.02, 2.0) / math.sqrt(rounds)
        kind = laws.Quantile(each) if i % 2 else laws.IndependentLaplace(1, each, 1.0)
        few, other = int(rng.integers(1, 6)), each * float(rng.uniform(0.3, 3.0))
        for deviations in (0.0, 2.0, 5.0, 7.0):
            eps = each * (deviations * math.sqrt(rounds) + rounds * each / 2)
            said, true = compute_delta(eps, (kind,) * rounds), true_pure(eps, each, rounds)
            yield fits(PURE, said, true, f"{rounds} of {kind} at eps = {eps:g}", 1e-8)
            said = compute_delta(eps, (kind,) * rounds + (laws.Quantile(other),) * few)
            true = math.fsum(
                math.comb(few, j) * expit(other) ** j * expit(-other) ** (few - j)
                * max(true_pure(eps - (2 * j - few) * other, each, rounds), 0.0)
                for j in range(few + 1)
            )  # fmt: skip
            yield fits(PURE, said, true, f"{rounds} of {kind} and {few} of {other:g} at eps = {eps:g}", 1e-8)


def papers_rounds(rng: np.random.Generator, number: int) -> Iterator[Case]:
    """Their delta is the same at every eps."""
    for _ in range(number):
        budgets = [log_uniform(rng, 1e-8, 1.0) for _ in range(int(rng.integers(1, 6)))]
        rounds = tuple(laws.PaperWishart(3, budget) for budget in budgets)
        total = lambda rounds=rounds: sum((1 / of_wishart(law)[1]() for law in rounds), arb(0))
        true = in_bits(lambda total=total: 1 - (-total()).exp())
        other = (laws.Wishart(3, 100.0, 1e9),) if rng.random() < 0.5 else ()
        for adjacency in ("zero_out", "replace"):
            eps = float(rng.uniform(0, 4))
            yield fits(PAPERS, compute_delta(eps, rounds + other, adjacency), true, f"{budgets}, {other}, {adjacency}")


def one_release(rng: np.random.Generator, number: int) -> Iterator[Case]:
    for i in range(number):
        eps = float(rng.choice([0.0, log_uniform(rng, 1e-9, 20.0), log_uniform(rng, 0.01, 5.0)]))
        if i % 2:
            law: Any = laws.Gaussian(3, log_uniform(rng, 0.02, 1e6), log_uniform(rng, 0.1, 10.0))
            true = true_gaussian(eps, lambda law=law: arb(law.clip) ** 4 / (2 * arb(law.sd) ** 2))
        else:
            law = laws.Wishart(
                3, 2 + 2 * log_uniform(rng, 1.01, 5000.0), log_uniform(rng, 0.01, 1e4), log_uniform(rng, 0.1, 10.0)
            )
            true = true_gamma(eps, *of_wishart(law))
        yield fits(ONE, compute_delta(eps, law, "zero_out"), true, f"{law} at eps = {eps!r}")


def faint(rng: np.random.Generator, number: int) -> Iterator[Case]:
    """Losses smaller than what differences of probabilities are wrong by; a replacement gives away what a zeroing does."""
    for i in range(number):
        mu, shape = log_uniform(rng, 1e-9, 1e-3), log_uniform(rng, 20.0, 3000.0)
        law = laws.Wishart(3, 2 + 2 * shape, 1 / (mu * math.sqrt(shape)) / 2)
        eps = mu * float(rng.uniform(0, 5))
        true = true_gamma(eps, *of_wishart(law))
        other = laws.Gaussian(3, 1e4 / mu) if i % 2 else laws.Wishart(3, 200.0, 1e4 / mu)
        yield fits(FAINT, compute_delta(eps, (law, other), "zero_out"), true, f"{law} and {other} at eps = {eps!r}")
        yield fits(FAINT, compute_delta(eps, law, "replace"), true, f"{law} replaced at eps = {eps!r}")


def calibrated(rng: np.random.Generator, number: int) -> Iterator[Case]:
    """A task is zeroed: the truth is a closed form."""
    for i in range(number):
        eps, asked = (1e-6, 1e-9) if i == 0 else (log_uniform(rng, 1e-6, 8.0), log_uniform(rng, 1e-12, 0.1))
        law = calibrate(eps, asked, 4, adjacency="zero_out")
        true = true_gamma(eps, *of_wishart(law))
        yield Case(CALIBRATED, true <= asked, f"calibrate({eps!r}, {asked!r}): {true:.17g} true")
        rounds = int(rng.integers(1, 40))
        gaussian = calibrate_gaussian(eps, asked, 4, rounds, adjacency="zero_out")
        true = true_gaussian(eps, lambda law=gaussian, T=rounds: T / (2 * arb(law.sd) ** 2))
        yield Case(
            CALIBRATED, true <= asked, f"calibrate_gaussian({eps!r}, {asked!r}, rounds={rounds}): {true:.17g} true"
        )


def inverted(rng: np.random.Generator, number: int) -> Iterator[Case]:
    for _ in range(number):
        law = laws.Wishart(3, 2 + 2 * log_uniform(rng, 1.5, 3000.0), log_uniform(rng, 0.02, 1e3))
        asked = log_uniform(rng, 1e-12, 0.1)
        stated = compute_epsilon(asked, law, "zero_out")
        true = true_gamma(stated, *of_wishart(law)) if math.isfinite(stated) else 0.0
        yield Case(INVERTED, true <= asked, f"epsilon({asked!r}, {law}) = {stated!r}: {true:.17g} true")


def positive(rng: np.random.Generator, number: int) -> Iterator[Case]:
    """Below the largest loss there is, some delta is true."""
    for i in range(number):
        rounds = int(log_uniform(rng, 1, 2e4))
        if i % 4 == 0:  # ten rounds of .1 are a little more than 1, as doubles are
            each = 1 / rounds
            eps, what = rounds * each, "just below the sum of budgets"
            while Fraction(eps) >= rounds * Fraction(each):
                eps = math.nextafter(eps, 0.0)
            mechanisms: Sequence[Any] = (laws.Quantile(each),) * rounds
        elif i % 4 == 1:
            each = log_uniform(rng, 0.01, 1.0)
            eps, what = rounds * each * float(rng.uniform(0.5, 0.999)), "below the sum of budgets"
            mechanisms = (laws.Quantile(each),) * rounds + (laws.Quantile(each / 2),)
        elif i % 4 == 2:
            mechanisms, what = (laws.Gaussian(3, float(rng.uniform(0.1, 3.0))),), "far out"
            eps = float(rng.uniform(5, 600))
        else:
            law = laws.Wishart(3, 2 + 2 * log_uniform(rng, 2.0, 500.0), 0.05)
            mechanisms = (law,) * min(rounds, 2000)
            eps = float(rng.uniform(1, 40))
            what = "beside a share that is infinite"
        said = compute_delta(eps, mechanisms, "zero_out")
        yield Case(POSITIVE, said > 0, f"{len(mechanisms)} of {mechanisms[0]} at {eps!r}, {what}: {said!r} said")


def extreme(rng: np.random.Generator, number: int) -> Iterator[Case]:
    """Sizes from one end of doubles to the other, in one law or two."""
    makers: list[Callable[[float, float], Any]] = [
        lambda size, clip: laws.Wishart(2, 5.0, size, clip),
        lambda size, clip: laws.Wishart(2, 3.0, size, clip),
        lambda size, clip: laws.Wishart(2, 3.0000001, size, clip),
        lambda size, clip: laws.Wishart(2, 2e5, size, clip),
        lambda size, clip: laws.Gaussian(2, size, clip),
        lambda size, clip: laws.VectorGaussian(2, size, clip),
        lambda size, clip: laws.GaussianShares(2, size, 3, size / 1e4, 0, clip),
        lambda size, clip: laws.Quantile(size),
        lambda size, clip: laws.VectorLaplace(3, size, clip),
        lambda size, clip: laws.VectorLaplace(1, size, clip),
        lambda size, clip: laws.IndependentLaplace(3, size, clip),
    ]
    for _ in range(number):
        size = log_uniform(rng, 1e-300, 1e300) if rng.random() < 0.5 else log_uniform(rng, 1e-9, 1e9)
        clip = float(rng.choice([1.0, 1e-100, 1e100, log_uniform(rng, 1e-3, 1e3)]))
        make, what = makers[int(rng.integers(len(makers)))], ""
        with warnings.catch_warnings(), little_memory():
            warnings.simplefilter("error")
            try:
                law = make(size, clip)
            except ValueError:  # no such law, so no file that holds it
                continue
            rounds = (law,) * int(rng.choice([1, 2, 30])) + ((laws.Gaussian(2, 1.0),) if rng.random() < 0.3 else ())
            try:
                said = compute_delta(1.0, rounds, str(rng.choice(["zero_out", "replace"])))
                held, what = 0 <= said <= 1, f"{said!r} said"
            except ValueError as error:
                held, what = str(error).startswith("mechanisms: expected"), f"ValueError: {error}"
            except (ArithmeticError, IndexError, MemoryError, TypeError, Warning) as error:
                held, what = False, f"{type(error).__name__}: {error}"
        yield Case(EXTREME, held, f"{len(rounds)} of {law}: {what}")


def precision_kept(rng: np.random.Generator, number: int) -> Iterator[Case]:
    law, before = laws.Wishart(2, 9.0, 1.0), ctx.prec

    def failing(number: int, first: int, last: int) -> bytes:
        raise KeyboardInterrupt

    def overlapping() -> None:
        """The first of two draws ends after the second has begun, and before it ends."""
        second_began, first_ended = threading.Event(), threading.Event()

        def slow(other: threading.Event, mine: threading.Event) -> exact.Source:
            def source(number: int, first: int, last: int) -> bytes:
                mine.set()
                other.wait(0.02)
                return exact.seeded(int(number), 1)(number, first, last)

            return source

        def second() -> None:
            law.draw(2.0**-26, slow(first_ended, second_began))

        thread = threading.Thread(target=second)

        def first_source(number: int, first: int, last: int) -> bytes:
            if not thread.is_alive() and not second_began.is_set():
                thread.start()
            second_began.wait(0.05)
            return exact.seeded(2)(number, first, last)

        law.draw(2.0**-26, first_source)
        first_ended.set()
        thread.join()

    def interrupted() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            law.draw(2.0**-26, failing)

    tries = {
        "two threads": overlapping,
        "an interrupt": interrupted,
        "a delta": lambda: compute_delta(1.0, law, "zero_out"),
    }
    for i in range(max(number, len(tries))):
        name = list(tries)[i % len(tries)]
        ctx.prec = chosen = int(rng.integers(20, 400))
        tries[name]()
        yield Case(PRECISION, ctx.prec == chosen, f"after {name}: {ctx.prec} bits, {chosen} before")
    ctx.prec = before
