"""What can go wrong with a server, on purpose and repeatably.

Each fault is off by default. Whether one strikes depends only on the seed, the fault and the
request's ordinal (or, for answers that must be wrong each time, its prompt), never on time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvphase.errors import UsageError
from kvphase.runtimes.toy import Scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FAULT_HELP", "Faults", "draw"]

RESIDUES = 4
"""The question's residue is taken modulo this: the stride of the shipped toys."""

Chance = Literal["error", "limit", "reset", "half", "empty", "random"]

_FIELDS = {
    "refuse": "refuse",
    "loading": "loading",
    "html": "html",
    "5xx": "error",
    "429": "limit",
    "reset": "reset",
    "half-json": "half",
    "empty": "empty",
    "cut": "cut",
    "forget-cache": "forget",
    "wrong-on-hit": "wrong_on_hit",
    "random": "random",
    "prefill-split": "split",
    "question-residue": "residue",
    "restart": "restart",
    "busy": "busy",
    "batch": "batch",
    "decode": "decode",
    "speculative": "speculative",
    "long": "long",
    "level": "level",
    "after": "after",
    "seed": "seed",
}
_COUNTS = {"cut": 2, "residue": 0, "restart": 0, "long": 1, "after": 0, "seed": 0}
"""Fields that hold a count, with the least that makes sense."""

FAULT_HELP = (
    "refuse, loading, html, 5xx=P, 429=P, reset=P, half-json=P, empty=P, cut=TOKENS, "
    "forget-cache, wrong-on-hit=P, prefill-split=P, random=P, question-residue=R, "
    "restart=REQUESTS, busy=P, batch=P, decode=P, speculative=P, long=TOKENS, level=P, "
    "after=REQUESTS, seed=N (P: a probability, 1 if left out)"
)


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults that are switched on. Probabilities are per completion request, in [0, 1]."""

    refuse: bool = False
    """Connections are closed without an answer (on a socket only)."""
    loading: bool = False
    """Every path answers 503, as a server does that still loads its model."""
    html: bool = False
    """Every path answers 200 with an HTML page, as a proxy's login page does."""
    error: float = 0.0
    """A completion fails with 500 before any work."""
    limit: float = 0.0
    """A completion is turned away with 429 and a ``Retry-After``."""
    reset: float = 0.0
    """The connection breaks in the middle of a completion's answer."""
    half: float = 0.0
    """Half of a completion's JSON arrives, as a complete response."""
    empty: float = 0.0
    """The model ends its answer at once: no text, no scores."""
    cut: int | None = None
    """Longer prompts are silently cut to BOS and their last tokens, this many in all."""
    forget: bool = False
    """Nothing is ever reused, whatever the request allows; the counts say so."""
    wrong_on_hit: float = 0.0
    """Part of the prompts that are answered wrong when any of their tokens came from the cache."""
    split: float = 0.0
    """Part of the prompts that are answered wrong when a piece of their prefill began inside a
    group of four tokens, as it does behind most cached prefixes."""
    random: float = 0.0
    """A completion's answer is replaced by another value, each time by a new one."""
    residue: int | None = None
    """Prompts whose length modulo 4 is this are answered wrong."""
    restart: int | None = None
    """The answer to this completion request (from 0) breaks off; from then on the server has
    another toy model and an empty cache."""
    busy: float = 0.0
    """Part of the looks at ``/slots`` that find another client at work in a second slot."""
    batch: float = 0.0
    """Part of the prompts that are answered wrong beside another request; there are two slots."""
    decode: float = 0.0
    """Part of the prompts whose answers take the second-best token from the second one on."""
    speculative: float = 0.0
    """As ``decode``, from the third token on: where drafts take part."""
    long: int | None = None
    """Prompts of more tokens than this are answered wrong."""
    level: float = 0.0
    """Part of the prompts, answer tokens so far included, behind which the next token is a wrong
    one, as a coarser model has it."""
    after: int = 0
    """All of these begin only after so many completion requests."""
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not 0 <= value <= 1:
                raise UsageError(f"fault {field.name}: {value} is not a probability")
            if field.name in _COUNTS and value is not None and value < _COUNTS[field.name]:
                raise UsageError(f"fault {field.name}: {value} is below {_COUNTS[field.name]}")
        if self.residue is not None and self.residue >= RESIDUES:
            raise UsageError(f"fault residue: {self.residue} is not below {RESIDUES}")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Faults:
        """Read faults such as ``reset=0.01,cut=1024`` and ``forget-cache``; all texts add up.

        Raises:
            UsageError: a fault is unknown, given twice, or has a value it cannot have.
        """
        values: dict[str, bool | float | int] = {}
        for part in ",".join(texts).split(","):
            if not part.strip():
                continue
            name, _, value = part.strip().partition("=")
            if name not in _FIELDS:
                raise UsageError(f"there is no fault called {name!r}; there are: {FAULT_HELP}")
            if _FIELDS[name] in values:
                raise UsageError(f"the fault {name} is given twice")
            values[_FIELDS[name]] = _value(name, value)
        return cls(**values)  # type: ignore[arg-type]  # the kinds are those of _value

    def strikes(self, fault: Chance, request: int) -> bool:
        """Whether a fault hits the completion request with this ordinal (from 0)."""
        chance: float = getattr(self, fault)
        return chance > 0 and self.active(request) and draw(self.seed, fault, request) < chance

    def intrudes(self, look: int, request: int) -> bool:
        """Whether another client is at work at this look at the slots (from 0)."""
        return self.active(request) and draw(self.seed, "busy", look) < self.busy

    def active(self, request: int) -> bool:
        """Whether the faults have begun when ``request`` completions were asked before."""
        return request >= self.after

    def shorten(self, prompt: tuple[int, ...], request: int) -> tuple[int, ...]:
        """The prompt as the server takes it: cut, where that fault is on."""
        if self.cut is None or len(prompt) <= self.cut or not self.active(request):
            return prompt
        return prompt[:1] + prompt[len(prompt) - self.cut + 1 :]

    def shift(
        self, prompt: Sequence[int], reused: int, request: int, *, crowded: bool = False
    ) -> float:
        """How far the answer is moved away from the model's own: 0 not at all, else in (0, 1].

        Args:
            prompt: The prompt's ids.
            reused: How many of them came from the cache.
            request: The request's ordinal.
            crowded: Another request was under way besides.
        """
        if not self.active(request):
            return 0.0
        if self.strikes("random", request):
            return 1 - draw(self.seed, "value", request)
        if self._is_wrong(prompt, reused, crowded) or len(prompt) % RESIDUES == self.residue:
            return 1 - draw(self.seed, "value", *prompt)
        return 0.0

    def coarse(self, tokens: Sequence[int], request: int) -> float:
        """As `shift`, for the token behind ``tokens``: it is wrong whoever evaluated them how."""
        hit = self.level > 0 and self.active(request)
        if not hit or self.level <= draw(self.seed, "level", *tokens):
            return 0.0
        return 1 - draw(self.seed, "value", *tokens)

    def swaps(self, prompt: Sequence[int], place: int, request: int) -> bool:
        """Whether the answer's token at ``place`` (from 0) is the second-best one."""
        chances = {"decode": (self.decode, 1), "speculative": (self.speculative, 2)}
        return self.active(request) and any(
            place >= first and chance > 0 and draw(self.seed, name, *prompt) < chance
            for name, (chance, first) in chances.items()
        )

    def _is_wrong(self, prompt: Sequence[int], reused: int, crowded: bool) -> bool:
        """Whether a fault that chooses its prompts hits this one."""
        if self.long is not None and len(prompt) > self.long:
            return True
        chances = {
            "hit": self.wrong_on_hit if reused else 0.0,
            "split": self.split if reused % RESIDUES else 0.0,
            "batch": self.batch if crowded else 0.0,
        }
        return any(
            chance > 0 and draw(self.seed, name, *prompt) < chance
            for name, chance in chances.items()
        )


