"""antirez' ``ds4-server`` (mid 2026): chat of text, cache counts, no scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kvphase.serve.dialects.chat import Chat

if TYPE_CHECKING:
    from kvphase.serve.front import Json
    from kvphase.serve.job import Job

__all__ = ["Ds4"]


class Ds4(Chat):
    """One model under any name; thinking is on unless it is switched off."""

    owner: ClassVar[str] = "ds4.c"

    def card(self) -> Json:
        """The model's entry in the list."""
        context = self.engine.context_tokens
        return super().card() | {"name": self.engine.name, "context_length": context}

    def check_model(self, body: Json) -> None:
        """Every name is an alias of the model that is loaded."""

    def logprobs(self, job: Job, places: range) -> Json | None:
        """None: only the command line knows scores."""
        return None
