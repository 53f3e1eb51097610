"""What a run may cost, and what it has cost so far."""

from __future__ import annotations

from dataclasses import dataclass

from kvphase.errors import KvphaseError


class BudgetSpent(KvphaseError):
    """The budget is used up; what was measured is kept and reported as partial."""

    exit_code = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bounds, each None for no bound. Checked before each ask, so exceeded by one at most."""

    questions: int | None = None
    tokens: int | None = None
    """Prefilled plus generated tokens, by the runtime's own figures."""
    seconds: float | None = None

    def check(self, questions: int, tokens: int, seconds: float) -> None:
        """Raise BudgetSpent if this much spent leaves nothing."""
        spent = {
            "questions": (questions, self.questions),
            "tokens": (tokens, self.tokens),
            "seconds": (seconds, self.seconds),
        }
        for name, (used, bound) in spent.items():
            if bound is not None and used >= bound:
                raise BudgetSpent(f"the budget of {bound:g} {name} is used up")
