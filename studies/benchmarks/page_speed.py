"""Sections of the benchmarks page about time and memory."""

from __future__ import annotations

from collections.abc import Iterable

from scaling import BOUND, NAMES
from tables import Report, as_ratio, as_table


def speed(report: Report) -> Iterable[str]:
    yield (
        "CPU time, in units of 20 000 eigendecompositions of a 28 x 28 matrix in the same process (NumPy, one thread). "
        "*import*: what makes a release, and what reads one. *installation*: `make` in a new clone, with an empty pip cache. "
        "*demonstration*: `mpmtl-prob demo` on the synthetic low-rank data. *compilation*: of the public posterior, in a "
        "process without a cache. *400 effective draws*: of the worst of log phi and the three largest shares of A's "
        "eigenvalues, 4 chains of 300 draws after a warm-up of 300 iterations (before) or 140 (now), mean of three seeds. "
        "School and LSOA II use the structure *full*, the others the synthetic low-rank data (30 features); eps = 1."
        + (
            f" *Before* is commit {report['before']}, in turns with today's in every row's run."
            if report["before"]
            else ""
        )
    )
    rows = []
    for name, cell in report["cells"].items():
        if "r-hat" in name:
            continue
        for what in ("CPU seconds", "400 effective draws"):
            if what in cell["now"]:
                now, then = (cell[w][what] / cell[w]["unit"] if w in cell else None for w in ("now", "before"))
                steps = [
                    f"{cell[w]['leapfrog steps a draw']:.0f}" for w in ("before", "now") if w in cell and what[0] == "4"
                ]
                ratio = None if then is None else then / now
                rows.append((name, what, as_ratio(then), as_ratio(now), as_ratio(ratio), " to ".join(steps) or "-"))
    yield as_table(("", "", "before", "now", "before / now", "leapfrog steps"), rows)
    if ratios := {of: _low_rank_over_full(report, of) for of in _data_seeds(report)}:
        here = ratios.pop("", None)
        where_chosen = (
            "" if here is None else f"{as_ratio(here)} on the data where its acceptance rate was chosen, and "
        )
        yield (
            "Cost of *low_rank* over that of *full*, for as many effective draws on the same release: "
            f"{where_chosen}{', '.join(map(as_ratio, ratios.values()))} on data that played no part in its settings."
        )
    for name in ("installation", "demonstration"):
        if (cell := report["cells"].get(name)) is not None:
            took = " and ".join(f"{each['seconds of the clock']:.0f} s {when}" for when, each in cell.items())
            yield f"By the clock the {name} took {took}, a unit {cell['now']['unit']:.2f} CPU seconds."
    if (wide := report["cells"].get("LSOA II")) is not None:
        runs = [f"{wide[when]['a run']:.0f} CPU seconds {when} (r-hat {wide[when]['r-hat']:.3f})" for when in wide]
        yield f"A run on LSOA II, with 293 features, one seed: {', '.join(runs)}."
    if (enough := report["cells"].get("LSOA II, to r-hat 1.02")) is not None:
        now = enough["now"]
        yield (
            f"The same with `until=Until(rhat=1.02)`, the mean of three seeds: {now['a run']:.0f} CPU seconds for "
            f"{now['ESS']:.0f} effective draws. The coordinates of its chains were worked out on this data set."
        )


def _data_seeds(report: Report) -> list[str]:
    """Endings of the names of cells of structure "low_rank" whose data have a cell of "full" too."""
    endings = [name.removeprefix("low_rank") for name in report["cells"] if name.startswith("low_rank")]
    return [ending for ending in endings if "compilation" not in ending and f"full{ending}" in report["cells"]]


def _low_rank_over_full(report: Report, ending: str) -> float:
    """Units of 400 effective draws of "low_rank" over those of "full", on the same release."""
    of_both = (report["cells"][f"{structure}{ending}"]["now"] for structure in ("low_rank", "full"))
    low_rank, full = (cell["400 effective draws"] / cell["unit"] for cell in of_both)
    return float(low_rank / full)


def peers(report: Report) -> Iterable[str]:
    yield (
        "School, 30 % of the rows. CPU seconds of the other code over those of ours, both to an objective within "
        f"{report['accuracy']:.0e} of the best known. *Cold* is the first call of a process, compilation included; *warm* is "
        "a median, in turns. The logistic gradient is a sum of our own: of 41 targets of 1000 made-up subjects with "
        "293 features, by one table of features for all of them."
    )
    rows = []
    for problem, of_problem in report["problems"].items():
        ratios = of_problem["ratios"] or {}
        rows.append((problem, of_problem["peer"], *(as_ratio(ratios.get(k)) for k in ("cold", "warm"))))
        if stacked := of_problem.get("stacked products in NumPy"):
            rows.append((problem, "stacked products in NumPy", "-", as_ratio(stacked)))
    yield as_table(("problem", "beside", "cold", "warm"), rows)
    yield "What bounds a warm call of ours, as shares of its time:"
    yield "\n".join(
        f"- {problem}: " + "; ".join(f"{part} {share:.0%}" for part, share in of_problem["bound"].items()) + "."
        for problem, of_problem in report["problems"].items()
    )


