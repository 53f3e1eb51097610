"""Names that try to be something else, and documents full of them."""

from __future__ import annotations

from typing import Any

from documents import facts, full
from kvphase.report.facts import PageFacts, WrongAnswer
from kvphase.schema import VerdictFile

NAMES = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b]8;;http://example.com\x07",
    "</script></style></title></svg><svg onload=alert(1)>",
    "{{777*7}}{% for x in y %}",
    "datum.x",
    "right\u202eleft\u2066",
    "]]><!--\u2028\u2029",
    "javascript:alert(1)",
    "&lt;b&gt;&#60;i&#62;",
    "\N{PLACE OF INTEREST SIGN}" * 300,
    "=cmd|' /C calc'!A0",
)


def document(name: str, **changed: object) -> VerdictFile:
    """A full document in which every free text is ``name``."""
    values: dict[str, Any] = full(demo=True).model_dump(by_alias=True)
    for key in ("target", "runtime", "build", "model", "quant", "template", "thinking", "digest"):
        values[key] = name
    values.update(reason=name, would_settle=name, labels={name: name}, notes=[name])
    values["design"] = name
    values["gap"]["over"] = name
    for length in values["per_length"]:
        length.update(reason=name, notes=[name], design=name)
    values["per_length"][0]["rung"] = name
    for rung in values["skipped"]:
        rung.update(rung=name, why=name)
    values["confirm"]["reason"] = values["confirm"]["rung"] = name
    return VerdictFile.model_validate({**values, **changed})


def page_facts(name: str) -> PageFacts:
    """Facts whose file name and wrong answers are ``name``."""
    return facts(run=name, wrong=(WrongAnswer(name, 3),))
