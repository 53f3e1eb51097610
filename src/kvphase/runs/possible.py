"""What an endpoint cannot do, taken out of a run and said with its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from kvphase.runs.settings import Settings
    from kvphase.runs.store import Store
    from kvphase.types import Runtime

__all__ = ["note_endpoint", "notes_of", "possible"]

FEW, SHARE = 3, 0.05
"""Questions, and share of all, that may lose their prefix without a word."""


def possible(settings: Settings, runtime: Runtime) -> Settings:
    """The settings without what this endpoint cannot do.

    An endpoint that puts its template around everything is a chat, whether that was asked for or
    not. Where no single question can be made to bypass the cache, none is asked cold: another
    prompt of the same length would be another question.

    Raises:
        UsageError: cold questions were asked for.
    """
    if runtime.about.template != "none":
        settings = replace(settings, chat=True)
    if runtime.limits.cold:
        return settings
    if settings.cold:
        raise UsageError(message("run.no-cold"))
    frozen = tuple({**one, "cold": 0} if "cold" in one else one for one in settings.frozen)
    return replace(settings, cold=0, frozen=frozen)


def note_endpoint(store: Store, runtime: Runtime) -> None:
    """Keep with the run what its notes need; sittings add up."""
    limits, before = runtime.limits, store.manifest.get("endpoint", {})
    lost = getattr(runtime, "lost_prefix", 0)
    store.note(
        endpoint={
            "lost_prefix": before.get("lost_prefix", 0) + lost,
            "offset_known": limits.offset_known,
            "counted": limits.counted,
            "cold": limits.cold,
        }
    )


def notes_of(manifest: dict[str, Any], asked: int) -> tuple[str, ...]:
    """What the endpoint could not do, as far as it bears on the verdict.

    Args:
        manifest: Of the run.
        asked: Questions answered.
    """
    told = manifest.get("endpoint")
    if told is None:
        return ()
    lost = int(told["lost_prefix"])
    found = {
        "note.lost-prefix": lost >= FEW and lost > SHARE * asked,
        "note.rotation": not told["offset_known"] and told["counted"],
        "note.uncounted": not told["counted"],
        "note.no-cold": not told["cold"],
    }
    return tuple(message(key, lost=lost, asked=asked) for key, holds in found.items() if holds)
