"""The app by real processes on this machine: a link, three nodes, TLS, keys; a server and an app that cheat; killed nodes.

Minutes, most of them spent on starting Python: `make federated` runs it, and the weekly job.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import federated
from mpmtl_prob.federated.flower import certificates
from mpmtl_prob.federated.flower import sites as by_processes
from mpmtl_prob.federated.flower.sites import RunFailed, Sites

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.evidence,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and names pipes"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TASKS = mp.datasets.synthetic_low_rank(num_tasks=6, num_features=3, rows=8).train
CONFIG = {"num-tasks": 6, "features": "3", "timeout": 90.0, "dropouts": 0}


def frame(k):
    own = mp.TaskData.from_lists(*zip(*(TASKS.rows_of(i) for i in range(k, 6, 3)), strict=True), tasks=range(k, 6, 3))
    return own.to_pandas(task="who", target="mark")


def nodes(folder, pipe=None, **options):
    """Three owners with a file each, one of them a pipe, at which its node waits."""
    options_of_nodes = []
    for k in range(3):
        path = folder / f"rows-{k}.csv"
        if k == pipe:
            os.mkfifo(path)
        else:
            frame(k).to_csv(path, index=False)
        options_of_nodes.append({"data": str(path), "task": "who", "target": "mark", **options})
    return options_of_nodes


def account(folder, k):
    return federated.RunLog(folder / "sites" / f"node-{k}" / "owner" / "account.db")


def ledger(folder, k):
    path = folder / "sites" / f"node-{k}" / "owner" / "ledger.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    return mp.privacy.Ledger(path, epsilon=3.0, delta=0.3) if not path.exists() else mp.privacy.Ledger(path)


def left(folder):
    """Processes that were started for a folder, by what they were told."""
    command_lines = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"FLWR_HOME={folder.resolve()}".encode() in path.read_bytes():
                command_lines.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" "))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return command_lines


def nothing_left(folder):
    """Wait until no process is left: one that was killed may still be on its way out."""
    until = time.monotonic() + 30
    while left(folder) and time.monotonic() < until:
        time.sleep(0.1)
    return not left(folder)


def test_signed_keys_over_tls_give_the_curators_release(tmp_path):
    """Over TLS, with signed keys, the release is the curator's, bit for bit."""
    with Sites(tmp_path / "sites", nodes(tmp_path), signed=True) as sites:
        uninvited(sites)
        outcome = sites.run(CONFIG | {"unsafe-seed": 3}, progress_bar=False)
        assert "No SuperNode found with the given public key" in (tmp_path / "sites" / "link" / "log").read_text()
    assert outcome["sites"] == 3
    assert "confirm" in outcome["moved"]
    central = mp.release(TASKS, 1.0, unsafe_seed=3)
    for path in (tmp_path / "sites").rglob("release*.nc"):
        np.testing.assert_array_equal(mp.Release.load(path).sigma, central.sigma)
    assert len(list((tmp_path / "sites").rglob("release*.nc"))) == 4  # the server's, and one at every owner
    assert [len(account(tmp_path, k).answered()) for k in range(3)] == [1, 1, 1]
    assert list(tmp_path.rglob("*.state")) == []
    assert nothing_left(tmp_path / "sites")


def uninvited(sites):
    """A node that speaks TLS, and of whose key the link has not been told."""
    home = sites.folder / "stranger"
    home.mkdir()
    private, _ = certificates.write_node_key(home)
    options = [*sites._line()[1], "--superlink", f"127.0.0.1:{sites._port}", "--port", str(by_processes._free_port())]
    command = [
        sys.executable,
        "-m",
        "mpmtl_prob.federated.flower.node",
        *options,
        "--auth-supernode-private-key",
        str(private),
    ]
    sites._launch("stranger", command)


def copied(tmp_path, monkeypatch):
    """The app, with a line in it that its nodes never agreed to."""
    mine = shutil.copytree(by_processes.app(), tmp_path / "mine" / "mpmtl-federated")
    client = mine / "mpmtl_federated" / "client_app.py"
    client.write_text(client.read_text() + f"open({str(tmp_path / 'was here')!r}, 'w').close()\n")
    monkeypatch.setattr(by_processes, "app", lambda: mine)


def test_a_node_runs_no_app_but_its_own(tmp_path, monkeypatch):
    with Sites(tmp_path / "sites", nodes(tmp_path), tls=False) as sites:
        with monkeypatch.context() as changed:
            copied(tmp_path, changed)
            with pytest.raises(RunFailed, match="TooFewOwners: advertise: 0 owners are there, and it takes 3"):
                sites.run(CONFIG, progress_bar=False)
        assert not (tmp_path / "was here").exists()
        assert sites.run(CONFIG, progress_bar=False)["sites"] == 3  # and goes on with that


HONEST = """    replies = yield "share", {i: {str(j): keys[j] for j in (i, *graph[i])} for i in adverts}
"""
FALSE = """    false = keys | {1: b"".join(secure_sum.advertise()[1]) + signatures[1]}
    replies = yield "share", {i: {str(j): (keys if i == 1 else false)[j] for j in (i, *graph[i])} for i in adverts}
"""


