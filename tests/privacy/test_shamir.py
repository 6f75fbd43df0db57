"""Any threshold of shares gives the secret; fewer say nothing."""

import itertools
import secrets

import pytest

from unpooled.privacy.secure_sum.crypto import PRIME, restore, share, stream_length, weights

pytestmark = pytest.mark.quick


def test_any_three_of_five_restore_and_no_two() -> None:
    secret = bytes(range(16))
    shares = share(secret, 3, 5, secrets.token_bytes(stream_length(3)))
    for some in itertools.permutations(range(5), 3):
        assert restore([shares[i] for i in some], weights(some)) == secret
    for some in itertools.combinations(range(5), 2):
        assert restore([shares[i] for i in some], weights(some)) != secret


def test_a_line_by_hand() -> None:
    """f(x) = 7 + 4 x has shares 11 and 15; at 0 that is 2 * 11 - 15."""
    assert weights([0, 1]) == [2, PRIME - 1]
    assert restore([11, 15], weights([0, 1])) == (7).to_bytes(16, "little")


def test_shares_are_those_of_their_random_bytes() -> None:
    one, other = (secrets.token_bytes(stream_length(2)) for _ in range(2))
    assert share(bytes(16), 2, 4, one) == share(bytes(16), 2, 4, one)
    assert not set(share(bytes(16), 2, 4, one)) & set(share(bytes(16), 2, 4, other))


def test_shares_of_no_secret_of_ours_are_known_as_such() -> None:
    assert restore([PRIME - 1], [1]) is None
