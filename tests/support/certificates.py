"""Certificates of a test's own authority, for servers and clients that ask each other for one."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
# As RFC 5280 wants certificates, and with it Python from 3.13 on.
EXTENSIONS = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[signed]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1
"""


class Certificates:
    """An authority `ca`, and what it signed for `server` (127.0.0.1) and for `client`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "extensions.cnf").write_text(EXTENSIONS)
        self._make("ca", "authority")
        for name in ("server", "client"):
            self._make(name, "signed", "-CA", "ca.pem", "-CAkey", "ca.key")

    def _make(self, name: str, extensions: str, *signer: str) -> None:
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        kind = ("-config", "extensions.cnf", "-extensions", extensions)
        words = ("openssl", "req", "-x509", *KEY, *files, *kind, *signer)
        subprocess.run(words, cwd=self.home, check=True, capture_output=True)

    @property
    def of_server(self) -> dict[str, object]:
        """Configuration of a server that wants a certificate of every client."""
        return {
            "tls_cert_file": self.home / "server.pem",
            "tls_key_file": self.home / "server.key",
            "tls_ca_cert_file": self.home / "ca.pem",
            "tls_auth_clients": "yes",
        }

    @property
    def authority(self) -> dict[str, object]:
        """Settings of a service that trusts the servers and has no certificate of its own."""
        return {"redis_ca_cert": self.home / "ca.pem"}

    @property
    def pair(self) -> dict[str, object]:
        """Settings: the service's own certificate."""
        return {
            "redis_client_cert": self.home / "client.pem",
            "redis_client_key": self.home / "client.key",
        }

    @property
    def settings(self) -> dict[str, object]:
        return self.authority | self.pair

    @property
    def of_client(self) -> dict[str, object]:
        """Options of redis-py for the test's own client."""
        paths = {"ca_certs": "ca.pem", "certfile": "client.pem", "keyfile": "client.key"}
        return {"ssl": True, **{f"ssl_{name}": str(self.home / file) for name, file in paths.items()}}
