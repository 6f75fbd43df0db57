"""One word a number or two: the same bits, and what one word cannot hold exactly does not fit."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from federation import Ring

from helpers import blobs, split
from unpooled import Dwf, FederatedKMeans, Fuzzy, InProcess, Lloyd, SecureSums, run
from unpooled.core import codec
from unpooled.core.exchange import Part
from unpooled.errors import Refused
from unpooled.privacy.secure_sum import Fixed
from unpooled.privacy.secure_sum import coordinator as sealing
from unpooled.privacy.secure_sum import site as rules
from unpooled.privacy.secure_sum.messages import flattened
from unpooled.privacy.secure_sum.packing import Scales, exponent, narrowed, one_word, packed, unpacked
from unpooled.privacy.secure_sum.settings import BITS
from unpooled.privacy.secure_sum.tally import DoesNotFit
from unpooled.questions.clusters import AskClusterSums, AskMoments, ClusterSums, Moments


def ring_of(n):
    ring = Ring(n)
    ring.agree_on_keys(ring.turn())
    return ring


def moments(mass, sums, squares):
    return Moments(np.array([mass]), np.array(sums), np.array(squares))


def test_a_field_by_hand():
    """3 and 5 over 2^3, of which each is to keep 40 bits; 1e-9 beside 5 becomes a multiple of 2^-37."""
    ring = ring_of(3)
    terms = narrowed(ring.terms(ring.turn(), rounded=BITS), (2, 3, 3))
    layout, vector = flattened([moments(3.0, [5.0, 1e-9], [0.0, 0.0])])
    words = packed(terms, layout, vector)
    fraction = one_word(3).fraction
    assert words.shape == (1, 6)
    assert words[0, 0] == 3 * 2 ** (fraction - 2)
    assert words[0, 1] == 5 * 2 ** (fraction - 3)
    assert words[0, 2] == round(1e-9 * 2**37) * 2 ** (fraction - 3 - 37)
    assert words[0, 3:].tolist() == [0, 0, 0]
    back = unpacked(terms, layout, words[:, :-1])
    assert back.tolist() == [3.0, 5.0, round(1e-9 * 2**37) / 2**37, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(40))
def test_one_word_gives_the_bits_of_two_or_does_not_fit(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    ring = ring_of(n)
    sizes = np.exp2(rng.uniform(-18, 30, 3))  # of the three fields
    uneven = np.exp2(rng.uniform(-rng.choice([1, 6, 20]), 0, n))  # of the sites
    inputs = {
        site: moments(size * sizes[0], size * sizes[1] * rng.normal(size=4), size * sizes[2] * rng.random(4))
        for site, size in zip(ring.names, uneven, strict=True)
    }
    wide = ring.terms(ring.turn(), rounded=BITS)
    two = ring.sum(inputs, wide).sums[0]
    tops = [max(exponent(getattr(reply, f)) for reply in inputs.values()) for f in codec.field_names(Moments)]
    narrow = narrowed(ring.terms(ring.turn(1), rounded=BITS), tuple(tops))
    try:
        one = ring.sum(inputs, narrow).sums[0]
    except DoesNotFit:
        assert uneven.max() / uneven.min() > 2**8  # sites much alike always fit
        return
    for name in codec.field_names(Moments):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
        exact = sum(getattr(reply, name) for reply in inputs.values())
        np.testing.assert_allclose(
            getattr(two, name), exact, rtol=0, atol=1e-12 * np.abs(exact).max() * n + 1e-18
        )


@pytest.mark.parametrize("limbs", [1, 2, 3, 4])
def test_decoding_rounds_once(limbs):
    """To the nearest float64, ties to even, as Python's fractions do."""
    rng = np.random.default_rng(limbs)
    whole = [int(rng.integers(2**62)) << int(rng.integers(64 * limbs - 63)) for _ in range(300)]
    whole += [((1 << 53) + odd) << shift for odd in (0, 1, 2, 3) for shift in range(64 * limbs - 56)]
    whole += [(v << 1) + 1 for v in whole[-50:] if v << 1 < 2 ** (64 * limbs - 2)]
    whole += [2 ** (64 * limbs - 1) - 1, 2**63 - 1, 2**64 - 1 if limbs > 1 else 1, 1, 0]
    whole += [-v for v in whole]
    fixed = Fixed(limbs, 30)
    cut = [[(v >> (64 * i)) % 2**64 for v in whole] for i in range(limbs)]
    words = np.array(cut, dtype=np.uint64)
    assert fixed.decode(words).tolist() == [float(Fraction(v, 2**30)) for v in whole]