def samplers(report: Report) -> Iterable[str]:
    yield (
        f"The curator's low-rank posterior on School ({report['schools']} schools): smallest effective sample size a second "
        "of the default (NUTS, proximal gradients, local coordinates) over that of another sampler. Where few of the "
        "draws are effective, that number itself is rough, and the ratio says no more than its order."
    )
    yield as_table(
        ("sampler", "draws", "smallest ESS", "default over it"),
        (
            (name, f"{arm['draws']}", f"{arm['smallest ESS']:.3g}", as_ratio(report["ratios"].get(name)))
            for name, arm in report["arms"].items()
        ),
    )
    if not any("CUQIpy" in name for name in report["ratios"]):
        yield (
            "CUQIpy needs an environment of its own: `python studies/benchmarks/samplers.py --cuqi PYTHON`, "
            "with the Python of one, adds its MYULA."
        )


def public(report: Report) -> Iterable[str]:
    yield (
        "One release of School at eps = 1, NUTS twice on the same posterior: smallest effective sample size, over the three "
        "largest shares of A's spectrum and log phi, a CPU second of sampling. Where r-hat is far from 1 the chains have not "
        "converged and have no effective sample size: the ratio is then a lower bound."
    )
    rows = []
    for name, arm in report["arms"].items():
        cut = " (out of time)" if arm["cut short"] else ""
        rows.append(
            (
                name, f"{arm['latent numbers']}", f"{arm['draws']}{cut}", f"{arm['leapfrog steps a draw']:.0f}",
                f"{arm['smallest ESS']:.0f}", f"{arm['largest r-hat']:.3f}", as_ratio(report["ratios"].get(name)),
            )
        )  # fmt: skip
    head = (
        "arm",
        "latent numbers",
        "draws a chain",
        "leapfrog steps",
        "smallest ESS",
        "largest r-hat",
        "library over it",
    )
    yield as_table(head, rows)
    owners = report["owners"]
    yield (
        f"Owners' posteriors, plug-in, {owners['tasks']} tasks x {owners['draws']} draws, warm: {owners['seconds']:.1f} s of "
        "the clock."
    )


def scaling(report: Report) -> Iterable[str]:
    base = ", ".join(f"{name} = {size}" for name, size in report["base"].items())
    yield f"CPU seconds grow as size to the power b, one size at a time, the others at {base}."
    rows = []
    for axis, sweep in report["sweeps"].items():
        sizes = [line["size"] for line in sweep["lines"]]
        peak = [line["peak GB"] for line in sweep["lines"]]
        exponents = (f"{sweep['exponents'][name]:.2f}" for name in ("release", "Algorithm 2"))
        span, memory = (f"{low:{form}} to {high:{form}}" for low, high, form in
                        ((sizes[0], sizes[-1], "d"), (peak[0], peak[-1], ".2f")))  # fmt: skip
        rows.append((f"{axis}, {NAMES[axis]}", span, *exponents, memory, BOUND[axis]))
    yield as_table(("", "sizes", "b of a release", "b of Algorithm 2", "peak GB", "what the cost is made of"), rows)


def streamed(report: Report) -> Iterable[str]:
    sizes = report["sizes"]
    yield (
        f"A release of `TaskShards`: {sizes['n']} rows of {sizes['d']} features a task in parquet files of {sizes['part']} "
        f"tasks, by {sizes['workers']} processes, after start-up ({report['start']:.1f} CPU seconds). CPU seconds grow as "
        f"the number of tasks to the power {report['exponent']:.2f}, where they are more than start-up takes. Seconds by the "
        "clock are those of this machine as it was; memory is that of all processes together, each with its libraries."
    )
    rows = [
        (
            f"{line['size']:,}".replace(",", " "),
            f"{line['GB of files']:.2f}",
            *(
                (f"{line['work']:.0f}", f"{1e3 * line['work'] / line['size']:.2f}")
                if line["work"] > report["start"]
                else ("-", "-")
            ),
            f"{line['seconds']:.0f}",
            f"{line['peak GB']:.2f}",
        )
        for line in report["lines"]
    ]
    yield as_table(("tasks", "GB on disk", "CPU seconds", "CPU ms a task", "seconds", "peak GB"), rows)
    done = {line["size"] for line in report["lines"]}
    asked = report["command"].partition("--m ")[2].partition(" --")[0].split()
    if left := [m for m in asked if int(m) not in done]:
        yield f"Asked for and not finished: m = {', '.join(left)}."
    yield (
        "On a GPU: not run. Messages and owners' posteriors are NumPy in double precision, task by task; chains, and "
        "estimators that JAX solves task by task, use the devices that it sees, with the same numbers on one and on eight "
        "emulated ones (`pytest tests/util/test_devices.py`)."
    )


