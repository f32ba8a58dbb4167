"""``refdelta serve`` and its client over TLS, with certificates of an authority that the test makes."""

import datetime as dt
import ipaddress
import pickle
import socket
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from catalog.serving import TOKEN, serving
from refdelta import errors, write_deltalake
from refdelta.catalog import UnityCatalog
from refdelta.transaction import background

pytestmark = pytest.mark.tier("test")

SCHEMA = pa.schema({"id": pa.int64()})
DAY = dt.timedelta(days=1)


class Authority:
    """A certificate authority, with its certificate in a file."""

    def __init__(self, folder, name="An authority of the tests"):
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name.replace(' ', '_')}.pem"
        made = self._signed(self.name, self.key, dt.timedelta(0), ca=True, names=())
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def _signed(self, name, key, ended, *, ca, names):
        """A certificate that was valid until so long ago, or is for a day more."""
        end = dt.datetime.now(dt.UTC) + DAY - ended
        builder = (
            x509.CertificateBuilder(self.name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(end - 2 * DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if ca:
            uses = dict.fromkeys(
                ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
            )
            more = {"encipher_only": False, "decipher_only": False, "digital_signature": True}
            usage = x509.KeyUsage(**uses, **more, key_cert_sign=True, crl_sign=True)
            builder = builder.add_extension(usage, critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issued(self, *names, ended=dt.timedelta(0)):
        """The options of ``refdelta serve`` for a certificate of these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A server of the tests")])
        return self._options(self._signed(subject, key, ended, ca=False, names=names), key)

    def itself(self, *names):
        """The same for a certificate that signs itself."""
        return self._options(self._signed(self.name, self.key, dt.timedelta(0), ca=True, names=names), self.key)

    def _options(self, made, key):
        private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (self.folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        (self.folder / "key.pem").write_bytes(key.private_bytes(*private))
        (self.folder / "key.pem").chmod(0o600)
        return "--certificate", str(self.folder / "cert.pem"), "--key", str(self.folder / "key.pem")


LOCAL = x509.DNSName("localhost")
UNTRUSTED = r"(?i)certificate verify failed"


def test_a_certificate_of_ones_own_authority(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    with serving(tmp_path, *authority.issued(LOCAL, address)) as served:
        assert served.url.startswith("https://127.0.0.1:")
        for url in (served.url, served.url.replace("127.0.0.1", "localhost")):
            with UnityCatalog(url, TOKEN) as catalog, pytest.raises(errors.StoreError, match=r"(?i)certificate"):
                catalog.tables()
            with UnityCatalog(url, TOKEN, ca_file=authority.file) as catalog:
                assert pickle.loads(pickle.dumps(catalog)).tables() == catalog.tables()
        with UnityCatalog(served.url, TOKEN, ca_file=authority.file) as catalog:
            write_deltalake(catalog.create_table("main.s.t", SCHEMA), pa.table({"id": [1]}, SCHEMA), mode="append")
            assert catalog.table("main.s.t").count() == 1
            background.settle()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        with UnityCatalog(served.url, TOKEN) as catalog:
            assert catalog.tables() == ["main.s.t"]
    assert (tmp_path / "server.log").read_text() == ""


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize(
    ("names", "ended", "reason"),
    [
        ([x509.DNSName("example.org")], dt.timedelta(0), r"(?i)hostname|doesn't match"),
        ([x509.DNSName("*.localhost")], dt.timedelta(0), r"(?i)hostname|doesn't match"),
        ([], dt.timedelta(0), r"(?i)hostname|doesn't match|subjectAltName"),
        ([LOCAL], 2 * DAY, "(?i)expired"),
        ([LOCAL], -4 * DAY, "(?i)not yet valid"),
    ],
    ids=["another host", "a host below", "no host", "expired", "not valid yet"],
)
def test_certificates_that_are_refused(tmp_path, names, ended, reason):
    authority = Authority(tmp_path)
    with serving(tmp_path, *authority.issued(*names, ended=ended)) as served:
        url = served.url.replace("127.0.0.1", "localhost")
        with UnityCatalog(url, TOKEN, ca_file=authority.file) as catalog:
            with pytest.raises(errors.StoreError, match=reason) as caught:
                catalog.tables()
            assert TOKEN not in str(caught.value)


def test_an_authority_that_is_not_trusted(tmp_path):
    authority, other = Authority(tmp_path), Authority(tmp_path, "Another authority of the tests")
    with serving(tmp_path, *authority.issued(LOCAL)) as served:
        url = served.url.replace("127.0.0.1", "localhost")
        with (
            UnityCatalog(url, TOKEN, ca_file=other.file) as catalog,
            pytest.raises(errors.StoreError, match=UNTRUSTED),
        ):
            catalog.create_table("main.s.t", SCHEMA)


def test_a_certificate_that_signs_itself(tmp_path):
    authority = Authority(tmp_path)
    with serving(tmp_path, *authority.itself(LOCAL)) as served:
        url = served.url.replace("127.0.0.1", "localhost")
        with UnityCatalog(url, TOKEN) as catalog, pytest.raises(errors.StoreError, match=UNTRUSTED):
            catalog.tables()
        with UnityCatalog(url, TOKEN, ca_file=tmp_path / "cert.pem") as catalog:
            assert catalog.tables() == []


def test_a_file_of_authorities_that_is_missing(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="there is no file"):
        UnityCatalog("https://localhost", TOKEN, ca_file=tmp_path / "none.pem")


def test_plain_http_and_handshakes_that_never_end(tmp_path):
    authority = Authority(tmp_path)
    with serving(tmp_path, *authority.issued(LOCAL), files=256) as served:
        place = urlsplit(served.url)
        http = served.url.replace("https", "http").replace("127.0.0.1", "localhost")
        with UnityCatalog(http, TOKEN) as catalog, pytest.raises(errors.StoreError):
            catalog.tables()
        idle = [socket.create_connection((place.hostname, place.port), timeout=120) for _ in range(400)]
        url = served.url.replace("127.0.0.1", "localhost")
        with UnityCatalog(url, TOKEN, ca_file=authority.file) as catalog:
            assert catalog.tables() == []
        for connection in idle:
            connection.close()
    assert len((tmp_path / "server.log").read_text()) < 1000
