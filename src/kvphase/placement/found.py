"""What is wanted of a layout, and what was found: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvphase.placement.change import Way
    from kvphase.placement.filler import Put
    from kvphase.placement.grid import Grid, Stand
    from kvphase.placement.profile import Profile
    from kvphase.placement.prompt import Kind
    from kvphase.runs.shift_source import Source
    from kvphase.types import CurvePoint

Basis = Literal["profile", "windows", "flat", "full", "nothing", "unknown"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is known of the model, and what is wanted."""

    grid: Grid | None
    """None where the model does not compress, or nobody said how."""
    profile: Profile | None
    full: bool = False
    """The target says of itself that it does not compress."""
    assumed: bool = False
    """Nobody said how large a window is: it is taken as the stride."""
    way: Way = "pad"
    seed: int = 0

    @property
    def basis(self) -> Basis:
        """What a change rests on: a curve, window edges alone, or nothing at all.

        ``flat`` and ``full``: nothing is to be gained; ``nothing``: the profile cannot tell;
        ``unknown``: no stride is known.
        """
        if self.profile is not None:
            return "profile" if self.profile.says == "phase" else self.profile.says
        if self.full:
            return "full"
        return "unknown" if self.grid is None or self.grid.stride == 1 else "windows"

    @property
    def period(self) -> int:
        """What positions are taken modulo when places are compared; 1 where none is better."""
        if self.basis == "profile" and self.profile is not None:
            return self.profile.period or 1
        return self.grid.stride if self.basis == "windows" and self.grid is not None else 1


@dataclass(frozen=True, slots=True)
class Option:
    """One way to change one span alone."""

    way: Way
    possible: bool
    tokens: int
    """That it would add."""
    starts: tuple[int, ...]
    """Where the span (and its copy) would stand."""
    expected: float | None
    """Accuracy at the (better) phase by the profile; None where none is claimed."""
    least: float | None = None
    """Of a repeated span: the same for the least lucky prefix."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One span before and after."""

    kind: Kind
    text: str
    before: Stand
    after: Stand | None
    """None where it was not looked up: another span was moved from before it."""
    copy: int | None
    """Start of its copy after the change, if it was repeated."""
    straddles: bool | None
    """Whether no single window holds it as it is; None without a grid."""
    straddles_after: bool | None
    near: bool
    """It stands in the local window before the prompt's end, where nothing is compressed yet."""
    claim: CurvePoint | None
    """What the profile says of its phase; None where nothing may be claimed."""
    claim_after: CurvePoint | None
    options: tuple[Option, ...]
    cheapest: Way | None
    """The way that changes least; None where nothing is to be gained or known."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One prompt laid out."""

    name: str
    total: int
    total_after: int
    basis: Basis
    grid: Grid | None
    period: int
    way: Way
    marked: bool
    spans: tuple[Placed, ...]
    puts: tuple[Put, ...]
    """Filler of the joint solution, in the order of the prompt."""
    source: Source
    """As it is, without marks."""
    changed: Source
    ids: tuple[int, ...]
    ids_after: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the changed prompt is another one."""
        return self.ids != self.ids_after


__all__ = ["Basis", "Layout", "Option", "Placed", "Wanted"]
