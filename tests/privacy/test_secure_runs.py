"""Secure sums under real methods: the same clusters as pooling, whatever happens on the way."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from helpers import bits, blobs, mask_of, pooled, split
from unpooled import FederatedFuzzyCMeans, FederatedKMeans
from unpooled.algorithms import METHODS, Lloyd
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.privacy.secure_sum.stage_messages import Masked
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import each, together, total
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response, run_protocol
from unpooled.protocol.messages import MaskedElsewhere, Summable
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments, AskScatter
from unpooled.site import Site
from unpooled.site.allow_list import aggregate_only

ROWS = {f"s{i}": np.arange(4.0).reshape(2, 2) + 10 * i for i in range(7)}


class Wire:
    """A carrier between sites in this process; ``lost(stage, site)`` loses an answer, ``seen`` keeps it."""

    def __init__(
        self,
        rows: Mapping[str, Any],
        lost: Callable[[str, str], bool] = lambda stage, site: False,
        *,
        required: bool = True,
        **settings: Any,
    ) -> None:
        masks = site_masks(tuple(rows), min_sites=3, required=required)
        self.site_by_name = {name: Site(name, X, mask=masks[name], **settings) for name, X in rows.items()}
        self.lost, self.seen = lost, []

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.site_by_name)

    def send_and_receive(self, requests: Mapping[str, bytes]) -> dict[str, bytes | str]:
        came: dict[str, bytes | str] = {}
        for site, data in requests.items():
            request: Request = codec.unwrap(data, expect=Request)
            stage = type(request.parts[-1].question).__name__
            if self.lost(stage, site):
                came[site] = "late"
            else:
                came[site] = self.site_by_name[site].respond(data)
                self.seen.append((stage, site, came[site]))
        return came


def secure(wire: Wire, **preparation_options: Any) -> TransportFederation:
    return TransportFederation(wire, secure=SecureSums(**preparation_options))


# ---------------------------------------------------------------- equality with pooling


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("scale", [None, "standard"])
@pytest.mark.parametrize("estimator", [FederatedKMeans, FederatedFuzzyCMeans])
def test_secure_sums_equal_pooling(estimator, scale, skewed) -> None:
    X, _ = blobs(3, n=240, d=3, k=4, spread=1.5)
    rows = split(X, 5, skewed=skewed)
    settings = {"n_init": 3, "random_state": 1, "scale": scale}
    one = estimator(4, **settings).fit({"all": pooled(rows)})
    many = estimator(4, **settings, secure=True).fit(rows)
    np.testing.assert_allclose(many.cluster_centers_, one.cluster_centers_, rtol=0, atol=1e-9)
    assert many.score(X) == pytest.approx(one.score(X), rel=1e-11)
    assert many.n_rounds_ == one.n_rounds_


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 1e6])
def test_columns_of_many_sizes_need_no_declared_bound(magnitude: float) -> None:
    X, _ = blobs(0, n=150, d=2, k=3)
    rows = split(X * magnitude, 4)
    plain = FederatedKMeans(3, random_state=0).fit(rows)
    secure = FederatedKMeans(3, random_state=0, secure=True).fit(rows)
    np.testing.assert_allclose(secure.cluster_centers_, plain.cluster_centers_, rtol=1e-10)
    assert secure.inertia_ == pytest.approx(plain.inertia_, rel=1e-10)


def test_sites_too_small_to_show_anything_still_count_in_full() -> None:
    """Twenty sites of three rows: by themselves they hide all rows, in secure sums none.

    In raw mode sites answer from groups of rows, and these have too few for one.
    """
    X, _ = blobs(1, n=60, d=2, k=3)
    rows = {f"s{i:02d}": X[3 * i : 3 * i + 3] for i in range(20)}
    want = FederatedKMeans(3, random_state=0).fit(rows)
    result = FederatedKMeans(3, random_state=0, secure=True).fit(rows)
    np.testing.assert_allclose(
        np.sort(result.cluster_centers_, axis=0), np.sort(want.cluster_centers_, axis=0), atol=1e-9
    )
    with pytest.raises(InputError, match="k=3 clusters from 0 rows"):
        FederatedKMeans(3, random_state=0, protect="raw").fit(rows)
    with pytest.raises(InputError, match="no site has enough rows"):
        FederatedKMeans(3, random_state=0, protect="raw", secure=True).fit(rows)


def test_a_cell_of_few_rows_in_all_is_dropped_from_the_sum() -> None:
    rows = {"a": np.array([[0.0], [9.0]]), "b": np.array([[0.1]]), "c": np.array([[0.2], [9.2]])}
    question = AskClusterSums(np.array([[[0.0], [9.0]]]))
    for least, masses in ((1, [3.0, 2.0]), (3, [3.0, 0.0])):
        federation = LocalFederation.from_rows(rows, min_cluster_size=least, secure=SecureSums())
        result = run_protocol(total(federation.sites, question), federation)
        assert result.mass[0].tolist() == masses
        assert (result.sums[0, 1] == 0).all() == (least == 3)


def test_a_run_again_gives_the_same_bits() -> None:
    X, _ = blobs(4, n=90)
    rows = split(X, 4)
    a, b = (run(Lloyd(k=3), LocalFederation.from_rows(rows, secure=SecureSums()), seed=5) for _ in range(2))
    assert bits(a.state) == bits(b.state)


# ---------------------------------------------------------------- resumed runs


def test_a_resumed_run_ends_with_the_same_bits(tmp_path) -> None:
    X, _ = blobs(5, n=150, k=4, spread=3.0)
    rows = split(X, 4)
    whole = run(Lloyd(k=4), LocalFederation.from_rows(rows, secure=SecureSums()), seed=2)
    path = tmp_path / "run"
    run(
        Lloyd(k=4),
        LocalFederation.from_rows(rows, secure=SecureSums()),
        seed=2,
        checkpoint=path,
        max_rounds=2,
    )
    again = run(Lloyd(k=4), LocalFederation.from_rows(rows, secure=SecureSums()), seed=2, checkpoint=path)
    assert bits(again.state) == bits(whole.state)


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_a_coordinator_killed_in_any_stage_goes_on_with_sites_that_lived(stage: str, tmp_path) -> None:
    X, _ = blobs(5, n=150, k=4, spread=3.0)
    rows = split(X, 4)
    wire = Wire(rows)
    whole = run(Lloyd(k=4), secure(Wire(rows)), seed=2)
    path, count = tmp_path / "run", [0]

    def killed(now: str, site: str) -> bool:
        count[0] += now == stage
        if now == stage and count[0] == 4 * 6 + 3:  # in the seventh sum, on the way to the third site
            raise KeyboardInterrupt
        return False

    wire.lost = killed
    with pytest.raises(KeyboardInterrupt):
        run(Lloyd(k=4), secure(wire), seed=2, checkpoint=path)
    wire.lost = lambda stage, site: False
    again = run(Lloyd(k=4), secure(wire), seed=2, checkpoint=path)  # the same sites, another coordinator
    assert bits(again.state) == bits(whole.state)


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_a_site_that_is_killed_in_any_stage_goes_on_as_if_nothing_had_been(stage: str) -> None:
    """With what it keeps; without it, it is out for the run and named."""
    X, _ = blobs(5, n=150, k=4, spread=3.0)
    rows = split(X, 7)
    calm = run(Lloyd(k=4), secure(Wire(rows)), seed=2)
    for keeps in (True, False):
        wire, count = Wire(rows), [0]

        def killed(now: str, site: str, wire=wire, count=count, keeps=keeps) -> bool:
            if (now, site) == (stage, "site-3"):
                count[0] += 1
                if count[0] % 5 == 2:
                    wire.site_by_name[site] = Site(
                        site, rows[site], mask=_reborn(wire.site_by_name[site], keeps)
                    )
            return False

        wire.lost = killed
        done = run(Lloyd(k=4), secure(wire), seed=2)
        assert (bits(done.state) == bits(calm.state)) is keeps
        assert any("site-3" in record.silent for record in done.history) is not keeps


def _reborn(old: Site, keeps: bool) -> Any:
    """The site's mask after a restart: the same identity, with or without what it had kept."""
    mask = mask_of(old)
    member = mask._member
    again = type(member)(member.name, member._identity, store=member._store if keeps else None)
    return type(mask)(again, required=True)


