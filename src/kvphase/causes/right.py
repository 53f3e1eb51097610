"""Are answers right less often when asked in another way? The same questions, paired."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.causes.base import LEVEL, POWER, Exhibit, Finding
from kvphase.causes.exact import detectable, sign_p
from kvphase.causes.flips import SHOWN, seen_from
from kvphase.stats.intervals import Z_TWO_SIDED_95

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.causes.flips import Key, Row


@dataclass(slots=True)
class Losses:
    """Questions answered in both ways."""

    n: int = 0
    first: int = 0
    """Right in the first way."""
    second: int = 0
    """Right in the second."""
    lost: list[Key] = field(default_factory=list)
    """Right only in the first."""
    won: int = 0
    """Right only in the second."""

    def add(self, one: dict[Key, Row], two: dict[Key, Row]) -> None:
        """Count the questions that have both answers."""
        for key, row in one.items():
            if key not in two:
                continue
            right, other = bool(row.correct), bool(two[key].correct)
            self.n += 1
            self.first += right
            self.second += other
            self.won += other and not right
            if right and not other:
                self.lost.append(key)

    @property
    def drop(self) -> float:
        """Accuracy in the first way minus that in the second."""
        return (len(self.lost) - self.won) / max(1, self.n)

    @property
    def ci95(self) -> tuple[float, float]:
        """Of the drop in percentage points: normal, by the variance of the paired differences."""
        n = max(1, self.n)
        variance = max(0.0, (len(self.lost) + self.won) / n - self.drop**2) / n
        half = Z_TWO_SIDED_95 * variance**0.5
        return 100 * (self.drop - half), 100 * (self.drop + half)


def loss_finding(
    cause: str,
    seen: Losses,
    least: float,
    smallest: float | None = None,
    *,
    tests: int = 1,
    both_ways: bool = False,
    exhibits: Sequence[Exhibit] = (),
) -> Finding:
    """Found where the second way is right less often; in ``both_ways`` also where more often.

    Args:
        cause: Its name; the catalogue says what the two ways are.
        seen: The answers.
        least: Smaller drops are not found.
        smallest: What would have been seen, where the design and not these answers says it.
        tests: Of this cause, of which this is the most significant.
        both_ways: Two-sided.
        exhibits: Questions that show it.
    """
    lost, won = len(seen.lost), seen.won
    more, fewer = (max(lost, won), min(lost, won)) if both_ways else (lost, won)
    tests = 2 * tests if both_ways else tests
    p = min(1.0, tests * sign_p(more, fewer))
    size = abs(seen.drop) if both_ways else seen.drop
    found = p <= LEVEL and size >= least
    noise = min(lost, won) / max(1, seen.n)
    sight = detectable(seen.n, noise, POWER, LEVEL / tests) if smallest is None else smallest
    low, high = seen.ci95
    return Finding(
        cause=cause,
        status="found" if found else "not-found",
        evidence=message(
            "diagnose.loss",
            one=message(f"diagnose.way.{cause}.first"),
            two=message(f"diagnose.way.{cause}.second"),
            first=100 * seen.first / max(1, seen.n),
            second=100 * seen.second / max(1, seen.n),
            n=seen.n,
            pp=100 * seen.drop,
            low=low,
            high=high,
            p=p,
        ),
        would_have_seen=seen_from(sight, "loss"),
        p_value=p,
        effect_pp=100 * seen.drop,
        ci95=(low, high),
        n=seen.n,
        exhibits=tuple(exhibits[:SHOWN]) if found else (),
    )


__all__ = ["Losses", "loss_finding"]
