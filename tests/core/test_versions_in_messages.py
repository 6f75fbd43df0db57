"""The version of a message, as somebody else may write it."""

import pytest
from test_codec import forged

from unpooled.core import codec
from unpooled.core.messages import Refusal
from unpooled.errors import CodecError

FIELDS = {"type": codec.name_of(Refusal), "fields": {"reason": "no consent"}}


def test_the_skeleton_is_that_of_a_message():
    assert codec.decode(forged({"root": FIELDS, "arrays": []})).reason == "no consent"


@pytest.mark.parametrize("version", ["1", "", None, True, 1.0, [1], {"tuple": []}, 0, -1, 2, 2**70])
def test_a_version_that_is_none_is_no_message(version):
    with pytest.raises(CodecError):
        codec.decode(forged({"root": {**FIELDS, "version": version}, "arrays": []}))