def displace(scores: Scores, values: Sequence[int], shift: float) -> Scores:
    """Exchange the scores of the ``values`` among each other, so that another one is best.

    Args:
        scores: The model's own scores.
        values: The ids that an answer may be.
        shift: From `Faults.shift`; 0 leaves the scores as they are.
    """
    if shift == 0 or len(values) < 2:
        return scores
    places = np.asarray(values)
    moved = scores.logprobs.copy()
    moved[places] = np.roll(moved[places], 1 + int((1 - shift) * (len(values) - 1)))
    return Scores(moved)


def swap_best(scores: Scores) -> Scores:
    """Exchange the scores of the best and of the second-best token."""
    moved = scores.logprobs.copy()
    second, best = np.argsort(moved, kind="stable")[-2:]
    moved[[second, best]] = moved[[best, second]]
    return Scores(moved)


def draw(*what: int | str) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _value(name: str, text: str) -> bool | float | int:
    """The value of one fault as its field holds it."""
    field = _FIELDS[name]
    default = getattr(Faults(), field)
    try:
        if isinstance(default, bool):
            if text:
                raise ValueError
            return True
        if field == "residue" and not text:
            return RESIDUES - 1
        if field in _COUNTS:
            return int(text)
        return float(text) if text else 1.0
    except ValueError:
        raise UsageError(f"the fault {name} cannot have the value {text!r}") from None
