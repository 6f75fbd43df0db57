"""The targets of the fuzzing service run here, too: on their seeds, and on seeds with a byte changed."""

import importlib.util
import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

HOME = Path(__file__).parents[2] / "fuzz"


@pytest.mark.parametrize("target", ["fuzz_codec", "fuzz_site"])
def test_a_target_keeps_its_promise_on_its_seeds_and_near_them(target):
    spec = importlib.util.spec_from_file_location(target, HOME / f"{target}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seeds = [path.read_bytes() for path in sorted((HOME / "corpus" / target).iterdir())]
    assert len(seeds) >= 3
    rng = random.Random(0)
    for seed in seeds:
        module.one_input(seed)
        for _ in range(100):
            data = bytearray(seed)
            data[rng.randrange(len(data))] = rng.randrange(256)
            module.one_input(bytes(data))


def test_the_seeds_are_messages_of_this_version():
    import unpooled.protocol.questions.cluster_sums  # noqa: F401
    from unpooled.protocol import codec
    from unpooled.protocol.exchange import Request

    for path in (HOME / "corpus" / "fuzz_codec").iterdir():
        assert codec.encode(codec.decode(path.read_bytes())) == path.read_bytes()
    for path in (HOME / "corpus" / "fuzz_site").iterdir():
        assert isinstance(codec.decode(path.read_bytes()), Request)