def test_terms_that_no_honest_coordinator_sends():
    ring = ring_of(3)
    terms = ring.terms(ring.turn())
    for wrong in (
        {"rounded": 5},
        {"rounded": 60},
        {"rounded": BITS, "scales": (2000,)},
        {"rounded": 0, "scales": (1,)},
    ):
        with pytest.raises(Refused, match=r"scales|rounded"):
            rules.check_terms(replace(terms, **wrong), ring.turn(), "s000", ring.roster, 3)
    # scales for other fields than there are: nobody fits, and nothing is shown
    inputs = dict.fromkeys(ring.names, moments(1.0, [1.0], [1.0]))
    with pytest.raises(DoesNotFit, match="3 of 3 sites"):
        ring.sum(inputs, narrowed(replace(terms, rounded=BITS), (1,)))


# ---------------------------------------------------------------- what the coordinator remembers


def asked_of(k, R=1):
    return [Part("total", AskClusterSums(np.zeros((R, k, 2))), None, 0)]


def test_scales_by_hand():
    """Counts may grow eightfold; sums, which cancel, stand in the middle of the slack over their largest."""
    scales = Scales()
    assert scales.scales(asked_of(3), 14) == ()
    for sums in (100.0, 1.0):
        cells = ClusterSums(np.full((1, 3, 2), sums), np.full((1, 3), 20.0), np.full((1, 3), 5.0))
        scales.learn(asked_of(3), (cells,))
    assert scales.scales(asked_of(3, R=5), 14) == (7 + 7, 5 + 3, 3 + 3)
    assert scales.scales(asked_of(9), 14) == (14, 8, 6)  # finer cells
    assert scales.scales(asked_of(2), 14) == ()  # coarser ones
    scales.misfits = 2
    assert scales.scales(asked_of(3), 14) == ()


# ---------------------------------------------------------------- whole runs


def _bytes(done):
    history = done.history_ if isinstance(done, FederatedKMeans) else done.history
    return sum(size for record in history for _, size in record.left.values())


@pytest.mark.parametrize("n", [3, 10, 40])
@pytest.mark.parametrize(
    "algorithm", [Lloyd(k=4), Dwf(k=4, max_rounds=12), Fuzzy(k=4, n_starts=2, max_rounds=15)]
)
def test_a_run_has_the_same_bits_in_one_word_and_in_two(algorithm, n, monkeypatch):
    X, _ = blobs(5, n=600, d=3, k=4, spread=1.5)
    rows = split(X, n, skewed=True)
    narrow = []
    real = sealing.narrowed
    monkeypatch.setattr(sealing, "narrowed", lambda terms, scales: narrow.append(1) or real(terms, scales))
    one = run(algorithm, InProcess.of(rows, secure=SecureSums()), seed=3)
    assert len(narrow) > 1
    monkeypatch.setattr(Scales, "scales", lambda self, parts, slack: ())
    two = run(algorithm, InProcess.of(rows, secure=SecureSums()), seed=3)
    assert codec.encode(one.state) == codec.encode(two.state)
    if n == 3:
        assert _bytes(one) < _bytes(two)


def test_what_does_not_fit_is_summed_again_and_asked_for_once(monkeypatch):
    """Scales that are far too small: some sums are made twice, then no more is tried; the result stands."""
    X, _ = blobs(2, n=200, d=2, k=3)
    rows = split(X, 4)
    want = FederatedKMeans(3, random_state=0, secure=True).fit(rows)
    real = Scales.scales
    monkeypatch.setattr(
        Scales, "scales", lambda self, parts, slack: tuple(-40 for _ in real(self, parts, slack))
    )
    got = FederatedKMeans(3, random_state=0, secure=True).fit(rows)
    assert got.cluster_centers_.tobytes() == want.cluster_centers_.tobytes()
    assert got.inertia_ == want.inertia_
    monkeypatch.setattr(Scales, "scales", lambda self, parts, slack: ())
    two = FederatedKMeans(3, random_state=0, secure=True).fit(rows)
    assert _bytes(got) > _bytes(two) > _bytes(want)  # what left in vain left all the same


def test_questions_that_say_nothing_of_their_fields_are_scaled_too():
    scales = Scales()
    scales.learn([Part("total", AskMoments(), None, 0)], (moments(8.0, [1.0], [3.0]),))
    assert len(scales.scales([Part("total", AskMoments(), None, 0)], 16)) == 3
