"""The connection of the verification and benchmark Jobs to servers with TLS."""

from pathlib import Path

import pytest

from specdec.client.connection import Connection
from specdec.jobs import measurement_common
from specdec.jobs.result import JobError


def test_connection_without_tls_is_unencrypted() -> None:
    assert measurement_common.connection("h:1", None) == Connection(
        "h:1", measurement_common.REQUEST_TIMEOUT_SECONDS
    )


def test_mounted_authority_file_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("PEM")
    connection = measurement_common.connection("h:1", {"authority": str(file)})
    assert (connection.tls, connection.root_certificates, connection.private_key) == (
        True,
        str(file),
        None,
    )


@pytest.mark.parametrize("content", [None, ""], ids=["absent", "empty"])
def test_system_authorities_apply_without_an_authority_file(
    content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    connection = measurement_common.connection("h:1", {"authority": str(file)})
    assert (connection.tls, connection.root_certificates) == (True, None)


def test_missing_file_of_the_client_certificate_is_reported(tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"tls.{name[:3]}") for name in ("certificate", "key")}
    tls = {"authority": str(tmp_path / "ca.crt"), "clientSecret": "verifier", **files}
    (tmp_path / "tls.cer").write_text("PEM")
    with pytest.raises(JobError) as caught:
        measurement_common.connection("h:1", tls)
    assert (caught.value.reason, caught.value.permanent) == ("SecretMissing", True)
    for part in ("Secret verifier with tls.key ", "spec.serving.tls.clientSecretName"):
        assert part in caught.value.message
    (tmp_path / "tls.key").write_text("PEM")
    connection = measurement_common.connection("h:1", tls)
    assert (connection.certificate_chain, connection.private_key) == (
        files["certificate"],
        files["key"],
    )
