"""A llama-server without a model: scripted answers over a real prefix cache."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx2

from kvphase.runtimes.adapters import Choice
from kvphase.runtimes.detect import recognise
from kvphase.runtimes.http import new_client
from kvphase.runtimes.llamacpp import LlamaCpp
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kvphase.types import Reply

PROPS = {
    "default_generation_settings": {"n_ctx": 4096},
    "total_slots": 1,
    "model_alias": "/home/someone/models/Tiny-1B-Instruct.Q4_K_M.gguf",
    "model_path": "/home/someone/models/Tiny-1B-Instruct.Q4_K_M.gguf",
    "build_info": "b1234-abcdef",
    "bos_token": "<s>",
}
WORDS = [" Alice", " Bob", " Carol", " Zoe"]
"""Texts that are one token; any other is one for each character."""
TOP = [(" Alice", -0.25), (" Bob", -1.75), (" Carol", None)]


def ask(**changes: Any) -> Ask:  # noqa: ANN401
    base = Ask(
        id="a",
        prefix=tuple(range(10, 40)),
        suffix=(50, 51),
        target=3,
        expected=" Alice",
        candidates=(" Alice",),
        arm=Arm.SCREEN,
        item=0,
        block=0,
        context=0,
        pad=0,
    )
    return replace(base, **changes)


def events(prompt: list[int], cached: int, text: str = " Alice") -> list[dict[str, Any]]:
    """A one-token answer as the server streams it."""
    top = [{"id": i, "token": t, "logprob": p} for i, (t, p) in enumerate(TOP)]
    scores = [{"id": 0, "token": text, "logprob": -0.25, "top_logprobs": top}]
    return [
        {"content": text, "stop": False, "completion_probabilities": scores},
        {
            "content": "",
            "stop": True,
            "stop_type": "limit",
            "truncated": False,
            "tokens_predicted": 1,
            "tokens_evaluated": len(prompt),
            "tokens_cached": len(prompt),
            "timings": {"cache_n": cached, "prompt_n": len(prompt) - cached},
        },
    ]


def stream(lines: list[dict[str, Any]]) -> httpx2.Response:
    body = ": ping\n\n" + "".join(f"data: {json.dumps(line)}\n\n" for line in lines)
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=body)


@dataclass
class Server:
    """Answers as llama-server does, with a real longest-common-prefix cache per slot."""

    props: dict[str, Any] = field(default_factory=lambda: dict(PROPS))
    bos: list[int] = field(default_factory=list)
    answer: Callable[[int, list[dict[str, Any]]], httpx2.Response] = lambda _, lines: stream(lines)
    """The completion with this ordinal, given what would be right."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Completion requests so far."""
    headers: list[httpx2.Headers] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Method and path of every request so far."""
    slots: dict[int, list[int]] = field(default_factory=dict)
    """What each slot holds."""
    tells: Callable[[int], httpx2.Response] | None = None
    """The answer to this look at the slots; idle and never used before by default."""
    tasks: dict[int, int] = field(default_factory=dict)
    """The last task of each slot that had any."""

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        self.headers.append(request.headers)
        body = json.loads(request.content) if request.content else {}
        path = request.url.path
        self.calls.append(f"{request.method} {path}")
        if path == "/completion":
            return self._complete(body)
        if path == "/tokenize":
            text = body["content"]
            ids = [WORDS.index(text)] if text in WORDS else [ord(c) for c in text]
            return httpx2.Response(200, json={"tokens": self.bos * body["add_special"] + ids})
        if path == "/apply-template":
            text = body["messages"][0]["content"]
            assert body["chat_template_kwargs"] == {"enable_thinking": False}
            return httpx2.Response(200, json={"prompt": f"<s>[U]{text}[A]"})
        if path == "/props":
            return httpx2.Response(200, json=self.props)
        if path == "/slots":
            looks = self.calls.count("GET /slots") - 1
            return self.tells(looks) if self.tells else httpx2.Response(200, json=self._listed())
        return httpx2.Response(200, json={"status": "ok"})

    def _listed(self) -> list[dict[str, Any]]:
        return [slot(n, self.tasks.get(n)) for n in range(self.props["total_slots"])]

    def _complete(self, body: dict[str, Any]) -> httpx2.Response:
        self.bodies.append(body)
        self.tasks[body["id_slot"]] = len(self.bodies)
        prompt, kept = body["prompt"], self.slots.get(body["id_slot"], [])
        same = 0
        while same < min(len(kept), len(prompt) - 1) and kept[same] == prompt[same]:
            same += 1
        self.slots[body["id_slot"]] = prompt
        return self.answer(len(self.bodies) - 1, events(prompt, same * body["cache_prompt"]))


def slot(number: int, task: int | None = None, *, busy: bool = False) -> dict[str, Any]:
    """One element of ``/slots``."""
    listed = {"id": number, "n_ctx": 4096, "speculative": False, "is_processing": busy}
    return listed if task is None else {**listed, "id_task": task}


def use(
    server: Server, job: Callable[[LlamaCpp], Awaitable[Any]], *, exclusive: bool = False
) -> Any:  # noqa: ANN401
    async def main() -> Any:  # noqa: ANN401
        transport = httpx2.MockTransport(server)
        async with new_client("http://127.0.0.1:8080", transport) as client:
            runtime = await recognise(client, Choice(exclusive=exclusive))
            assert isinstance(runtime, LlamaCpp)
            return await job(runtime)

    return asyncio.run(main())


def complete(server: Server, *asks: Ask, exclusive: bool = False) -> list[Reply]:
    async def job(runtime: LlamaCpp) -> list[Reply]:
        return [await runtime.complete(one) for one in asks]

    replies: list[Reply] = use(server, job, exclusive=exclusive)
    return replies
