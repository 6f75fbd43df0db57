"""Fuzz target: bytes from the network, read by the codec.

Whatever comes is refused with CodecError, or is a message that is written and read again as the same bytes.
Run: ``python fuzz/fuzz_codec.py fuzz/corpus/fuzz_codec -max_total_time=300`` (needs atheris).
"""

import inspect
import sys

import unpooled.privacy.secure_sum.stage_messages
import unpooled.protocol.questions.cluster_sums
import unpooled.protocol.questions.description
import unpooled.protocol.questions.fuzzy_sums  # noqa: F401  (imported so that their messages are known)
from unpooled.errors import CodecError
from unpooled.protocol import codec

LIMIT = 1 << 20


def one_input(data: bytes) -> None:
    """Raise if these bytes break the promise above."""
    try:
        message = codec.decode(data, limit=LIMIT)
    except CodecError:
        return
    again = codec.encode(message)
    assert codec.encode(codec.decode(again)) == again, "a message changed on its second journey"


def main() -> None:
    import atheris

    for function in vars(codec).values():  # by hand: an editable install is not seen when it is imported
        if inspect.isfunction(function) and function.__module__ == codec.__name__:
            atheris.instrument_func(function)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
