"""Certificates and keys for trying TLS on one machine.

A link that others can reach needs certificates from a public authority or from one's own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS = 7


class Certificates(NamedTuple):
    """Paths of the PEM files that TLS needs."""

    authority: Path  #: the certificate authority, by which clients recognise the server
    server: Path
    key: Path  #: the server's private key


def write(folder: Path) -> Certificates:
    """Write a certificate authority and its certificate for localhost, valid for a week. The authority's key is not kept."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = Certificates(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    signer, key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    issuer = _name("mpmtl_prob trial authority")
    limits = x509.BasicConstraints(ca=True, path_length=0)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = (
        _builder(issuer, issuer, signer).add_extension(limits, critical=True).add_extension(usage, critical=True)
    )
    paths.authority.write_bytes(authority.sign(signer, SHA256()).public_bytes(Encoding.PEM))
    here = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    server = _builder(_name("localhost"), issuer, key).add_extension(x509.SubjectAlternativeName(here), critical=False)
    server = server.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    server = server.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    server = server.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    paths.server.write_bytes(server.sign(signer, SHA256()).public_bytes(Encoding.PEM))
    _keep(paths.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


def write_node_key(folder: Path) -> tuple[Path, Path]:
    """Write a node's key pair, by which a link recognises it, in the format of ``ssh-keygen -t ecdsa -b 384``."""
    key, private, public = generate_private_key(SECP384R1()), folder / "node.key", folder / "node.key.pub"
    _keep(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return private, public


def _keep(path: Path, private: bytes) -> None:
    path.unlink(missing_ok=True)  # an existing file would keep its mode, and a symbolic link would lead elsewhere
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now, public = datetime.now(UTC), key.public_key()
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=_DAYS))
    return builder.serial_number(x509.random_serial_number())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
