"""Flower link and nodes on localhost, each in its own process, for trying the federated app on one machine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from mpmtl_prob.federated.flower import certificates
from mpmtl_prob.federated.signing import write_key

_STARTED, _STOPPED = 60.0, 5.0  # seconds to wait, at most, for a start and for an end
_ANSWERED = re.compile(r"(\w+): (\d+) of (\d+) answered")
#: Turn off telemetry, the check for updates, and the installation of dependencies.
_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}  # fmt: skip
Config = Mapping[str, str | int | float | bool]


class RunFailed(RuntimeError):
    """A run on the link ended without a release.

    Attributes:
        error: the name of the error that ended the run.
    """

    def __init__(self, error: str, says: str) -> None:
        super().__init__(f"{error}: {says}")
        self.error = error


class Sites:
    """A SuperLink and SuperNodes on localhost, which run inside a ``with`` block.

    Args:
        folder: for all output: a folder with a log for every process, and the outcome of runs in ``out``.
        nodes: the configuration of every node; see the app's README.
        tls: use TLS with new certificates, and node keys, so that the link admits these nodes only.
        signed: give the sites long-term signing keys; they then answer only sites whose keys they know.

    Raises:
        ImportError: without the extra ``flower``.
        RuntimeError: the link does not start, or does not admit a node.
    """

    def __init__(
        self, folder: str | os.PathLike[str], nodes: Sequence[Config], *, tls: bool = True, signed: bool = False
    ) -> None:
        self.folder, self._nodes, self._signed = Path(folder).resolve(), nodes, signed
        self._certificates = certificates.write(self.folder / "certificates") if tls else None
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = _free_port()

    def __enter__(self) -> Sites:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, config: Config, *, progress_bar: bool = True) -> dict[str, Any]:
        """Run the app once and return its outcome, the content of ``outcome.json``.

        Args:
            config: the run's configuration.
            progress_bar: show one.

        Raises:
            RunFailed: the run ended in an error.
        """
        out = self.folder / "out"
        (out / "outcome.json").unlink(missing_ok=True)
        settings = self.folder / "run.toml"
        settings.write_text(_toml(dict(config) | {"sites": len(self._nodes), "out": str(out)}, "\n"))
        command = [_program("flwr"), "run", str(app()), "here", "--stream", "--run-config", str(settings)]
        log = self.folder / "run.log"
        stages = tqdm(total=self._stages(config), disable=not progress_bar, desc="starting")
        with open(log, "w") as file, stages as bar, _ended(self._popen(command, "link", stdout=subprocess.PIPE)) as ran:
            assert ran.stdout is not None
            for line in ran.stdout:
                file.write(text := line.decode(errors="replace"))
                file.flush()
                if answered := _ANSWERED.search(text):
                    bar.set_description(answered[0])
                    bar.update()
        if not (out / "outcome.json").exists():
            raise RunFailed("RuntimeError", f"the server app wrote no outcome; see {log}")
        outcome: dict[str, Any] = json.loads((out / "outcome.json").read_text())
        if "error" in outcome:
            raise RunFailed(outcome["error"], outcome["says"])
        return outcome

    def _stages(self, config: Config) -> int:
        """Return the number of stages in a run without dropouts."""
        if config.get("trust") == "curator":
            return 3 if config.get("shards") else 2
        return 6 if self._signed or not config.get("partners") else 5

    def stop(self) -> None:
        """End all processes that were started, with their children."""
        _end(*self.processes.values())
        self.processes.clear()

    def _start(self) -> None:
        link_options, node_options = self._line()
        link = ["--host", "127.0.0.1", "--port", str(self._port), "--disable-runtime-dependency-installation"]
        self._launch("link", [_program("flower-superlink"), *link_options, *link])
        self._wait()
        for i, config in enumerate(self._nodes):
            home = self.folder / f"node-{i}"
            home.mkdir(mode=0o700, exist_ok=True)
            options = ["--superlink", f"127.0.0.1:{self._port}", "--port", str(_free_port()), *node_options]
            node = {"folder": str(home / "owner")} | self._keys(home, i) | dict(config)
            options += [*self._admitted(home), "--node-config", _toml(node, " ")]
            self._launch(home.name, [sys.executable, "-m", "mpmtl_prob.federated.flower.node", *options])

    def _line(self) -> tuple[list[str], list[str]]:
        """Return the connection options of the link and of a node, and write those of the client that submits runs."""
        link, node = ["--insecure"], ["--insecure"]
        here: dict[str, Any] = {"address": f"127.0.0.1:{self._port}", "insecure": True}
        if files := self._certificates:
            link = ["--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.server), "--ssl-keyfile",
                    str(files.key), "--enable-supernode-auth"]  # fmt: skip
            node = ["--root-certificates", str(files.authority)]
            here = {"address": f"127.0.0.1:{self._port}", "root-certificates": str(files.authority)}
        home = self.folder / "link" / "flower"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{_toml(here, "\n")}\n')
        return link, node

    def _admitted(self, node: Path) -> list[str]:
        """Register a node's key with the link and return the node's options; without TLS the link admits every node."""
        if self._certificates is None:
            return []
        private, public = certificates.write_node_key(node)
        command = [_program("flwr"), "supernode", "register", str(public), "here"]
        with open(node / "register.log", "wb") as log, _ended(self._popen(command, "link", stdout=log)) as registered:
            if registered.wait(_STARTED):
                raise RuntimeError(f"the link does not admit {node.name}; see {log.name}")
        return ["--auth-supernode-private-key", str(private)]

    def _keys(self, node: Path, number: int) -> dict[str, str]:
        """Write a new signing key for a site, and return the entries of the configuration that point to the keys."""
        if not self._signed:
            return {}
        private, known = node / "site.key", self.folder / "keys"
        known.mkdir(exist_ok=True)
        public = known / f"{number}.pub"
        for old in (private, public):  # left by an earlier run in this folder
            old.unlink(missing_ok=True)
        write_key(private, public)
        return {"signing-key": str(private), "known-keys": str(known)}

    def _launch(self, name: str, command: Sequence[str]) -> None:
        (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        log_file = self.folder / name / "log"  # readable by its owner only, as a site's errors may quote its rows
        with open(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self.processes[name] = self._popen(command, name, stdout=log)

    def _popen(self, command: Sequence[str], name: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process with its own Flower home, in its own session, so that it can be ended with all its children."""
        home = self.folder / name / "flower"
        home.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        env = os.environ | _OFFLINE | {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(command, stderr=subprocess.STDOUT, env=env, start_new_session=True, **options)

    def _wait(self) -> None:
        until = time.monotonic() + _STARTED
        while time.monotonic() < until and self.processes["link"].poll() is None:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the link did not start; see {self.folder / 'link' / 'log'}")


def app() -> Path:
    """Return the path of the Flower app: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).parent
    return next(path for path in (here / "app", here.parents[2] / "apps" / "mpmtl-federated") if path.is_dir())


def _program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise ImportError(f"{name}: not found; pip install 'mpmtl-prob[flower]'")
    return str(path)


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


def _toml(entries: Config, between: str) -> str:
    return between.join(f"{name}={json.dumps(value)}" for name, value in entries.items())


def _end(*processes: subprocess.Popen[bytes]) -> None:
    """End processes with all their children. Those that do not end within the time limit are killed."""
    until = time.monotonic() + _STOPPED
    for process in processes:
        _signal(process, signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, what)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        _end(process)
