"""The section of the benchmarks about mixed models by other tools, which pool, and by one release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pooled_mixed_models import ARMS, OURS
from tables import Report, as_table

REFERENCE = "alone"  #: least squares in every hospital: no mixed model, and not compared in time
ERROR = "coefficients, error"


def pooled(report: Report) -> Iterable[str]:
    """A table for every size, and in words who is faster and who is nearer to the truth."""
    fits = report["fits"]
    absent = [arm for arm in ARMS if not any(each["arm"] == arm for each in fits)]
    yield (
        "The same mixed model, random intercept and slopes, by tools that pool all rows, and by one release: hospitals of "
        f"{report['patients']} patients, {report['columns']} columns with the intercept, coefficients N(mu, Omega) with "
        "correlations, residual variance one. **The other tools see all rows in one place and are not private. Ours are: a "
        "release protects a whole hospital at (eps, delta), delta = 1 / (m log m), nobody sees another hospital's rows, and "
        "the noise moves it away from the truth.** *alone* is least squares in every hospital by itself: no mixed model, and "
        "a hospital's own coefficients need no other's rows; its average effects are their mean, which is not private."
    )
    yield (
        "Every fit is a new process, from a CSV file to a CSV file of all hospitals' coefficients and the average effects; "
        "imports and compilation count, and no compilation cache is kept. Ours are the release, the public posterior and all "
        "hospitals' own fits in one process; in a study these are spread over the hospitals. The public posterior is that of "
        '`sampler="weighted"`, the default of the shell: its row says whether weighted points did, or short chains. '
        "lme4's uncorrelated model, ours, and statsmodels with 12 and 30 hospitals were measured with no other work on the "
        "machine; the other rows before, on the same processor, which then had other work. That makes their CPU seconds "
        "larger than they would be. **CPU seconds are what is compared**, of a process with those it started; those of the "
        "clock are beside them. "
        "A fit was stopped at a limit of CPU time, and not run again, neither with another seed nor at a larger size; "
        "its row says how many CPU seconds it had by then. Memory is the largest resident set. Errors are root mean squares "
        "over hospitals and coefficients, and over the average effects; *cover* is of 90 % intervals, and for eleven average "
        "effects says little."
    )
    yield (
        "lme4 and statsmodels run with their own settings, except that statsmodels starts from the spread of hospitals' own "
        "least squares: from its own start it said to have converged far from the maximum. Their intervals of a coefficient "
        "are normal, its conditional variance and that of the average effect added as if independent, with Omega taken for "
        "known; *-* where a tool gives none. PyMC, bambi and NumPyro took 4 chains of 500 draws after 500, half of what PyMC "
        "takes unless told. bambi has no correlations between effects. Ours is told the scale of the target and that columns "
        "are standardised, which a study declares."
    )
    for m in dict.fromkeys(each["m"] for each in fits):
        of_size = [each for each in fits if each["m"] == m]
        seeds = len(shared_seeds(of_size))
        yield f"{m} hospitals, {seeds} {'study' if seeds == 1 else 'studies'}:"
        yield as_table(
            ("tool", "Omega", "private", "CPU s", "s", "MiB", "error", "cover", "error of averages", "cover", ""),
            [_row(arm, m, fits) for arm in ARMS if arm not in absent],
        )
        yield from _verdict(m, of_size)
    said: dict[str, str] = {}
    for each in fits:
        said |= each.get("said", {}).get("versions", {})
    yield (
        f"Processor: {report['processor']}. {', '.join(f'{name} {version}' for name, version in said.items())}. "
        + (f"Not measured: {'; '.join(absent)}. " if absent else "")
        + "DLMM of the R package pda is left out: only CRAN has it. The script's `--help` says how to install the others."
    )


def shared_seeds(fits: Sequence[Report]) -> list[int]:
    """Studies of one size that every tool has finished, of those that have finished any: rows of a table are of the same."""
    of = {
        arm: {each["seed"] for each in fits if each["arm"] == arm and "coefficients" in each}
        for arm in {each["arm"] for each in fits}
    }
    return sorted(set.intersection(*(seeds for seeds in of.values() if seeds))) if any(of.values()) else []


def means(fits: Sequence[Report]) -> dict[str, dict[str, float]]:
    """Of every arm that finished, over the studies that all have: CPU seconds, and errors. Fits are of one size."""
    every: dict[str, dict[str, list[Any]]] = {}
    seeds = shared_seeds(fits)
    for each in fits:
        if "coefficients" in each and each["seed"] in seeds:
            numbers = {name: each[name] for name in ("seconds", "CPU seconds", "memory")}
            for what in ("coefficients", "averages"):
                numbers |= {f"{what}, {name}": value for name, value in each[what].items()}
            for name, value in numbers.items():
                every.setdefault(each["arm"], {}).setdefault(name, []).append(value)
    return {
        arm: {name: sum(values) / len(values) for name, values in of.items() if None not in values}
        for arm, of in every.items()
    }


def _row(arm: str, m: int, fits: Sequence[Report]) -> tuple[str, ...]:
    own = [each for each in fits if each["arm"] == arm]
    here, of_size = ([each for each in some if each["m"] == m] for some in (own, fits))
    omega = "-" if arm == REFERENCE else "uncorrelated" if arm.endswith("uncorrelated") else "full"
    head = (arm.removesuffix(", uncorrelated"), omega, "yes" if arm in (*OURS, REFERENCE) else "**no**")
    if (mean := means(of_size).get(arm)) is not None:
        return (
            *head,
            f"{mean['CPU seconds']:.1f}",
            f"{mean['seconds']:.1f}",
            f"{mean['memory'] / 2**20:.0f}",
            f"{mean['coefficients, error']:.3f}",
            _share(mean.get("coefficients, covered")),
            f"{mean['averages, error']:.3f}",
            _share(mean.get("averages, covered")),
            _remark([each["said"] for each in here if each["seed"] in shared_seeds(of_size)]),
        )
    smaller = [each for each in own if "over" in each and each["m"] < m]
    if over := [each for each in here if "over" in each]:
        cells = (
            f"more than {over[0]['CPU seconds']:.0f}",
            f"{over[0]['seconds']:.0f}",
            f"{over[0]['memory'] / 2**20:.0f}",
        )
        return (*head, *cells, *"----", "stopped")
    if smaller:
        return (
            *head,
            "not run",
            *"------",
            f"more than {smaller[0]['CPU seconds']:.0f} CPU s with {smaller[0]['m']} hospitals",
        )
    return (*head, "failed", *"------", here[0]["failed"]) if here else (*head, "not run", *"------", "")


def _share(covered: float | None) -> str:
    return "-" if covered is None else f"{covered:.0%}"


def _remark(said: Sequence[Report]) -> str:
    words = []
    if poor := [each for each in said if not each["converged"]]:
        words.append(f"its own diagnosis warns in {len(poor)} of {len(said)}")
    if any(each.get("singular") for each in said):
        words.append("singular fit")
    words += sorted({each["sampler"] for each in said if "sampler" in each})
    if rhats := [each["r-hat"] for each in said if "r-hat" in each]:
        words.append(f"r-hat {max(rhats):.2f}")
    return ", ".join(words)


def _verdict(m: int, fits: Sequence[Report]) -> Iterable[str]:
    """Who is faster than ours, and who is nearer to the truth, worked out from the numbers."""
    result, stopped = means(fits), {each["arm"]: each["CPU seconds"] for each in fits if "over" in each}
    for arm in OURS:
        if arm not in result:
            continue
        mean = result[arm]
        others = {name: each for name, each in result.items() if name not in (*OURS, REFERENCE)}
        faster = [name for name, each in others.items() if each["CPU seconds"] < mean["CPU seconds"]]
        unknown = [name for name, limit in stopped.items() if name not in result and limit < mean["CPU seconds"]]
        words = f"{arm[0].upper()}{arm[1:]}: " + (
            f"faster are {_listed(faster)}" if faster else "no tool that was measured is faster"
        )
        if unknown:
            words += f"; {_listed(unknown)} may be, as they were stopped before"
        if others:
            of, about, memory = (_range(mean, others.values(), what) for what in (ERROR, "averages, error", "memory"))
            words += (
                f". Its error of coefficients is {of} times theirs, that of average effects {about} times, "
                f"its memory {memory} times"
            )
        if REFERENCE in result:
            words += f"; beside *alone* its error of coefficients is {_range(mean, [result[REFERENCE]], ERROR)} times"
        yield words + "."


def _range(mean: Report, others: Iterable[Report], what: str) -> str:
    """Least and greatest ratio of a number to those of others."""
    ratios = [f"{mean[what] / each[what]:.2f}" for each in others]
    least, most = min(ratios, key=float), max(ratios, key=float)
    return least if least == most else f"{least} to {most}"


def _listed(names: Sequence[str]) -> str:
    return "; ".join(name.replace(", ", " (", 1) + ")" if ", " in name else name for name in names)