class Cheated(Sites):
    """The link runs a package of its own, in which the server puts a key of its making in the place of site 1's."""

    def __enter__(self):
        package = shutil.copytree(Path(mp.__file__).parent, self.folder / "its" / "mpmtl_prob")
        protocol = package / "federated" / "protocol.py"
        text = protocol.read_text()
        assert text.count(HONEST) == 1
        protocol.write_text(text.replace(HONEST, FALSE))
        return super().__enter__()

    def _popen(self, command, name, **options):
        with pytest.MonkeyPatch.context() as changed:
            if name == "link":
                changed.setenv("PYTHONPATH", f"{self.folder / 'its'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
            return super()._popen(command, name, **options)


def test_a_server_that_swaps_a_key_is_found_out_where_sites_sign(tmp_path):
    with (
        Cheated(tmp_path / "sites", nodes(tmp_path), tls=False, signed=True) as sites,
        pytest.raises(RunFailed, match="TooFewOwners: share: 1 owners are there, and it takes 3"),
    ):
        sites.run(CONFIG, progress_bar=False)
    for k in (0, 2):
        log = (tmp_path / "sites" / f"node-{k}" / "log").read_text()
        assert "RunRefused: advert: that of site 1 is not signed by it for this run" in log
    assert [len(account(tmp_path, k).answered()) for k in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("dropouts", [1, 0])
def test_a_killed_node_is_left_out_or_its_loss_is_named(tmp_path, dropouts):
    """A node that is killed while it works is left out, or its loss is named."""
    for k in range(3):
        ledger(tmp_path, k)
    with Sites(tmp_path / "sites", nodes(tmp_path, pipe=1, trust="no_curator"), tls=False) as sites:

        def kill():
            while True:  # until somebody reads the pipe, that is until the node is at its third stage
                try:
                    os.close(os.open(tmp_path / "rows-1.csv", os.O_WRONLY | os.O_NONBLOCK))
                except OSError:
                    time.sleep(0.02)
                else:
                    return os.killpg(sites.processes["node-1"].pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        config = CONFIG | {"trust": "no_curator", "dropouts": dropouts, "colluders": 0}
        if dropouts:
            assert sites.run(config, progress_bar=False)["sites"] == 2
            release = mp.Release.load(tmp_path / "sites" / "out" / "release.nc")
            assert release.num_tasks == 4
            assert release.guarantee.proved.delta <= 0.1
        else:
            with pytest.raises(RunFailed, match="TooFewOwners: mask: 2 owners are there, and it takes 3"):
                sites.run(config, progress_bar=False)
        killer.join()
    assert [len(account(tmp_path, k).answered()) for k in range(3)] == [1, 0, 1]
    assert [len(ledger(tmp_path, k).charges()) for k in range(3)] == [1, 0, 1]
    assert nothing_left(tmp_path / "sites")


def killed_at_work(sites, name, stage):
    """End a node when the run has come past a stage and the node has started a process to answer the next one."""
    log, node = sites.folder / "run.log", sites.processes[name].pid
    while f"{stage}: " not in (log.read_text() if log.exists() else ""):
        time.sleep(0.02)
    while not any(b"flwr-clientapp" in command for command in commands(node)):
        time.sleep(0.02)
    os.killpg(node, signal.SIGKILL)


def commands(session):
    """List the command lines of the processes of a session."""
    command_lines = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[3]) == session:
                command_lines.append((path.parent / "cmdline").read_bytes())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return command_lines


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_killed_nodes_shard_is_done_by_another_or_named(tmp_path, everywhere):
    """The shard of a node that is killed is done by another node, or its loss is named."""
    pytest.importorskip("pyarrow")
    settings = []
    for k in range(3):
        path = tmp_path / ("rows" if everywhere else f"rows-{k}")
        path.mkdir(exist_ok=True)
        frame(k).rename(columns=str).to_parquet(path / f"part-{k}.parquet")
        settings.append({"data": str(path), "task": "who", "target": "mark", "trust": "curator"})
    config = CONFIG | {"features": "0,1,2", "trust": "curator", "shards": True, "unsafe-seed": 3}
    with Sites(tmp_path / "sites", settings, tls=False) as sites:
        killer = threading.Thread(target=killed_at_work, args=(sites, "node-1", "list"), daemon=True)
        killer.start()
        if everywhere:
            outcome = sites.run(config, progress_bar=False)
            release = mp.Release.load(tmp_path / "sites" / "out" / "release.nc")
            assert outcome["sites"] == 2
            assert release.num_tasks == 6
            np.testing.assert_array_equal(release.sigma, mp.release(TASKS, 1.0, unsafe_seed=3).sigma)
        else:
            with pytest.raises(
                RunFailed, match=r"LostShards: 4 tasks are in the sum, and 6 were announced; lost: part-\d"
            ):
                sites.run(config, progress_bar=False)
        killer.join()
    assert "shards: 2 of 3 answered" in (tmp_path / "sites" / "run.log").read_text()
    assert nothing_left(tmp_path / "sites")


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "sites"
    command = [sys.executable, "-m", "mpmtl_prob", "federated", "sites", "--folder", str(folder), "--quiet"]
    # a process that a shell runs in the background hands down that it ignores Ctrl-C
    deaf = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        signal.signal(signal.SIGINT, deaf)
        while not (folder / "run.log").exists() and running.poll() is None:
            time.sleep(0.2)
        assert len(left(folder)) >= 4  # the link and three nodes
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert "interrupted" in running.stderr.read()
    assert nothing_left(folder)