# ---------------------------------------------------------------- silence on the way


@pytest.mark.parametrize("stage", ["AskKeys", "AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_sites_lost_in_a_stage_are_left_out_or_not_needed(stage: str) -> None:
    gone = {"s2", "s5"}
    wire = Wire(ROWS, lambda now, site: now == stage and site in gone)
    result = run_protocol(total(tuple(ROWS), AskMoments()), secure(wire))
    there = set(ROWS) - gone if stage in ("AskKeys", "AskShares", "AskMasked") else set(ROWS)
    expected = np.concatenate([ROWS[s] for s in sorted(there)])
    assert result.n == len(expected)
    np.testing.assert_array_equal(result.sums, expected.sum(axis=0))
    np.testing.assert_array_equal(result.squares, (expected**2).sum(axis=0))


@pytest.mark.parametrize("stage", ["AskKeys", "AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_too_few_is_one_clear_error(stage: str) -> None:
    wire = Wire(ROWS, lambda now, site: now == stage and int(site[1]) >= 4)
    with pytest.raises(TooFewAnswersError, match=r"round 3, secure sum, .*: 4 of 7 sites, 5 needed; .*late"):
        run_protocol(total(tuple(ROWS), AskMoments()), secure(wire), number=3)


def test_a_run_goes_on_while_at_most_a_third_of_its_sites_is_lost() -> None:
    X, _ = blobs(6, n=200, k=3)
    rows, sums = split(X, 10), [0]
    late = {2: ("site-1", "AskMasked"), 3: ("site-8", "AskShares"), 4: ("site-5", "AskMasked")}

    def lost(stage: str, site: str) -> bool:
        sums[0] += stage == "AskShares" and site == "site-0"
        return (site, stage) == late.get(sums[0])

    wire = Wire(rows, lost)
    done = run(Lloyd(k=3, max_rounds=15), secure(wire), seed=0)
    assert np.isfinite(done.state.centers).all()
    assert set(done.history[-1].silent) == {"site-1", "site-5", "site-8"}  # out for the run, and named
    asked = [site for stage, site, _ in wire.seen if stage == "AskShares"][-7:]
    assert not {"site-1", "site-5", "site-8"} & set(asked)
    late[5] = ("site-2", "AskMasked")
    sums[0] = 0
    with pytest.raises(TooFewAnswersError, match="6 of 7 sites, 7 needed"):
        run(Lloyd(k=3, max_rounds=15), secure(Wire(rows, lost)), seed=0)


# ---------------------------------------------------------------- what a coordinator sees


def test_no_reply_is_ever_seen_by_itself() -> None:
    rows = split(blobs(7, n=80)[0], 4)
    wire = Wire(rows)
    done = run(Lloyd(k=3), secure(wire), seed=0)
    kinds, words = set(), []
    for _, _, data in wire.seen:
        answer: Response = codec.unwrap(data, expect=Response)
        kinds |= {type(reply) for reply in answer.replies}
        assert not any(isinstance(reply, Summable) for reply in answer.replies)
        words += [reply.data.ravel() for reply in answer.replies if isinstance(reply, Masked)]
    assert {MaskedElsewhere, Masked} <= kinds
    top = np.concatenate(words)
    assert abs(np.mean(top < 0) - 0.5) < 5 / np.sqrt(len(top))  # every bit is a coin, the sign as well
    assert len(np.unique(top)) == len(top)
    sent = sum(len(data) for _, site, data in wire.seen if site == "site-0")
    assert 0.4 * sent < done.sent()["site-0"][1] < sent  # as the history reports it, without the requests


def test_sums_and_single_replies_share_exchanges() -> None:
    wire = Wire(ROWS, required=False)
    federation, names = secure(wire), tuple(ROWS)
    centers = np.zeros((1, 2))
    all_moments, all_sums, seen = run_protocol(
        together(
            [
                total(names, AskMoments()),
                total(names, AskClusterSums(centers[None])),
                each(names, AskScatter(centers)),
            ]
        ),
        federation,
    )
    assert (all_moments.n, all_sums.mass[0, 0]) == (14.0, 14.0)
    assert {site: float(reply.mass[0]) for site, reply in seen.items()} == dict.fromkeys(names, 2.0)
    assert [stage for stage, site, _ in wire.seen if site == "s0"] == [
        "AskKeys",
        "AskShares",
        "AskMasked",
        "AskConsistency",
        "AskUnmask",
    ]
    with pytest.raises(
        InputError, match=r"a secure sum over 4 of 7 sites\. Sums over different sites would disclose"
    ):
        run_protocol(total(names[:4], AskMoments()), federation)


def test_protocols_outside_of_a_run_follow_each_other() -> None:
    federation = LocalFederation.from_rows(ROWS, secure=SecureSums())
    for origin in (0.0, 1.0, 2.0):
        result = run_protocol(total(federation.sites, AskMoments(np.full(2, origin))), federation)
        assert result.sums[0] == np.concatenate(list(ROWS.values()))[:, 0].sum() - 14 * origin


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("fuzzy",)])
def test_methods_that_need_only_sums_run_and_the_others_are_refused_with_their_names(method: str) -> None:
    rows = split(blobs(8, n=120)[0], 4)
    federation = LocalFederation.from_rows(rows, secure=SecureSums())
    algorithm = METHODS[method](k=3, max_rounds=3)
    if method in aggregate_only():
        assert np.isfinite(run(algorithm, federation, seed=0).state.centers).all()
    else:
        with pytest.raises(
            TooFewAnswersError,
            match=r"would disclose a single site's answer. These methods .*: lloyd, dwf, ewf, fuzzy, mini",
        ):
            run(algorithm, federation, seed=0)


@pytest.mark.parametrize("method", ["dwf", "ewf"])
def test_weighted_averages_run_from_an_adaptive_start(method: str) -> None:
    rows = split(blobs(8, n=120)[0], 4)
    plain, secure = (
        FederatedKMeans(3, method=method, n_init=1, max_rounds=5, random_state=0, secure=s).fit(rows)
        for s in (False, True)
    )
    np.testing.assert_allclose(secure.cluster_centers_, plain.cluster_centers_, atol=1e-9)


def test_a_site_that_requires_secure_sums_answers_no_plain_total() -> None:
    wire = Wire(ROWS)
    with pytest.raises(TooFewAnswersError, match="AskMoments would disclose a single site's answer"):
        run_protocol(total(tuple(ROWS), AskMoments()), TransportFederation(wire))


def test_a_site_without_a_part_in_secure_sums_says_so() -> None:
    plain = LocalFederation([Site(name, X) for name, X in ROWS.items()], secure=SecureSums())
    with pytest.raises(
        TooFewAnswersError, match=r"secure sum, keys: 0 of 7 .*does not take part in secure sums"
    ):
        run_protocol(total(plain.sites, AskMoments()), plain)


def test_two_sites_are_too_few() -> None:
    X, _ = blobs(0, n=40)
    with pytest.raises(InputError, match="secure sums need at least 3 sites, got 2"):
        FederatedKMeans(2, secure=True).fit(split(X, 2))
    federation = LocalFederation.from_rows(ROWS, secure=SecureSums())
    with pytest.raises(InputError, match="AskMoments: a secure sum needs at least 3 sites, got 2"):
        run_protocol(total(federation.sites[:2], AskMoments()), federation)


def test_settings_are_checked() -> None:
    X, _ = blobs(0, n=40)
    with pytest.raises(InputError, match="secure must be True, False or SecureSums"):
        FederatedKMeans(2, secure="yes").fit(split(X, 3))
    with pytest.raises(InputError, match="at least 3 sites, got min_sites=2"):
        SecureSums(min_sites=2)
    with pytest.raises(InputError, match="secure needs a federation with secure"):
        FederatedKMeans(2, secure=True).fit_federation(Simulation.from_rows(split(X, 3)))
    model = FederatedKMeans(2, secure=True).fit_federation(
        LocalFederation.from_rows(split(X, 3), secure=SecureSums())
    )
    assert model.cluster_centers_.shape == (2, 2)


def test_numbers_that_are_too_large_are_reported_before_anything_is_asked() -> None:
    rows = {**ROWS, "s3": ROWS["s3"] + 1e10}
    with pytest.raises(InputError, match=r"site s3: values up to 1e\+10 are too large for secure sums"):
        LocalFederation.from_rows(rows, secure=SecureSums())


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**117, 1e300])
def test_a_site_whose_numbers_are_not_finite_is_not_distinguished_from_one_with_large_numbers(
    bad: float,
) -> None:
    """A refusal, by name, would tell that a site's sum is above the largest float."""
    rows = {**ROWS, "s3": np.full_like(ROWS["s3"], bad)}
    federation = secure(Wire(rows))
    result = run_protocol(total(tuple(rows), AskMoments()), federation)
    assert result.n == 14.0
    assert federation._secure_sums.out == {}
    others = np.concatenate([own for name, own in ROWS.items() if name != "s3"])
    np.testing.assert_allclose(result.sums, others.sum(axis=0))  # multiples of 2^64 are 0, and so are these
    np.testing.assert_allclose(result.squares, (others**2).sum(axis=0))


