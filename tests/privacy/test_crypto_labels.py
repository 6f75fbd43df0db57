"""The labels of signatures, fingerprints and derived keys: one list, none the beginning of another."""

import ast
import json
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import unpooled
from unpooled.federation.provisioning import keys, member_keys
from unpooled.privacy.secure_sum import crypto
from unpooled.privacy.secure_sum.crypto import Identity, KeyAgreement
from unpooled.privacy.secure_sum.stage_messages import (
    ConsistencyStatement,
    KeyStatement,
    Participants,
    SumParameters,
)
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.exchange import RequestId, countersignable
from unpooled.site import signed_file as signed_files
from unpooled.site.identity import IDENTITY, fingerprint_in
from unpooled.site.signed_file import NOTICE, recipient_key, seal_file
from unpooled.site.study import signable
from unpooled.site.summary_file import Header

SOURCES = sorted(Path(unpooled.__file__).parent.rglob("*.py"))
FIRST_BYTES = (b"unpooled model", b"unpooled checkpoint")  # of files, which are not labels

SECRET, OTHER, CONTEXT = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
PARTICIPANTS = Participants("run", ("a", "b", "c"), ("00" * 32, "11" * 32, "22" * 32))
SUM = SumParameters(RequestId("run", 7, 1, 2), "epoch", "participants", ("a", "b", "c"), 3, "asked")
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIHHMHugAwIBAgIBATAFBgMrZXAwDjEMMAoGA1UEAwwDdHJ5MB4XDTI2MDEwMTAw
MDAwMFoXDTM2MDEwMTAwMDAwMFowDjEMMAoGA1UEAwwDdHJ5MCowBQYDK2VwAyEA
A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbgwBQYDK2VwA0EA6f+wNaWD
qKT8gIxNKJnLt02RwauKum3CTpIRycrgEP8aD4EkTZpTmkl0GaoDK+ya/+QHnzCc
BitijsPP3z9mDA==
-----END CERTIFICATE-----
"""


def short(data):
    return sha256(data).hexdigest()[:16]


def seeds(which):
    """The secrets of a site in a sum; the sealed shares depend on every one of them."""
    made = crypto.derive_seeds(SECRET, SUM, "b", {"a": OTHER, "c": CONTEXT})
    return {"self": made.self_seed, "shares": made.shares.data.tobytes(), "pair": made.pair_seeds["a"]}[which]


def fingerprint(tmp_path):
    (tmp_path / IDENTITY).write_text(SECRET.hex())
    return fingerprint_in(tmp_path)


def enrolment():
    public = rsa.RSAPublicNumbers(65537, 2**2047 + 1).public_key()
    return keys.enrolment_fingerprint(AUTHORITY, "north", public)


def signed_file():
    """The signature of a plain file, and what was signed."""
    key = recipient_key(Identity(OTHER), "heart")
    header = Header(
        "north", Identity(SECRET).public.hex(), key, 3, "2026-11-18T00:00:00+00:00", None, "", False
    )
    data, digest = seal_file(NOTICE, header, {"files": []}, Identity(SECRET))
    signature = json.loads(data)["signature"]
    statement = Label.SIGNED_FILE + digest.encode()
    assert crypto.is_signed(Identity(SECRET).public, statement, bytes.fromhex(signature))
    return signature[:16], statement


def proof():
    return member_keys.member_claim(Identity(SECRET), "fingerprint", False)["proof"]


KNOWN = {
    Label.STUDY: (lambda _: short(signable("00" * 32)), "ef1c35dcc62c18a6"),
    Label.LOG_HEAD: (lambda _: short(countersignable("north", "3:abcd")), "27e157fca2040c46"),
    Label.PARTICIPANTS: (lambda _: PARTICIPANTS.digest[:16], "b4b0d6a2404ded99"),
    Label.SITE_KEY: (
        lambda _: short(KeyStatement("run", "epoch", "north", "00" * 32).bytes),
        "7ec0dd32809ff957",
    ),
    Label.SURVIVORS: (
        lambda _: short(ConsistencyStatement("00", ("a", "b"), ("a",)).bytes),
        "2c20c3c88ec04663",
    ),
    Label.MEMBERSHIP_PROOF: (lambda _: proof()[:16], "83fd9f993f9a007f"),
    Label.MEMBER_FINGERPRINT: (fingerprint, "30ce99bbee056d27e3cdfd11fc3a3a0b95bca6d7"),
    Label.PARTICIPANTS_FINGERPRINT: (
        lambda _: PARTICIPANTS.fingerprint,
        "31fa 8501 efaa fd81 bacb 5e19 3646 a1fe 6f64 1910",
    ),
    Label.ENROLMENT_FINGERPRINT: (lambda _: enrolment(), "38da cf88 8987 987d c578 4bc5 3190 92e8 d741 fdba"),
    Label.AUTHORITY_FINGERPRINT: (
        lambda _: keys.authority_fingerprint(AUTHORITY),
        "fe81 50d0 a79b 526f 27ca e6b2 e14d ff67 ba17 68ae",
    ),
    Label.SIGNED_FILE: (lambda _: signed_file()[0], "3b5362be339bab62"),
    Label.RECIPIENT_FINGERPRINT: (
        lambda _: recipient_key(Identity(SECRET), "heart").fingerprint,
        "46f2 c402 5d25 ac93 4528 b95f 5b55 cfff 8ed1 3b18",
    ),
    Label.RECIPIENT_KEY: (lambda _: recipient_key(Identity(SECRET), "heart").public[:16], "ad6f4f8b02d86893"),
    Label.SIGNED_FILE_KEY: (
        lambda _: short(signed_files._file_key(KeyAgreement(SECRET), KeyAgreement(OTHER).public)),
        "6c8d7759f6861252",
    ),
    Label.REQUEST_NAME: (
        lambda _: short(crypto.derived(SECRET, Label.REQUEST_NAME, b"digest")),
        "c4aabcde55ec7361",
    ),
    Label.PAIR_ROOT: (
        lambda _: short(KeyAgreement(SECRET).root(KeyAgreement(OTHER).public, CONTEXT)),
        "d07f09d010283cab",
    ),
    Label.PAIR_KEYS: (lambda _: short(b"".join(crypto.pair_keys(SECRET, CONTEXT))), "784954cca541fa38"),
    Label.RUN_KEY_AGREEMENT: (
        lambda _: short(crypto.derived(SECRET, Label.RUN_KEY_AGREEMENT, b"1")),
        "d64809a30560d81b",
    ),
    Label.RUN_SUM: (
        lambda _: short(crypto.derived(SECRET, Label.RUN_SUM, b"1 " + CONTEXT)),
        "2d39e6c64614ba47",
    ),
    Label.SELF_SEED: (lambda _: short(seeds("self")), "a9f6092fbbb4dd93"),
    Label.TABLE_SEED: (lambda _: short(seeds("shares")), "d31324a55c3760e7"),
    Label.SELF_SHARES: (
        lambda _: short(crypto.derived(SECRET, Label.SELF_SHARES, length=66)),
        "0402c22d6af3b04a",
    ),
    Label.TABLE_SHARES: (
        lambda _: short(crypto.derived(SECRET, Label.TABLE_SHARES, length=66)),
        "4ba6671e0a8416ec",
    ),
    Label.MASK_KEY: (
        lambda _: short(crypto.mask(SECRET[:16], CONTEXT, (2, 5)).tobytes()),
        "c95e19b823d19536",
    ),
    Label.TABLE_KEY: (
        lambda _: short(crypto.from_seed(Label.TABLE_KEY, CONTEXT, SECRET[:16])),
        "12e85040af4b5c88",
    ),
    Label.SEED_COMMITMENT: (
        lambda _: short(crypto.from_seed(Label.SEED_COMMITMENT, CONTEXT, SECRET[:16])),
        "5d0bc0af0a73a8eb",
    ),
}


def test_no_label_is_the_beginning_of_another():
    labels = [label.value for label in Label]
    assert len(set(labels)) == len(labels) == len(Label.__members__)  # an alias would be a second use of one
    for label in labels:
        assert label.startswith(b"unpooled ")
        assert label.index(b"\0") == len(label) - 1
        assert not any(other.startswith(label) for other in labels if other != label)


def test_every_label_of_the_package_is_in_the_list_and_in_use():
    used = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "Label"
            ):
                used.add(node.attr)
            if path.name == "crypto_labels.py" or not isinstance(node, ast.Constant):
                continue
            if isinstance(node.value, bytes) and node.value.startswith(b"unpooled"):
                place = f"{path}:{node.lineno}: {node.value!r}"
                assert node.value.startswith(FIRST_BYTES), f"{place} is not in crypto_labels.py"
    assert used >= set(Label.__members__)


@pytest.mark.parametrize("label", Label, ids=lambda label: label.name)
def test_what_is_signed_hashed_and_derived_has_not_changed(label, tmp_path):
    compute, answer = KNOWN[label]
    assert compute(tmp_path) == answer


def test_every_signed_statement_begins_with_its_label():
    statements = {
        Label.STUDY: signable("00" * 32),
        Label.LOG_HEAD: countersignable("north", "3:abcd"),
        Label.PARTICIPANTS: PARTICIPANTS.statement,
        Label.SITE_KEY: KeyStatement("run", "epoch", "north", "00" * 32).bytes,
        Label.SURVIVORS: ConsistencyStatement("00", ("a", "b"), ("a",)).bytes,
        Label.MEMBERSHIP_PROOF: member_keys._statement("fingerprint"),
        Label.SIGNED_FILE: signed_file()[1],
    }
    for label, statement in statements.items():
        assert [other for other in Label if statement.startswith(other)] == [label]
