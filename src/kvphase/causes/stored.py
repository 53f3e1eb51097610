"""Findings in a run file: as JSON, messages with their keys so that any language can say them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Message, message
from kvphase.causes.base import Finding
from kvphase.causes.minimal import Pair, Step

if TYPE_CHECKING:
    from collections.abc import Sequence


def packed(text: object) -> Any:  # noqa: ANN401 - as JSON wants it
    """A message with its key and values, those of its values that are messages too."""
    if isinstance(text, Message):
        values = {name: packed(value) for name, value in text.values.items()}
        return {"key": text.key, "values": values}
    return text


def unpacked(value: Any) -> Any:  # noqa: ANN401 - as JSON gives it
    """The reverse of `packed`."""
    if isinstance(value, dict) and set(value) == {"key", "values"}:
        values = {name: unpacked(inner) for name, inner in value["values"].items()}
        return message(value["key"], **values)
    return value


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """For the manifest; exhibits stay in the file's asks and answers."""
    return [
        {
            "cause": one.cause,
            "status": one.status,
            "evidence": packed(one.evidence),
            "would_have_seen": packed(one.would_have_seen),
            "p_value": one.p_value,
            "effect_pp": one.effect_pp,
            "ci95": one.ci95,
            "n": one.n,
        }
        for one in findings
    ]


def findings_of(values: Sequence[dict[str, Any]]) -> tuple[Finding, ...]:
    """As the manifest holds them."""
    return tuple(
        Finding(
            cause=value["cause"],
            status=value["status"],
            evidence=unpacked(value["evidence"]),
            would_have_seen=unpacked(value["would_have_seen"]),
            p_value=value["p_value"],
            effect_pp=value["effect_pp"],
            ci95=None if value["ci95"] is None else (value["ci95"][0], value["ci95"][1]),
            n=value["n"],
        )
        for value in values
    )


def pair_json(pair: Pair | None) -> dict[str, Any] | None:
    """For the manifest and a bundle."""
    return None if pair is None else asdict(pair)


def pair_of(value: dict[str, Any] | None) -> Pair | None:
    """As the manifest or a bundle holds it."""
    if value is None:
        return None
    first, second = (Step(**{**step, "prompt": tuple(step["prompt"])}) for step in value["steps"])
    return Pair(value["cause"], (first, second), value["shrunk_from"], value["own"])


__all__ = ["findings_json", "findings_of", "packed", "pair_json", "pair_of", "unpacked"]
