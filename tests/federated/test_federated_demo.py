"""``mpmtl-prob federated``, without Flower."""

import json
import socket
import ssl
import threading

import pytest

import mpmtl_prob as mp
from mpmtl_prob.cli import demo, demo_federated, main
from mpmtl_prob.federated.flower import certificates, sites


@pytest.fixture
def small(monkeypatch):
    """A data set on which the demonstration takes seconds, and of the other arms one."""
    tiny = mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=12, test_rows=4, group=4)
    monkeypatch.setattr(demo, "load", lambda data, seed: tiny)
    ridge = {"STL ridge": mp.estimators.Ridge().fit(tiny.train)}
    monkeypatch.setattr(demo_federated, "standard_fits", lambda *_, **__: ridge)  # test_evaluation.py has them all
    monkeypatch.setattr(demo_federated, "shared_covariance", lambda release, **_: release)  # nor does anybody sample
    monkeypatch.setattr(demo_federated, "task_posteriors", lambda train, *_, **__: mp.estimators.Ridge().fit(train))


def test_the_demonstration_says_who_saw_what_and_what_was_moved(small, capsys):
    assert main(["federated", "demo", "--trust", "no_curator", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "without a curator, eps = 1" in shown
    assert "STL ridge" in shown
    assert "12 vectors under masks, and the 3 x 3 second moment of 12 owners together, with noise in it" in shown
    assert "reveal" in shown
    assert "delta" in shown


@pytest.mark.parametrize(
    ("trust", "arm", "seen"),
    [
        ("curator", "several sites, a curator", "trusted with every owner's second moment, and to add the noise"),
        ("secure_sum", "secure sum, noise by the server", "owners together, without noise; adds the noise"),
    ],
)
def test_a_server_that_adds_the_noise_is_said_to(small, capsys, trust, arm, seen):
    assert main(["federated", "demo", "--trust", trust, "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert f"{arm}, eps = 1" in shown
    assert seen in shown
    assert "without a curator" not in shown
    assert ("letters" in shown) == (trust == "secure_sum")


def test_as_json_too(small, capsys):
    assert main(["federated", "demo", "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["owners"] == 12
    assert set(report["bytes"]) == {"advertise", "share", "mask", "confirm", "reveal"}
    assert [row["name"] for row in report["fits"]] == ["STL ridge", "secure sum, noise by the server, eps = 1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["everything"], "WHAT: expected one of demo, sites"),
        (["demo", "--data", "moon"], "--data: expected one of"),
        (["demo", "--trust", "nobody"], "--trust: expected one of"),
        (["sites"], "--folder: needs one"),
    ],
)
def test_mistakes_are_named(arguments, message, capsys):
    assert main(["federated", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_flower_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))  # no programs beside it
    assert main(["federated", "sites", "--folder", str(tmp_path / "sites"), "--insecure"]) == 2
    assert "pip install 'mpmtl-prob[flower]'" in capsys.readouterr().err


def test_the_app_is_where_it_is_looked_for():
    assert (sites.app() / "pyproject.toml").is_file()


def test_certificates_are_good_for_this_machine_and_no_other(tmp_path):
    written = certificates.write(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(written.server, written.key)
    asking = ssl.create_default_context(cafile=written.authority)
    for name, known in (("localhost", True), ("elsewhere.example", False)):
        here, there = socket.socketpair()

        def serve(there=there):
            try:
                serving.wrap_socket(there, server_side=True).close()
            except OSError:
                there.close()

        thread = threading.Thread(target=serve)
        thread.start()
        if known:
            asking.wrap_socket(here, server_hostname=name).close()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                asking.wrap_socket(here, server_hostname=name)
        here.close()
        thread.join()
