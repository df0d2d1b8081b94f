"""https with a certificate authority of one's own, as docs/fleet.md says how to make one."""

import datetime as dt
import ipaddress

import pytest

from inferometer.core.errors import DomainError, PlaceError
from inferometer.hub.places.hub_client import HubAddress, HubClient
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.serving import hub_in_thread, require_certificate
from inferometer.store import open_store

x509 = pytest.importorskip("cryptography.x509", reason="pip install cryptography")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, and a certificate of it for 127.0.0.1."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder, now = tmp_path_factory.mktemp("tls"), dt.datetime.now(dt.UTC)

    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                          key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                          decipher_only=False)  # fmt: skip
    basic = x509.BasicConstraints(ca=True, path_length=None)

    def name(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def made(subject, issuer, public, key, *extensions):
        builder = x509.CertificateBuilder(
            issuer_name=name(issuer), subject_name=name(subject), public_key=public,
            serial_number=x509.random_serial_number(), not_valid_before=now - dt.timedelta(days=1),
            not_valid_after=now + dt.timedelta(days=1),
        )  # fmt: skip
        for extension in extensions:
            builder = builder.add_extension(extension, critical=extension in (basic, usage))
        return builder.sign(key, hashes.SHA256())

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = made("lab", "lab", authority.public_key(), authority, basic, usage)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    own = made("hub", "lab", server.public_key(), authority, here, known)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "hub.pem").write_bytes(own.public_bytes(pem))
    (folder / "hub.key").write_bytes(
        server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


def test_a_client_that_knows_the_authority_is_served_and_another_refuses(certificates, tmp_path):
    rules = Rules(certificate=certificates / "hub.pem", key=certificates / "hub.key")
    with open_store(tmp_path / "runs.db") as store, hub_in_thread(store, rules) as address:
        assert address.startswith("https://")
        client = HubClient(HubAddress(url=address, ca=str(certificates / "ca.pem")))
        assert client.get("/api/v1/fleet/devices") == []
        assert not client.in_the_clear
        with pytest.raises(PlaceError, match=r"certificate of .* cannot be trusted") as refused:
            HubClient(HubAddress(url=address)).get("/api/v1/fleet/devices")
        assert "--ca" in refused.value.remedy


def test_files_that_are_no_certificate_are_said(certificates, tmp_path):
    for rules, says in (
        (Rules(certificate=tmp_path / "none", key=tmp_path / "none"), "No such file"),
        (Rules(certificate=certificates / "hub.pem"), "go together"),
        (Rules(certificate=certificates / "ca.pem", key=certificates / "hub.key"), "not a certificate and its key"),
    ):
        with pytest.raises(DomainError, match=says):
            require_certificate(rules)
    with pytest.raises(DomainError, match="not a file with a certificate"):
        HubClient(HubAddress(url="https://x", ca=str(certificates / "hub.key")))
    assert HubClient(HubAddress(url="http://far", token="x")).in_the_clear  # noqa: S106 - none