def memory(report: Report) -> Iterable[str]:
    gib = f"{report['limit'] / 2**30:.0f} GiB"
    yield (
        f"Peak memory of a process, less that of the same call on 200 tasks of {report['rows']} rows, as a multiple of the "
        f"data (8 bytes for each of {report['features']} features and the target of every row). There are m tasks of "
        f"{report['rows']} rows, one of which has 1, 100 or 1000 times as many. Memory includes what a call returns, such as "
        "draws for all tasks; *result* is that part. Libraries vary by a few megabytes from run to run, which is once or "
        "twice the data where m = 1000 (2 to 4 MB)"
        + _allocated(report.get("allocated", {}))
        + ". Compilation is not counted: JAX finds its programs in a folder. In brackets: CPU seconds, on machines that were "
        "not always quiet. A dash: not measured."
        + (f" *Before* is commit {report['before']}." if report["before"] else "")
        + f" A process may take {gib}."
    )
    whens = ("before", "now") if report["before"] else ("now",)
    head = ["", "", *(f"m = {m}, 1 : {longer}" for m, longer in _sizes(report))]
    rows = []
    for name, cell in report["cells"].items():
        for when in whens:
            if when in cell:
                by_size = {(line["m"], line["longer"]): _times(line, gib) for line in cell[when]["lines"]}
                rows.append((name, when, *(by_size.get(size, "-") for size in _sizes(report))))
    yield as_table(head, rows)
    if beyond := _beyond(report):
        d, n = report["features"], report["rows"]
        yield (
            f"More than {report['allowed']:.0f} times the data beside the result, where m = {_most(report)}: {beyond}. They "
            "hold programs and buffers that do not grow with the data, or Gram matrices, which are "
            f"{d**2 / (n * (d + 1)):.0%} of the data where tasks have {n} rows. A binary task's posterior is worked out at "
            "up to 25 signal-to-noise ratios at once, which takes ten times the rows of the task that is worked on, and "
            "shows where it has half of all rows."
        )
    if seconds := _seconds(report):
        tasks = sorted({m for _, ratios in seconds for m in ratios})
        yield (
            "CPU seconds now over before, where all tasks are alike: one run each, in turns, which vary by a tenth. Reading "
            "a CSV file takes longer than with pandas, because lines are read one by one, so that no byte of a task moves "
            "another's. Files of posteriors take longer because they are compressed, and short calls because "
            "more modules are imported."
        )
        yield as_table(
            ("", *(f"m = {m}" for m in tasks)),
            ((name, *(as_ratio(ratios.get(m)) for m in tasks)) for name, ratios in seconds),
        )
    if files := report.get("files"):
        yield "Files of posteriors, in megabytes:"
        yield as_table(
            ("", *whens), ((name, *(f"{sizes[when] / 1e6:.1f}" for when in whens)) for name, sizes in files.items())
        )


def _allocated(of_entrances: Report) -> str:
    """Tell in words how much memory Python and NumPy allocate."""
    each = [f"{name} {min(times.values()):.1f} to {max(times.values()):.1f}" for name, times in of_entrances.items()]
    return f"; Python and NumPy themselves allocate, whatever the size: {', '.join(each)}" if each else ""


def _most(report: Report) -> int:
    return max(m for m, _ in _sizes(report))


def _beyond(report: Report) -> str:
    """The calls that take more than they should beside what they return, of most tasks."""
    worst: dict[str, float] = {}
    for name, cell in report["cells"].items():
        for line in cell["now"]["lines"]:
            beside = line.get("times the data", 0.0) - line.get("of which the result", 0.0)
            if line["m"] == _most(report) and round(beside, 1) > report["allowed"]:
                worst[name] = max(worst.get(name, 0.0), beside)
    return ", ".join(f"{name} ({beside:.1f})" for name, beside in worst.items())


