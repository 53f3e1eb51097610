from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.stats import measure
from kvphase.stats.audit import audit
from kvphase.stats.decision import Evidence, decide, more_needed, spelled
from kvphase.stats.simulate import Layout, answer, constant, insequence, periodic, prefix
from kvphase.types import Answers, Arm, DesignKind

if TYPE_CHECKING:
    from numpy.typing import NDArray


def screen(seed: int, mean: float, *, records: int = 96, period_four: float = 0.0) -> Answers:
    rng = np.random.default_rng(seed)
    truth = periodic(mean, [0.0, 0.0, 0.0, -period_four]) if period_four else constant(mean)
    return answer(insequence(rng, records=records), truth, rng)


def with_arm(answers: Answers, arm: Arm, *, flipped: int, margin: float = np.nan) -> Answers:
    """The same asks under another arm; the first ``flipped`` of them answered otherwise."""
    n = len(answers)
    text = np.where(np.arange(n) < flipped, "other", answers.text)
    return replace(answers, arm=np.full(n, arm.value), text=text, margin=np.full(n, margin))


def joined(*parts: Answers) -> Answers:
    return Answers(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Answers.__slots__)
    )


def unfinished(answers: Answers, share: float) -> Answers:
    correct = answers.correct.copy()
    correct[: int(share * len(answers))] = -1
    return replace(answers, correct=correct)


def test_phase_sensitive() -> None:
    verdict = measure(screen(1, 0.7, period_four=0.4))
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert verdict.would_settle is None
    assert verdict.worst is not None
    assert verdict.worst.residue % 4 == 3
    assert verdict.gap.over == "blocks in these 4 contexts"


def test_phase_sensitive_even_near_the_ceiling() -> None:
    verdict = measure(screen(1, 0.975, records=240, period_four=0.12))
    assert verdict.mean > 0.95
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)


def test_aperiodic() -> None:
    def only_the_first_time(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
        return np.where((layout.position % 8 == 5) & (layout.pad < 8), 0.05, 0.85)

    rng = np.random.default_rng(1)
    verdict = measure(answer(prefix(rng, contexts=6), only_the_first_time, rng), kind="prefix")
    assert verdict.verdict == "aperiodic"
    assert verdict.period is None
    assert verdict.p_value is not None
    assert verdict.p_value <= 0.005


@pytest.mark.parametrize("mean", [0.0, 0.01, 0.99, 1.0])
def test_saturated(mean: float) -> None:
    assert measure(screen(2, mean)).verdict == "saturated"


def test_not_detected_needs_enough_answers() -> None:
    verdict = measure(screen(3, 0.9, records=1100))
    assert verdict.verdict == "not-detected"
    assert verdict.mde_pp is not None
    assert verdict.mde_pp <= 10
    fewer = measure(screen(3, 0.9, records=96))
    assert fewer.verdict == "inconclusive"
    assert fewer.would_settle is not None
    assert fewer.would_settle.startswith("about ")
    assert measure(screen(3, 0.9, records=96), detect_pp=60).verdict == "not-detected"


def test_unreliable_when_cold_answers_differ_comes_before_everything() -> None:
    sound = screen(1, 0.7, period_four=0.4)
    audited = sound.where(np.arange(len(sound)) < 100)
    steady = with_arm(audited, Arm.REPEAT, flipped=0)
    broken = joined(sound, steady, with_arm(audited, Arm.COLD, flipped=12))
    assert measure(broken).verdict == "unreliable"
    # As many flips on plain repeats: nothing that the cache could be blamed for.
    noisy = joined(
        sound, with_arm(audited, Arm.REPEAT, flipped=12), with_arm(audited, Arm.COLD, flipped=12)
    )
    assert measure(noisy).verdict == "phase-sensitive"


def test_unreliable_when_many_answers_were_cut() -> None:
    assert measure(unfinished(screen(1, 0.99), 0.06)).verdict == "unreliable"
    few = measure(unfinished(screen(1, 0.7, period_four=0.4), 0.04))
    assert few.verdict == "phase-sensitive"
    assert few.n == 384 - 15
    assert any("15 of 384" in note for note in few.notes)


def test_audit_counts_pairs_flips_and_near_ties() -> None:
    sound = replace(screen(1, 0.7), margin=np.full(384, 0.1))
    audited = sound.where(np.arange(384) < 100)
    found = audit(
        joined(
            sound,
            with_arm(audited, Arm.REPEAT, flipped=1),
            with_arm(audited, Arm.COLD, flipped=6),
        )
    )
    assert (found.repeated, found.repeat_flips, found.cold, found.cold_flips) == (100, 1, 100, 6)
    assert found.near_ties == 6
    assert found.excess == pytest.approx(0.05)
    assert -0.02 < found.excess_lower95 < 0.03
    assert found.asked == 384


EVIDENCE = Evidence(
    unreliable="broken",
    n=1000,
    mean=0.99,
    alpha=0.005,
    detect_pp=10,
    p_value=0.001,
    period=4,
    replicates=True,
    gap="12.0",
    mde_pp=8.0,
    periods=(2, 4),
)


def test_verdicts_are_tried_in_their_order() -> None:
    seen = EVIDENCE
    order = [decide(seen).verdict]
    changes: tuple[dict[str, Any], ...] = (
        {"unreliable": None},
        {"replicates": False},
        {"p_value": 0.2},
        {"mean": 0.5},
        {"mde_pp": 12.0},
    )
    for change in changes:
        seen = replace(seen, **change)
        order.append(decide(seen).verdict)
    assert order == [
        "unreliable",
        "phase-sensitive",
        "aperiodic",
        "saturated",
        "not-detected",
        "inconclusive",
    ]


def test_would_settle_scales_with_the_square() -> None:
    assert more_needed(1000, 20.0, 10.0) == 3000
    assert more_needed(5000, 11.2, 10.0) == 1300
    assert spelled((2, 3, 4, 5, 7, 8, 24)) == "2-5, 7, 8, 24"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.sampled_from([-1, 0, 1]),
            st.integers(0, 2),
            st.integers(0, 2),
            st.integers(0, 5),
        ),
        max_size=40,
    ),
    st.sampled_from(["insequence", "prefix"]),
)
def test_anything_gets_a_verdict(
    rows: list[tuple[int, int, int, int, int]], kind: DesignKind
) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5)
    n = len(columns)
    answers = Answers(
        position=columns[:, 0],
        correct=columns[:, 1].astype(np.int8),
        logprob=np.full(n, -np.inf),
        item=np.arange(n),
        block=columns[:, 2],
        context=columns[:, 3],
        pad=columns[:, 4],
        arm=np.full(n, "screen"),
        text=np.full(n, ""),
        margin=np.full(n, np.nan),
        question=np.full(n, -1),
        against=np.full(n, np.nan),
    )
    verdict = measure(answers, kind=kind)
    assert verdict.n == int((columns[:, 1] >= 0).sum())
    assert verdict.reason
    assert all(at.logprob is None for at in verdict.curve)


