"""The JSON of llama.cpp's ``llama-server``: what is read of it, and what it says.

Only the fields that kvphase uses are checked; newer servers may send more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes.http import is_loopback
from kvphase.runtimes.scores import Score, ranked, value
from kvphase.types import About

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

M = TypeVar("M", bound=BaseModel)

LONGEST_NAME = 200
"""Characters of a model's name that are kept."""
QUANT = re.compile(
    r"(?:^|[-._])((?:I?Q\d|TQ\d|MXFP\d|BF16|F16|F32)(?:_[A-Z0-9]+)*)(?=[-._]|$)", re.I
)


class Timings(BaseModel):
    """How a prompt was evaluated."""

    cache_n: int | None = None
    """Prompt tokens from the cache."""
    prompt_n: int | None = None
    """Prompt tokens evaluated."""


class Listed(BaseModel):
    """One possible next token."""

    token: str = ""
    logprob: float | None = None  # JSON has no -inf: null stands for it


class Scores(BaseModel):
    """The likeliest next tokens at one place of the answer."""

    top_logprobs: list[Listed] = []


class Event(BaseModel):
    """One event of a streamed completion; the last one has ``stop`` and the figures."""

    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: str = "limit"
    truncated: bool = False
    tokens_predicted: int = 0
    tokens_evaluated: int | None = None
    completion_probabilities: list[Scores] = []
    timings: Timings = Timings()


class Settings(BaseModel):
    """Of one slot."""

    n_ctx: int


class ToyFacts(BaseModel):
    """What a served toy model adds to its properties."""

    local_window: int | None = None


class Props(BaseModel):
    """What ``/props`` says."""

    default_generation_settings: Settings
    total_slots: int = 1
    endpoint_slots: bool = True
    """Whether ``/slots`` answers; servers that do not say are asked."""
    model_alias: str = ""
    model_path: str = ""
    model_ftype: str | None = None
    build_info: str | None = None
    bos_token: str = ""
    kvphase: ToyFacts = ToyFacts()


class Tokens(BaseModel):
    """What ``/tokenize`` answers."""

    tokens: list[int]


class Prompt(BaseModel):
    """What ``/apply-template`` answers."""

    prompt: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion put together from its events."""

    text: str
    scores: tuple[Score, ...]
    """Of the first answer token, best first."""
    last: Event
    tokens: tuple[int, ...] = ()
    """The answer's ids, where the server gives them."""


def read(model: type[M], data: dict[str, Any]) -> M:
    """Check the server's JSON against what is needed of it."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise RuntimeFault(message("runtime.odd-field", field=field)) from error


def joined(events: Sequence[Event]) -> Answer:
    """One answer from its events.

    Raises:
        TransientFault: the last event is missing.
    """
    if not events or not events[-1].stop:
        raise TransientFault(message("runtime.stops-early"))
    scores = next(
        (e.completion_probabilities[0] for e in events if e.completion_probabilities), Scores()
    )
    found = ranked([Score(one.token, value(one.logprob)) for one in scores.top_logprobs])
    text = "".join(event.content for event in events)
    tokens = tuple(token for event in events[:-1] for token in event.tokens)
    return Answer(text, found, events[-1], tokens or tuple(events[-1].tokens))


def check_count(last: Event, size: int) -> None:
    """Stop if the server evaluated another number of prompt tokens than it was sent.

    Raises:
        RuntimeFault: it cut the prompt or added to it; every position would be wrong.
    """
    timings = last.timings
    counts = [last.tokens_evaluated]
    if timings.cache_n is not None and timings.prompt_n is not None:
        counts.append(timings.cache_n + timings.prompt_n)
    other = next((count for count in counts if count not in (None, size)), None)
    if other is not None:
        raise RuntimeFault(message("runtime.cut", other=other, size=size))
    if last.truncated:
        raise RuntimeFault(message("runtime.truncated", size=size))


def about(address: httpx2.URL, props: Props) -> About:
    """Describe the server without its host name and without directories."""
    toy = props.model_alias.startswith("toy:")
    name = (
        props.model_alias
        if toy
        else file_name(props.model_path or props.model_alias)[:LONGEST_NAME]
    )
    host = address.host if is_loopback(address.host) else "host"
    quant = QUANT.search(name.removesuffix(".gguf"))
    return About(
        target=f"{address.scheme}://{host}" + (f":{address.port}" if address.port else ""),
        runtime="llama-server",
        build=props.build_info,
        model=name or None,
        quant=props.model_ftype or (quant[1].upper() if quant else None),
        toy=toy,
        extra={"slots": str(props.total_slots)},
    )


def file_name(path: str) -> str:
    """The last part of a path of either kind."""
    return PurePosixPath(path.replace("\\", "/")).name
