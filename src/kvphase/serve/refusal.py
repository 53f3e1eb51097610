"""Refusals in llama-server's form."""

from __future__ import annotations

from typing import Any

__all__ = ["ApiError"]

TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


class ApiError(Exception):
    """A request that is refused.

    Attributes:
        code: The HTTP status.
        message: What went wrong.
        body: The JSON to answer with, in llama-server's form.
        headers: Sent with the answer.
    """

    def __init__(
        self,
        code: int,
        message: str,
        kind: str | None = None,
        extra: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Make the body; ``kind`` is the error's type, by default that of ``code``."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers: dict[str, str] = headers or {}
        inner = {"code": code, "message": message, "type": kind or TYPES[code]}
        self.body: dict[str, Any] = {"error": inner | (extra or {})}
