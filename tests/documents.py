"""Documents and facts as reports get them, made by hand: a full run, imported rows, a flip only."""

from __future__ import annotations

from typing import Any

from kvphase.report.facts import Count, DepthCell, PageFacts, WrongAnswer
from kvphase.schema import VerdictFile
from kvphase.stats.intervals import wilson

RIGHT = (228, 289, 241, 140, 233, 284, 246, 151)
ASKED = 360


def points(correct: tuple[int, ...] = RIGHT, n: int = ASKED) -> list[dict[str, Any]]:
    """A curve of ``PointJson`` values."""
    return [
        {
            "residue": r,
            "n": n,
            "correct": c,
            "accuracy": c / n if n else 0.0,
            "ci95": wilson(c, n),
            "logprob": None,
        }
        for r, c in enumerate(correct)
    ]


def _phase(curve: list[dict[str, Any]], pick: Any) -> dict[str, Any]:  # noqa: ANN401 - min or max
    point = pick(curve, key=lambda p: p["accuracy"])
    return {"residue": point["residue"], "accuracy": point["accuracy"]}


def _audit(**changed: object) -> dict[str, Any]:
    return {
        "repeated": 100,
        "repeat_flips": 1,
        "cold": 100,
        "cold_flips": 2,
        "near_ties": 2,
        "alone": 100,
        "alone_flips": 0,
        "excess": 0.01,
        "excess_lower95": 0.0,
        "unfinished": 0,
        "asked": 3180,
        **changed,
    }


def _balance() -> dict[str, Any]:
    return {
        "residue": list(range(8)),
        "n": [ASKED] * 8,
        "mean_depth": [0.501, 0.499, 0.5, 0.5, 0.502, 0.498, 0.5, 0.5],
        "sd_depth": [0.284, 0.285, 0.284, 0.283, 0.285, 0.284, 0.284, 0.285],
        "worst_mean": 0.002,
        "worst_variance": 0.006,
    }


def length(rung: str, correct: tuple[int, ...], **changed: object) -> dict[str, Any]:
    """One rung; ``changed`` overrides fields."""
    curve = points(correct)
    tokens = int(rung.removeprefix("needle-")) if rung.startswith("needle-") else None
    return {
        "rung": rung,
        "context_tokens": tokens,
        "design": "insequence" if tokens else rung,
        "records": 96 if tokens else None,
        "modulus": len(curve),
        "adapted": bool(tokens),
        "partial": False,
        "verdict": "phase-sensitive",
        "reason": "Accuracy depends on position modulo 4 (p = 0.0001), the same way in even and "
        "odd cycles; the gap is 39.1 [35.2, 42.9] points.",
        "would_settle": None,
        "period": 4,
        "p_value": 0.0001,
        "mean": sum(correct) / (len(curve) * ASKED),
        "worst": _phase(curve, min),
        "best": _phase(curve, max),
        "mde_pp": 6.2,
        "gap": {
            "raw_pp": 41.4,
            "null_pp": 7.4,
            "crossfit_pp": 39.1,
            "ci95": (35.2, 42.9),
            "over": "contexts",
        },
        "curve": curve,
        "n": len(curve) * ASKED,
        "contexts": 30,
        "looks": [],
        "fresh": bool(changed.get("looks")),
        "audit": _audit(),
        "notes": [],
        "balance": _balance() if tokens else None,
        "tokens": {"prefilled": 251_000, "cached": 23_000_000, "generated": 2880},
        "seconds": 214.2,
        **changed,
    }


def _tail() -> dict[str, Any]:
    return {
        "status": "flat",
        "margin_pp": 10.0,
        "largest_pp": 2.6,
        "upper_pp": 7.9,
        "curve": points((226, 231, 229, 224)),
        "n": 4 * ASKED,
    }


def confirm() -> dict[str, Any]:
    """A confirmation: the effect follows the target."""
    return {
        "rung": "needle-8192",
        "status": "follows-target",
        "reason": "Answers change with the target's position and not with the question's.",
        "period": 4,
        "factors": [
            {
                "name": "target",
                "p_value": 0.0001,
                "gap_pp": 37.9,
                "effect_pp": (-0.8, 14.2, 5.1, -18.5),
                "mde_pp": 7.1,
            },
            {
                "name": "question",
                "p_value": 0.41,
                "gap_pp": 2.7,
                "effect_pp": (1.2, -1.5, 0.6, -0.3),
                "mde_pp": 7.4,
            },
            {
                "name": "distance",
                "p_value": 0.66,
                "gap_pp": 1.9,
                "effect_pp": (-0.9, 0.1, 1.0, -0.2),
                "mde_pp": 7.3,
            },
        ],
        "curve": points((230, 286, 243, 145)),
        "tail": _tail(),
        "n": 1440,
        "contexts": 24,
        "partial": False,
    }


