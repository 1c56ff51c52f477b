"""Creates a CA, a certificate of a server on the loopback address, and client certificates."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.processes import DEADLINE_SECONDS

_FRESH = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = ("-days", "1")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as paths of PEM files."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Certificates:
    """PEM files; another CA has signed `stranger`."""

    authority: str
    server: Pair
    client: Pair
    stranger: Pair


def make(folder: Path, *, hosts: tuple[str, ...] = ()) -> Certificates:
    """Create all certificates in an empty folder; the server's is also valid for `hosts`."""
    authority, other = _authority(folder, "ca"), _authority(folder, "other")
    names = ",".join(f"DNS:{host}" for host in ("localhost", *hosts))
    return Certificates(
        authority.certificate,
        _signed(folder, "tls", authority, f"subjectAltName={names},IP:127.0.0.1"),
        _signed(folder, "client", authority, "extendedKeyUsage=clientAuth"),
        _signed(folder, "stranger", other, "extendedKeyUsage=clientAuth"),
    )


def _authority(folder: Path, name: str) -> Pair:
    made = Pair(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
    files = ("-keyout", made.key, "-out", made.certificate)
    _openssl("req", "-x509", *_FRESH, *files, *_DAYS, "-subj", f"/CN={name}")
    return made


def _signed(folder: Path, name: str, authority: Pair, extension: str) -> Pair:
    made = Pair(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"{extension}\nbasicConstraints=CA:FALSE\n", "ascii")
    _openssl("req", *_FRESH, "-keyout", made.key, "-out", str(request), "-subj", f"/CN={name}")
    by = ("-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial")
    files = ("-in", str(request), "-out", made.certificate, "-extfile", str(extensions))
    _openssl("x509", "-req", *by, *files, *_DAYS)
    return made


def _openssl(*argv: str) -> None:
    subprocess.run(["openssl", *argv], check=True, capture_output=True, timeout=DEADLINE_SECONDS)