def _seconds(report: Report) -> list[tuple[str, dict[int, float]]]:
    """CPU seconds now over before, by the number of tasks, where all have as many rows."""
    out = []
    for name, cell in report["cells"].items():
        every = {tuple(size.split(", 1 : ")): ratio for size, ratio in cell.get("seconds, now over before", {}).items()}
        if alike := {int(m): ratio for (m, longer), ratio in every.items() if longer == "1"}:
            out.append((name, alike))
    return out


def _sizes(report: Report) -> list[tuple[int, int]]:
    """The columns: tasks, and how much longer one is."""
    every = [cell[when]["lines"] for cell in report["cells"].values() for when in ("now", "before") if when in cell]
    return sorted({(line["m"], line["longer"]) for lines in every for line in lines})


def _times(line: Report, gib: str) -> str:
    if line["found"] is None:
        return f"more than {gib}"
    result = f", result {line['of which the result']:.1f}" if "of which the result" in line else ""
    return f"{max(line['times the data'], 0.0):.1f}{result} ({line['found']['seconds']:.0f})"


def federated(report: Report) -> Iterable[str]:
    yield (
        "A release over owners of 27 features each, all in one process: CPU of the sum and the noise, over the number of "
        "owners, with an owner's part of the server's; bytes are what an owner sends and is sent."
    )
    rows = [
        (
            f"{row['owners']:,}".replace(",", " "),
            str(row["partners"]),
            f"`{row['trust']}`",
            f"{row['CPU milliseconds an owner']:.0f}",
            f"{row['kB an owner']:.1f}",
            f"{row['peak GB']:.2f}",
        )
        for row in report["rows"]
    ]
    yield as_table(("owners", "partners of each", "trust", "CPU ms an owner", "kB an owner", "peak GB"), rows)


def nodes(report: Report) -> Iterable[str]:
    sizes, m = report["sizes"], f"{report['sizes']['m']:,}".replace(",", " ")
    yield (
        f"{m} tasks of {sizes['n']} rows and {sizes['d']} features in parquet files of {sizes['part']} "
        f"({sizes['GB of files']:.2f} GB), over nodes of the Flower app that are processes on this machine and share its "
        "cores: more of them cannot be faster here than the cores allow. Seconds "
        "are from the first message to the release, and contain the start of a Python process for every message; one process "
        f"without Flower took {report['one process']:.0f}. Memory is that of all processes of the largest node, with their "
        f"libraries. {report.get('remark', '')}".rstrip()
    )
    rows = [
        (
            str(line["nodes"]),
            f"`{line['trust']}`",
            f"{line['seconds']:.0f}",
            f"{line['GB a node']:.2f}",
            f"{line['kB moved']:.1f}",
            "yes" if line["same release"] else "no",
        )
        for line in report["lines"]
    ]
    yield as_table(
        ("nodes", "trust", "seconds", "GB a node", "kB moved", "bit for bit the release of one process"), rows
    )


def first_answer(report: Report) -> Iterable[str]:
    sizes = report["sizes"]
    yield (
        f"`mpmtl-prob fit --study` in a new process, from one hospital's CSV file ({sizes['patients']} patients, "
        f"{sizes['columns']} columns and an intercept) and a release of {sizes['hospitals']} others to the table of "
        "coefficients: without JAX's compilation cache (cold), and with it. CPU seconds are of all threads, until the table "
        "is printed and, in the next column, until the picture is drawn. Seconds are by the clock, until the table, on two "
        "cores that had no other work. The last columns are shares of the time by the clock until the table: importing "
        "modules (timed in a run of its own), Python tracing the model, XLA compiling it or reading it from the cache, and "
        "the rest, most of it sampling. By default nothing is compiled, and JAX is not imported before the table is "
        "there; `--sampler nuts` runs chains instead of weighted points."
        + (f" *Before* is commit {report['before']}, in turns." if report["before"] else "")
    )
    rows = []
    for when, arms in report["cells"].items():
        for name, of_arm in arms.items():
            shares = [of_arm[part] / of_arm["seconds"] for part in ("imports", "tracing", "compilation")]
            then = arms.get("before", of_arm)["CPU seconds"] / of_arm["CPU seconds"]
            rows.append(
                (
                    f"{when}, {name}",
                    f"{of_arm['CPU seconds']:.1f}",
                    f"{of_arm['CPU seconds to the end']:.1f}",
                    f"{of_arm['seconds']:.1f}",
                    as_ratio(then) if "before" in arms else "-",
                    *(f"{share:.0%}" for share in (*shares, max(0.0, 1 - sum(shares)))),
                )
            )
    head = (
        "",
        "CPU seconds",
        "to the end",
        "seconds",
        "before / this",
        "imports",
        "tracing",
        "compilation",
        "the rest",
    )
    yield as_table(head, rows)
