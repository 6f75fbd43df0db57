"""How long keys, seeds and shares are, in bytes."""

KEY = 32  # X25519 and Ed25519, public and secret; ChaCha20
SIGNATURE = 64  # Ed25519
TAG = 16  # Poly1305
SEED = 16  # of a mask: 128 bits
SHARE = 17  # of a seed, modulo 2^130 - 5
SIGNED_KEY = KEY + SIGNATURE
SEALED = 2 * SHARE + TAG  # a peer's shares of a site's two seeds


def table(n: int) -> int:
    """A site's pair seeds with its n - 1 peers, sealed."""
    return SEED * (n - 1) + TAG


def shares(n: int) -> int:
    """All that a site of n sends in the shares stage: a commitment, its table, its sealed shares."""
    return SEED + table(n) + SEALED * (n - 1)
