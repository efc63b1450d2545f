"""Crash harness: kills releases with SIGKILL, everywhere, and reports what is left; test_ledger.py runs it on its own.

The process imports the library once and forks for every kill. A child is killed before the n-th line that it executes in
the release path, before the n-th instruction of the data base, or after a random time.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # it is a program of its own

from helpers.effort import effort
from mpmtl_prob.privacy import BudgetExceeded, Ledger, Wishart, calibrate
from mpmtl_prob.privacy.mechanisms import exact
from mpmtl_prob.releases import Release, release

TOTAL = {"epsilon": 1.0, "delta": 1e-3}
W = np.random.default_rng(0).standard_normal((3, 8))
LAW = calibrate(0.5, 1e-3, 3)  # once, and not in every child
ON_PATH = {"ledger.py", "ledger_file.py", "messages.py", "publish.py", "release.py"}


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_line(n):
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if os.path.basename(frame.f_code.co_filename) not in ON_PATH:
            return None
        if event == "line":
            seen += 1
            if seen == n:
                kill()
        return trace

    sys.settrace(trace)


def kill_at_instruction(n):
    seen = 0

    def count():
        nonlocal seen
        seen += 1
        if seen == n:
            kill()
        return 0

    connect = sqlite3.connect

    def watched(*arguments, **named):
        connection = connect(*arguments, **named)
        connection.set_progress_handler(count, 1)
        return connection

    sqlite3.connect = watched


def forked(child):
    """Fork a child that runs the function; return its process number and the reading end of its pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            child(lambda: os.write(writer, b"."))
        finally:
            os._exit(0)
    os.close(writer)
    return pid, reader


def waited(pid, reader):
    _, status = os.waitpid(pid, 0)
    said = b""
    while chunk := os.read(reader, 4096):
        said += chunk
    os.close(reader)
    return len(said), os.WIFSIGNALED(status)


def release_once(folder, arm, n, say, charge_late):
    source = exact.source
    exact.source = lambda *which: (say(), source(*which))[1]  # says so before any noise exists
    pay, owed = Ledger.charge, []
    if charge_late:
        Ledger.charge = lambda *arguments, **named: owed.append((arguments, named))
    arm(n)
    release(W, 0.5, 1e-3, mechanism=LAW, ledger=Ledger(folder / "ledger", **TOTAL)).save(folder / "out.nc")
    for arguments, named in owed:
        pay(*arguments, **named)
    sys.settrace(None)


def examine(folder, drew):
    """Examine what a crash left: None if all is well, else what is wrong."""
    paid = len(Ledger(folder / "ledger", **TOTAL).charges())  # readable, whenever it was killed
    if drew > paid:
        return f"{drew} draws, {paid} charges"
    if paid > 1:
        return f"charged {paid} times"
    if (folder / "out.nc").exists() and (Release.load(folder / "out.nc").guarantee.proved is None or paid != 1):
        return "a release that was not paid for"
    Ledger(folder / "ledger").charge(Wishart(3, 100.0, 50.0))  # and still in working order
    return None


def every(arm, root, stride=1, charge_late=False):
    """Kill children at the first step, the second, ... until one survives; return the steps, the draws and all faults."""
    faults, charged = [], 0
    for n in range(1, 5000, stride):
        folder = root / f"{arm.__name__}{n}{charge_late}"
        folder.mkdir()
        drew, killed = waited(*forked(lambda say, folder=folder, n=n: release_once(folder, arm, n, say, charge_late)))
        if fault := examine(folder, drew):
            faults.append(f"{arm.__name__} {n}: {fault}")
        charged += drew
        if not killed:
            return n - 1, charged, faults
    raise AssertionError("no child ever finished")


def at_random_times(root, kills):
    """Kill processes that charge and charge, and say so after every charge that returned; return all faults."""
    path = root / "random"
    faults = []
    acknowledged = 0
    small = Wishart(3, 100.0, 1e5)
    Ledger(path, epsilon=100.0, delta=0.5)

    def spend(say):
        book = Ledger(path)
        while True:
            book.charge(small)
            say()

    rng = random.Random(0)
    for n in range(kills):
        pid, reader = forked(spend)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        said, _ = waited(pid, reader)
        acknowledged += said
        with sqlite3.connect(path) as connection:
            held = connection.execute("SELECT count(*) FROM charge").fetchone()[0]
        if not acknowledged <= held <= acknowledged + n + 1:
            faults.append(f"random {n}: {acknowledged} acknowledged, {held} held")
        acknowledged = held
        if held > 150:  # keep it quick: the composition of all charges is under the lock
            os.remove(path)
            Ledger(path, epsilon=100.0, delta=0.5)
            acknowledged = 0
    return faults


def race(root, spenders):
    """Let several processes spend until they are refused; return how many charges went through in all."""
    path = root / "race"
    Ledger(path, **TOTAL)
    law = calibrate(effort(0.45, 0.3), 1e-4, 3)

    def spend(say):
        book = Ledger(path)
        try:
            while True:
                book.charge(law)
                say()
        except BudgetExceeded:
            pass

    through = sum(waited(*child)[0] for child in [forked(spend) for _ in range(spenders)])
    alone = Ledger(**TOTAL)
    allowed = 0
    try:
        while True:
            alone.charge(law)
            allowed += 1
    except BudgetExceeded:
        pass
    return {"through": through, "held": len(Ledger(path).charges()), "allowed": allowed}


def main():
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        release(W, 0.5, 1e-3, mechanism=LAW, ledger=Ledger(**TOTAL)).save(root / "warm.nc")  # warm: imports and caches
        lines, charged_lines, faults = every(kill_at_line, root, stride=effort(12, 1))
        instructions, charged_instructions, more = every(kill_at_instruction, root, stride=effort(15, 1))
        _, _, control = every(
            kill_at_line, root, stride=effort(60, 12), charge_late=True
        )  # a library that pays after it has drawn
        report = {
            "lines": lines,
            "instructions": instructions,
            "draws": [charged_lines, charged_instructions],
            "faults": faults + more + at_random_times(root, effort(15, 60)),
            "control": control,
            "race": race(root, 4),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