@pytest.mark.parametrize("share", [0.5, 3])
def test_a_part_of_the_sites_is_refused_by_name_before_anything_is_asked(share: float) -> None:
    rows = split(blobs(8, n=120)[0], 5)
    with pytest.raises(InputError, match=rf"participation={share:g} and secure sums exclude each other"):
        FederatedKMeans(3, participation=share, secure=True).fit(rows)
    wire = Wire(rows)
    with pytest.raises(InputError, match=rf"participation={share:g} and secure sums exclude each other"):
        run(Lloyd(k=3, participation=share), secure(wire), seed=0)
    assert not wire.seen


def test_the_participants_has_one_fingerprint_that_every_site_sees() -> None:
    wire = Wire(ROWS)
    federation = secure(wire)
    run_protocol(total(tuple(ROWS), AskMoments()), federation, run="r")
    seen = {mask_of(site)._member._run("r").participants.fingerprint for site in wire.site_by_name.values()}
    assert seen == {federation._secure_sums.participants.fingerprint}
    run_protocol(total(tuple(ROWS), AskMoments()), federation, run="q")
    again = {mask_of(site)._member._run("q").participants.fingerprint for site in wire.site_by_name.values()}
    assert again == seen  # the same sites with the same keys, in any run
    assert len(next(iter(seen))) == 49


