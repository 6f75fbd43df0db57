"""Keys and certificates: one authority per federation, one certificate per party.

A private key is made where it is used and stays there. A site sends a request, which holds its public key,
and receives a certificate. The keys are RSA keys, because the engines check signatures with RSA.
"""

import datetime
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from unpooled.errors import InputError
from unpooled.protocol.crypto_labels import Label
from unpooled.storage.atomic_files import write_atomically

_BITS = 3072
_AUTHORITY_DAYS, _SITE_DAYS = 3650, 825


def new_key() -> rsa.RSAPrivateKey:
    """Return a new private key, from the operating system's entropy."""
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def private_pem(key: rsa.RSAPrivateKey) -> str:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return pem.decode()


def write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    """Write a private key to a new file that only its owner can read."""
    if path.exists():
        raise FileExistsError(f"{path} already exists. A key is never replaced.")
    write_atomically(path, private_pem(key).encode())


def read_key(path: Path) -> rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except ValueError as error:
        raise InputError(f"{path}: not a private key") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InputError(f"{path}: not an RSA key")
    return key


def certificate_request(name: str, key: rsa.RSAPrivateKey) -> str:
    """Return a certificate request: the name, the public key, and a proof of the private key. PEM."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def enrolment_fingerprint(root: str, site: str, key: rsa.RSAPublicKey) -> str:
    """Return the fingerprint, of authority and site's key, that site and coordinator read to each other.

    It is the same at both only if the site has the coordinator's authority, and the coordinator the site's
    key. It has 160 bits: an attacker between the two who searches for a matching pair of keys needs 2^80
    trials.
    """
    public = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _digits(Label.ENROLMENT_FINGERPRINT, _der(root), site.encode(), public)


def authority_fingerprint(root: str) -> str:
    """Return the fingerprint of an authority's certificate."""
    return _digits(Label.AUTHORITY_FINGERPRINT, _der(root))


def _der(pem: str) -> bytes:
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)


def _digits(*parts: bytes) -> str:
    """Return 40 hexadecimal digits of the hash of all parts, in groups of four."""
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:40]
    return " ".join(digest[i : i + 4] for i in range(0, len(digest), 4))


@dataclass(frozen=True, eq=False)
class Authority:
    """The certificate authority of a federation."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> "Authority":
        key = new_key()
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        subject = _subject(name)
        builder = (
            _builder(subject, subject, key.public_key(), key.public_key(), _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, folder: Path) -> "Authority":
        certificate = x509.load_pem_x509_certificate((folder / "root.crt").read_bytes())
        return cls(read_key(folder / "root.key"), certificate)

    def write(self, folder: Path) -> None:
        write_key(folder / "root.key", self.key)
        write_atomically(folder / "root.crt", self.pem.encode())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def certify(
        self,
        name: str,
        key: rsa.RSAPublicKey,
        *,
        group: str,
        role: str | None = None,
        hosts: Sequence[str] = (),
    ) -> str:
        """Return a certificate for ``name``, PEM; ``hosts`` are the addresses of a server.

        A site's certificate must be renewed; those of server and console last as long as the authority's.
        """
        issuer, days = self.certificate.subject, _AUTHORITY_DAYS if hosts or role else _SITE_DAYS
        names = [_address(host) for host in hosts or (name,)]
        builder = _builder(_subject(name, group, role), issuer, key, self.key.public_key(), days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def requested_key(pem: str, name: str) -> rsa.RSAPublicKey:
    """Return the public key in a request for ``name``; raise InputError unless its private key signed it."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        names = [str(a.value) for a in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        key = request.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"the request of {name} is damaged") from error
    if names != [name]:
        raise InputError(f"the request is for {', '.join(names) or 'nobody'}, not for {name}")
    if not isinstance(key, rsa.RSAPublicKey) or not 2048 <= key.key_size <= 4096:  # before any computation
        raise InputError(f"the request of {name} has a key that is not RSA of 2048 to 4096 bits")
    try:
        valid = request.is_signature_valid
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise InputError(f"the request of {name} is damaged") from error
    if not valid:
        raise InputError(f"the request of {name} is not signed with its own key")
    return key


def certified_key(pem: str) -> rsa.RSAPublicKey:
    """Return the public key in a certificate."""
    key = x509.load_pem_x509_certificate(pem.encode()).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise InputError("the key of the certificate is not an RSA key")
    return key


def valid_until(pem: str) -> datetime.datetime:
    """Return the time, UTC, at which a certificate expires."""
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, issuer_key: rsa.RSAPublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)  # clocks of sites may be behind
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _subject(name: str, group: str | None = None, role: str | None = None) -> x509.Name:
    """Return a certificate's subject; the role is in the field where the engine looks for it."""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    if role is not None:
        parts.append(x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role))
    return x509.Name(parts)


def _address(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
