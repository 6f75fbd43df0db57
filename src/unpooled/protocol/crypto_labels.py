"""Domain separation: every signature, fingerprint and derived key has a label of its own.

Bytes that were signed, hashed or derived for one purpose are then never valid for another. Every label ends
with a zero byte and contains no other one, so none is the beginning of another. A label is part of the
format: a changed label makes signatures and fingerprints of before invalid.

``from_hex`` reads the keys and signatures from text.
"""

from enum import Enum


class Label(bytes, Enum):
    """The beginning of the bytes that are signed, hashed or given to a key derivation, by purpose.

    >>> Label.STUDY + b"digest"
    b'unpooled study\\x00digest'
    """

    # signed with Ed25519
    STUDY = b"unpooled study\0"  # a coordinator proposes a study
    LOG_HEAD = b"unpooled log head\0"  # a coordinator confirms that it received a head of a site's log
    PARTICIPANTS = b"unpooled participants\0"  # a coordinator fixes the participant list of a run
    SITE_KEY = b"unpooled site key\0"  # a site vouches for its key of one run and epoch
    SURVIVORS = b"unpooled survivors\0"  # a site confirms the list of sites in one secure sum
    MEMBERSHIP_PROOF = b"unpooled membership proof\0"  # a site proves at its enrolment that it has its key
    SIGNED_FILE = b"unpooled signed file\0"  # a party sends a file, whose kind is part of what is signed

    # fingerprints, SHA-256
    MEMBER_FINGERPRINT = b"unpooled member fingerprint\0"
    PARTICIPANTS_FINGERPRINT = b"unpooled participants fingerprint\0"
    ENROLMENT_FINGERPRINT = b"unpooled enrolment fingerprint\0"
    AUTHORITY_FINGERPRINT = b"unpooled authority fingerprint\0"
    RECIPIENT_FINGERPRINT = b"unpooled recipient fingerprint\0"

    # keys that are derived with HKDF-SHA256
    PAIR_ROOT = b"unpooled pair root\0"  # from the agreed secret of two sites
    PAIR_KEYS = b"unpooled pair keys\0"  # from a pair's root, for one sum
    RUN_KEY_AGREEMENT = b"unpooled run key agreement\0"  # from a site's secret of a run, for one epoch
    RUN_SUM = b"unpooled run sum\0"  # from a site's secret of a run, for one sum
    SELF_SEED = b"unpooled self seed\0"  # from a site's secret of a sum: the seed of its own mask
    TABLE_SEED = b"unpooled table seed\0"  # from the same: the seed that seals its pair seeds
    SELF_SHARES = b"unpooled self shares\0"  # from the same: the randomness that shares the seed of its mask
    TABLE_SHARES = b"unpooled table shares\0"  # from the same: the randomness that shares the other seed
    RECIPIENT_KEY = b"unpooled recipient key\0"  # from an identity: the key to which files are encrypted
    SIGNED_FILE_KEY = b"unpooled signed file key\0"  # from the agreed secret of one file
    REQUEST_NAME = (
        b"unpooled request name\0"  # from a coordinator's identity: the names of files with requests
    )

    # keys and commitments that are made from a seed with SHA-256
    MASK_KEY = b"unpooled mask key\0"
    TABLE_KEY = b"unpooled table key\0"
    SEED_COMMITMENT = b"unpooled seed commitment\0"


def from_hex(text: str) -> bytes:
    """Return the bytes of hexadecimal digits, as keys and signatures are written; b"" for other texts.

    >>> from_hex("00ff"), from_hex("zz")
    (b'\\x00\\xff', b'')
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