def test_a_reply_that_was_to_be_masked_and_is_not_is_refused() -> None:
    class Shows:
        """A broken mask: it takes part, and lets the reply out as well."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def check_request(self, request):
            self.inner.check_request(request)

        def is_masked(self, request, part):
            return False

        def apply(self, request, replies):
            secure = self.inner.apply(request, replies)
            return tuple(
                r if isinstance(h, MaskedElsewhere) else h for h, r in zip(secure, replies, strict=True)
            )

    wire = Wire(ROWS)
    wire.site_by_name["s6"] = Site("s6", ROWS["s6"], mask=Shows(mask_of(wire.site_by_name["s6"])))
    result = run_protocol(total(tuple(ROWS), AskMoments()), secure(wire))
    assert result.n == 12.0


def test_a_question_that_is_not_a_stage_is_refused() -> None:
    site = Wire(ROWS).site_by_name["s0"]
    answer = site.answer(Request(RequestId("r", 0, 0, 0), (Part(STAGE, AskMoments(), None, 0),)))
    assert "is not a stage of a secure sum" in answer.replies[0].reason


def test_altered_stages_crash_no_site_and_get_no_second_answer() -> None:
    """Bits flipped in what a coordinator sends: a refusal, or the answer to what it still says."""
    wire, rng = Wire(ROWS), np.random.default_rng(0)
    sent: dict[str, bytes] = {}
    send_and_receive = wire.send_and_receive

    def noting(requests: Mapping[str, bytes]) -> dict[str, bytes | str]:
        if "s0" not in requests:  # a flip has begun its sum on other terms, and it is left out
            return send_and_receive(requests)
        stage = type(codec.unwrap(requests["s0"], expect=Request).parts[-1].question).__name__
        for _ in range(150):
            data = bytearray(requests["s0"])
            for place in rng.integers(len(data), size=int(rng.integers(1, 4))):
                data[place] ^= 1 << int(rng.integers(8))
            answer: Response = codec.unwrap(wire.site_by_name["s0"].respond(bytes(data)), expect=Response)
            assert not any(isinstance(reply, Summable) for reply in answer.replies)
        sent[stage] = requests["s0"]
        return send_and_receive(requests)

    wire.send_and_receive = noting  # type: ignore[method-assign]
    run_protocol(total(tuple(ROWS), AskMoments()), secure(wire))
    assert {"AskKeys", "AskShares"} <= set(sent)


def test_without_the_extra_it_says_what_to_install() -> None:
    code = """
import sys
sys.modules["cryptography"] = None
import numpy as np
from unpooled import FederatedKMeans
FederatedKMeans(2).fit(np.arange(12.0).reshape(6, 2), sites=list("aabbcc"))
FederatedKMeans(2, secure=True).fit(np.arange(12.0).reshape(6, 2), sites=list("aabbcc"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        "InputError: secure sums and summary files need the package cryptography. Install it with "
        "pip install '.[secure]' in the folder of unpooled." in done.stderr
    )