def test_targets_on_one_residue_are_inconclusive() -> None:
    answers = screen(1, 0.7, records=960)
    locked = answers.where(answers.position % 8 == 3)
    verdict = measure(locked)
    assert verdict.verdict == "inconclusive"
    assert verdict.mde_pp is None


def test_prefills_that_mix_residues_are_tested_only_for_what_they_share() -> None:
    rng = np.random.default_rng(0)
    answers = answer(prefix(rng), constant(0.7), rng)
    mixed = replace(answers, position=answers.position + 4 * (answers.item % 2))
    verdict = measure(mixed, kind="prefix")
    assert any("modulo 4" in note for note in verdict.notes)


def test_same_seed_same_verdict() -> None:
    answers = screen(4, 0.7)
    assert measure(answers, seed=3) == measure(answers, seed=3)
    other = measure(answers, seed=4)
    assert other.curve == measure(answers, seed=3).curve


def test_depth_is_a_note() -> None:
    def deep(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
        chance: NDArray[np.float64] = 0.9 - 0.5 * layout.depth
        return chance

    rng = np.random.default_rng(0)
    verdict = measure(answer(insequence(rng), deep, rng))
    assert verdict.verdict in {"inconclusive", "not-detected"}
    assert any("depth" in note for note in verdict.notes)


def test_logprobs_near_the_ceiling_are_a_note() -> None:
    rng = np.random.default_rng(0)
    answers = answer(insequence(rng, records=96), constant(1.0), rng)
    logprob = np.where(answers.position % 4 == 1, -0.02, -0.01) * rng.uniform(0.5, 1.5, 384)
    logprob[:5] = -np.inf
    verdict = measure(replace(answers, logprob=logprob))
    assert verdict.verdict == "saturated"
    assert any("modulo 4" in note for note in verdict.notes)


def test_speed_at_five_thousand_answers() -> None:
    answers = screen(1, 0.8, records=1250)
    start = time.process_time()
    measure(answers)
    assert time.process_time() - start < 8


def test_scipy_is_imported_late() -> None:
    code = "import kvphase.stats, sys; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