def _document(main: dict[str, Any], **changed: object) -> VerdictFile:
    shared = {
        name: main[name]
        for name in (
            *("verdict", "reason", "would_settle", "period", "p_value", "gap", "mean", "worst"),
            *("best", "mde_pp", "curve", "audit", "looks", "tokens", "seconds", "n", "contexts"),
            *("balance", "design", "context_tokens", "records", "modulus", "adapted", "partial"),
            *("rung", "fresh"),
        )
    }
    return VerdictFile.model_validate(
        {
            "schema": "kvphase/verdict@1",
            "kvphase": "0.3.0",
            "target": "http://127.0.0.1:8080",
            "runtime": "llama.cpp",
            "build": "b7312",
            "model": "DeepSeek-V4-Flash-Base",
            "quant": "Q4_K_M",
            "template": "none",
            "thinking": "off",
            "labels": {},
            "seed": 0,
            "rotation_known": True,
            "measure": "accuracy",
            "alpha": 0.005,
            "per_length": [main],
            "skipped": [],
            "confirm": None,
            "traffic": False,
            "digest": "4f1d9a6be1c07733",
            "notes": [],
            "demo": False,
            **shared,
            **changed,
        }
    )


def full(**changed: object) -> VerdictFile:
    """Three rungs, a confirmed finding, a skipped rung, looks and notes."""
    main = length(
        "needle-8192",
        RIGHT,
        looks=[
            {"n": 720, "p_value": 0.004, "weight": 0.1},
            {"n": 1440, "p_value": 0.0004, "weight": 0.2},
        ],
    )
    flip = length("flip", (288, 309, 302, 262, 291, 306, 299, 265), gap={**main["gap"]})
    short = length(
        "needle-2048",
        (316, 322, 314, 309, 318, 321, 311, 313),
        verdict="not-detected",
        reason="No dependence on position (p = 0.31).",
        period=None,
        p_value=0.31,
        gap={"raw_pp": 3.6, "null_pp": 5.2, "crossfit_pp": None, "ci95": None, "over": None},
    )
    return _document(
        main,
        **{
            "per_length": [flip, short, main],
            "skipped": [
                {"rung": "needle-32768", "why": "it needs about 31 minutes; 9 are left"},
                {"rung": "needle-131072", "why": "the server's context is 65,536 tokens"},
            ],
            "confirm": confirm(),
            "notes": ["Accuracy falls with depth by 4 points from the start to the end."],
            **changed,
        },
    )


def imported(**changed: object) -> VerdictFile:
    """Results of somebody else's harness: no runtime, no context, no audit."""
    nothing = dict.fromkeys(_audit(), 0)
    main = length(
        "imported",
        RIGHT,
        design="imported",
        adapted=False,
        audit=nothing,
        contexts=0,
        seconds=None,
        tokens={"prefilled": None, "cached": None, "generated": None},
    )
    gone = dict.fromkeys(("runtime", "build", "model", "quant", "template", "thinking", "digest"))
    return _document(main, **{**gone, "target": "results.csv", **changed})


def flip_only(**changed: object) -> VerdictFile:
    """An interrupted run of a toy that got no further than the completion flip."""
    main = length(
        "flip",
        (21, 30, 24, 13, 22, 29, 25, 14),
        curve=points((21, 30, 24, 13, 22, 29, 25, 14), 40),
        worst={"residue": 3, "accuracy": 13 / 40},
        best={"residue": 1, "accuracy": 30 / 40},
        mean=0.55,
        verdict="inconclusive",
        reason="Too few answers.",
        would_settle="about 900 more answers",
        period=None,
        p_value=0.08,
        mde_pp=24.0,
        gap={"raw_pp": 42.5, "null_pp": 22.1, "crossfit_pp": None, "ci95": None, "over": None},
        n=320,
        contexts=8,
        partial=True,
        audit=_audit(cold=0, cold_flips=0, alone=0, repeated=8, repeat_flips=0, asked=320),
    )
    why = {"rung": "needle-2048", "why": "interrupted"}
    return _document(
        main,
        **{"target": "toy:w8s4", "model": "toy:w8s4", "quant": None, "runtime": "toy"},
        **{"demo": True, "skipped": [why], **changed},
    )


def facts(**changed: Any) -> PageFacts:  # noqa: ANN401 - fields of PageFacts
    """Facts that fit ``full``."""
    cells = tuple(
        DepthCell(
            depth, r, 45, min(45, round(45 * RIGHT[r] / ASKED) - depth // 2 + (r + depth) % 3)
        )
        for depth in range(8)
        for r in range(8)
    )
    folded = tuple(Count(r, 2 * ASKED, RIGHT[r] + RIGHT[r + 4]) for r in range(4))
    values: dict[str, Any] = {
        "run": "DeepSeek-V4-Flash-Base.kvphase",
        "edges": tuple(i / 8 for i in range(9)),
        "depth": cells,
        "folded": folded,
        "wrong": (WrongAnswer(" Felix", 41), WrongAnswer("\n", 9)),
        "wrong_in_all": 1068,
        **changed,
    }
    return PageFacts(**values)
