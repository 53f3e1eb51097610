"""Settings from YAML or JSON into dataclasses, refusing by the field's name what does not fit."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["fill"]

T = TypeVar("T")


def fill(kind: type[T], data: Mapping[str, Any], where: str) -> T:
    """Make the dataclass ``kind`` from ``data``; what is missing keeps its default.

    Args:
        kind: A dataclass whose fields are numbers, texts, truth values, their tuples, or anything
            that was made already.
        data: Values by field.
        where: What the fields belong to, for messages: ``compressor``, ``train``.

    Raises:
        UsageError: A field is unknown, missing or of another type; or ``kind`` refuses it.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in data:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known) or '-'}"
            raise UsageError(f"{where}.{name} is not a setting{hint}")
    hints = get_type_hints(kind)
    values = {name: _fitting(value, hints[name], f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:  # a field without a default
        raise UsageError(f"{where}: {error}") from error


def _fitting(value: Any, hint: Any, where: str) -> Any:  # noqa: ANN401 - any setting
    from pydantic import TypeAdapter, ValidationError  # late: only settings from files need it

    if not isinstance(value, str | int | float | bool | list | tuple | None):
        return value
    try:
        # Not strict: YAML reads 3e-4 as text and writes tuples as lists. But yes is no number.
        if isinstance(value, bool) and hint in (int, float):
            raise UsageError(f"{where} must be a number, is {value}")
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UsageError(f"{where}: {problem}, is {value!r}") from error
