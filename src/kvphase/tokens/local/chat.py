"""Chat templates as Hugging Face models bring them: Jinja, in a sandbox.

The variables, filters and extensions are those of transformers' ``apply_chat_template``:
``messages``, ``tools``, ``documents``, ``add_generation_prompt``, the special tokens by name,
``raise_exception``, ``strftime_now``, ``tojson`` that escapes nothing, ``break`` and ``continue``.
"""

from __future__ import annotations

import datetime
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

__all__ = ["JinjaChat"]

THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""What templates call it; one that knows neither ignores both."""
MESSAGE_CHARACTERS = 200


class JinjaChat:
    """A chat template's source and the special tokens it may name."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        """Keep both; the source is compiled when it is first needed."""
        self._source = source
        self._special = dict(special)

    def render(self, body: Mapping[str, Any]) -> str:
        """The request ``body`` as text; thinking off unless ``chat_template_kwargs`` says so.

        Raises:
            UsageError: the template is none, or it refuses the messages.
        """
        settings = {**THINKING_OFF, **(body.get("chat_template_kwargs") or {})}
        given = {
            "messages": body["messages"],
            "tools": body.get("tools"),
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._template.render({**self._special, **given, **settings})
        except UsageError:
            raise
        except Exception as error:  # a template is a program and raises what it likes
            raise _refusal(error) from error

    @cached_property
    def _template(self) -> Template:
        from jinja2 import TemplateSyntaxError  # late: most commands do without
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation()]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
        try:
            return environment.from_string(self._source)
        except TemplateSyntaxError as error:
            raise _refusal(error) from error


def _generation() -> type[Any]:
    """Jinja's ``{% generation %}``, which marks answers and prints nothing."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - as the base class has it

        def parse(self, parser: Any) -> nodes.Node:  # noqa: ANN401 - jinja2 hides its type
            line = next(parser.stream).lineno
            inner = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(inner).set_lineno(line)

    return Generation


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(words: str) -> None:
    raise UsageError(message("tokenizer.template-refuses", why=str(words)[:MESSAGE_CHARACTERS]))


def _now(form: str) -> str:
    return datetime.datetime.now().astimezone().strftime(form)


def _refusal(error: Exception) -> UsageError:
    why = " ".join(str(error).split())[:MESSAGE_CHARACTERS]
    return UsageError(message("tokenizer.template-refuses", why=why))
