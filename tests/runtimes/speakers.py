"""Servers that speak OpenAI's API or SGLang's, without a model: scripted answers, a real cache."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx2

from kvphase.runtimes.adapters import Choice
from kvphase.runtimes.detect import recognise
from kvphase.runtimes.http import new_client
from kvphase.types import Template
from runtimes.doubles import ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kvphase.types import Ask, Reply, Runtime

    Handler = Callable[[dict[str, Any]], httpx2.Response]

BOS, BOS_TEXT = 1, "<s>"
HEAD, TAIL = "<user>", "</user><model>"
TOP = [(" Alice", -0.25), (" Bob", -1.75), (" Carol", -9999.0)]
PIECE = re.compile(r"<[^>]*>|\s?\w+|\W")


class Spelling:
    """A word is a token, with the space before it; so is each mark, and each text in brackets."""

    source = "imaginary"
    has_template = True
    bos_text = BOS_TEXT

    def __init__(self, bos: tuple[int, ...] = (BOS,)) -> None:
        """Number the words as they come."""
        self.bos = bos
        self._ids: dict[str, int] = {"": 0, BOS_TEXT: BOS}
        self._texts: list[str] = ["", BOS_TEXT]

    def encode(self, text: str) -> list[int]:
        """Ids, without BOS unless it is spelled."""
        found = []
        for piece in PIECE.findall(text):
            if piece not in self._ids:
                self._ids[piece] = len(self._texts)
                self._texts.append(piece)
            found.append(self._ids[piece])
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return "".join(self._texts[token] for token in ids)

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """As `Words`."""
        del special
        return [self.encode(text) for text in texts]

    async def text_of(self, ids: Sequence[int]) -> str:
        """As `Words`."""
        return self.decode(ids)

    async def template(self) -> Template:
        """As `Words`."""
        return Template(
            tuple(self.encode(HEAD)), tuple(self.encode(TAIL)), HEAD, TAIL, digest="imaginary"
        )

    async def render(self, body: dict[str, Any]) -> str:
        """As `Words`."""
        return f"{HEAD}{body['messages'][0]['content']}{TAIL}"


WORDS = Spelling()
PROMPT = tuple(WORDS.encode(" so".join(f" w{n}" for n in range(600))))


@dataclass(frozen=True, slots=True)
class Local(Choice):
    """A choice whose local tokenizer is `WORDS`."""

    local: bool = True

    def words(self) -> Any:  # noqa: ANN401
        """As `Choice`."""
        return WORDS if self.local else None


@dataclass
class Speaker:
    """One server; what it does is switched by its fields."""

    kind: str = "vllm"
    """vllm, sglang, completions or chat."""
    models: tuple[str, ...] = ("tiny",)
    block: int = 16
    """Hits land on multiples of this."""
    tells: bool = True
    """Of its cache; of hits only."""
    salts: bool = True
    """A salt separates prompts in the cache."""
    ids: bool = True
    """Prompts may be token ids."""
    adds_bos: bool = True
    """Before texts."""
    most_scores: int = 20
    counts: bool = True
    """Tells how many tokens a prompt had."""
    head: str = HEAD
    """What the chat template begins with."""
    context: int | None = 4096
    text: str = " Alice"
    reasoning: str = ""
    refuses: tuple[str, ...] = ()
    """Fields of a request that are refused."""
    answer: Callable[[int, dict[str, Any]], httpx2.Response] = lambda _, body: httpx2.Response(
        200, json=body
    )
    """The completion with this ordinal, given what would be right."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    headers: list[httpx2.Headers] = field(default_factory=list)
    kept: list[tuple[str, list[int]]] = field(default_factory=list)

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        path = request.url.path.lstrip("/")
        self.calls.append(path)
        self.headers.append(request.headers)
        if request.method == "GET":
            page = self._pages().get(path)
            return httpx2.Response(404, json={}) if page is None else page
        body = json.loads(request.content)
        for name, (kinds, handler) in self._posts().items():
            if path == name and self.kind in kinds:
                return handler(body)
        return httpx2.Response(404, json={"error": "no such path"})

    def _pages(self) -> dict[str, httpx2.Response]:
        owner = {"vllm": "vllm", "sglang": "sglang"}.get(self.kind, "somebody")
        cards = [{"id": m, "owned_by": owner, "max_model_len": self.context} for m in self.models]
        pages: dict[str, dict[str, Any]] = {"v1/models": {"object": "list", "data": cards}}
        if self.kind == "vllm":
            pages["version"] = {"version": "0.99.1"}
        if self.kind == "sglang":
            pages["model_info"] = {"model_path": f"/home/someone/{self.models[0]}"}
            pages["server_info"] = {"version": "0.9.9", "context_length": None}
        shown = {name: httpx2.Response(200, json=page) for name, page in pages.items()}
        return {**shown, "health": httpx2.Response(200)}

    def _posts(self) -> dict[str, tuple[tuple[str, ...], Handler]]:
        return {
            "tokenize": (("vllm", "sglang"), self._tokenize),
            "detokenize": (("vllm", "sglang"), self._detokenize),
            "v1/completions": (("vllm", "completions"), self._complete),
            "v1/chat/completions": (("vllm", "sglang", "chat", "completions"), self._chat),
            "generate": (("sglang",), self._generate),
        }

    def _tokenize(self, body: dict[str, Any]) -> httpx2.Response:
        if "messages" in body:
            text = f"{BOS_TEXT}{HEAD}{body['messages'][0]['content']}{TAIL}"
            return httpx2.Response(200, json={"tokens": WORDS.encode(text)})
        if "prompt" not in body:
            return httpx2.Response(400, json={"error": {"message": "no prompt"}})
        bos = [BOS] * bool(body.get("add_special_tokens", True) and self.adds_bos)
        return httpx2.Response(200, json={"tokens": bos + WORDS.encode(body["prompt"])})

    def _detokenize(self, body: dict[str, Any]) -> httpx2.Response:
        name = "prompt" if self.kind == "vllm" else "text"
        return httpx2.Response(200, json={name: WORDS.decode(body["tokens"])})

    def _hits(self, prompt: list[int], salt: str) -> int:
        longest = 0
        for key, kept in self.kept:
            same = 0
            while same < min(len(kept), len(prompt) - 1) and kept[same] == prompt[same]:
                same += 1
            if key == salt or not self.salts:
                longest = max(longest, same // self.block * self.block)
        self.kept.append((salt, prompt))
        return longest

    def _refused(self, body: dict[str, Any]) -> httpx2.Response | None:
        odd = next((name for name in self.refuses if name in body), None)
        most = body.get("logprobs") if self.kind != "chat" else body.get("top_logprobs", 0)
        if odd is None and isinstance(most, int) and not isinstance(most, bool):
            odd = "logprobs" if most > self.most_scores else None
        if odd is None and "model" not in body:
            odd = "model"
        if odd is None:
            return None
        return httpx2.Response(400, json={"error": {"message": f"{odd} is not accepted"}})

    def _usage(self, prompt: list[int], cached: int) -> dict[str, Any]:
        usage: dict[str, Any] = {"completion_tokens": 1}
        if self.counts:
            usage["prompt_tokens"] = len(prompt)
        if self.tells and cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def _complete(self, body: dict[str, Any]) -> httpx2.Response:
        prompt: Any = body.get("prompt")
        is_ids = isinstance(prompt, list)
        refused = self._refused(body)
        if refused is None and prompt is None:
            refused = httpx2.Response(400, json={"error": {"message": "no prompt"}})
        if refused is None and is_ids and not self.ids:
            refused = httpx2.Response(422, json={"error": {"message": "prompt must be a text"}})
        if refused is not None:
            return refused
        adds = self.adds_bos and body.get("add_special_tokens", True)
        ids = prompt if is_ids else [BOS] * adds + WORDS.encode(prompt)
        return self._say(body, ids, {"text": self.text, "logprobs": self._scores(body)})

    def _say(self, body: dict[str, Any], ids: list[int], choice: dict[str, Any]) -> httpx2.Response:
        self.bodies.append(body)
        if body.get("return_token_ids"):
            choice["prompt_token_ids"] = ids
        cached = self._hits(ids, body.get("cache_salt", ""))
        said = {
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "length", **choice}],
            "usage": self._usage(ids, cached),
        }
        return self.answer(len(self.bodies) - 1, said)

    def _scores(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if not body.get("logprobs"):
            return None
        by_id = body.get("return_tokens_as_token_ids")
        top = {f"token_id:{WORDS.encode(t)[0]}" if by_id else t: p for t, p in TOP}
        return {"tokens": [self.text], "token_logprobs": [-0.25], "top_logprobs": [top]}

    def _chat(self, body: dict[str, Any]) -> httpx2.Response:
        refused = self._refused(body)
        if refused is None and "messages" not in body:
            refused = httpx2.Response(422, json={"detail": "messages"})
        if refused is not None:
            return refused
        text = f"{BOS_TEXT}{self.head}{body['messages'][0]['content']}{TAIL}"
        top = [{"token": t.strip(), "logprob": p} for t, p in TOP]
        scores = {"content": [{**top[0], "top_logprobs": top}]} if body.get("logprobs") else None
        said = {"role": "assistant", "content": self.text.strip() or None}
        if self.reasoning:
            said["reasoning_content"] = self.reasoning
        return self._say(body, WORDS.encode(text), {"message": said, "logprobs": scores})

    def _generate(self, body: dict[str, Any]) -> httpx2.Response:
        if "input_ids" not in body:
            return httpx2.Response(400, json={"error": {"message": "no input"}})
        self.bodies.append(body)
        prompt = body["input_ids"]
        cached = self._hits(prompt, body.get("extra_key", ""))
        top = [[p, WORDS.encode(t)[0], None] for t, p in TOP[:2]]
        wanted = [[-5.5, token, None] for token in body.get("token_ids_logprob", [])]
        meta = {
            "prompt_tokens": len(prompt),
            "completion_tokens": 1,
            "cached_tokens": cached,
            "finish_reason": {"type": "length", "length": 1},
            "output_top_logprobs": [top],
            "output_token_ids_logprobs": [wanted],
        }
        return self.answer(len(self.bodies) - 1, {"text": self.text, "meta_info": meta})


def question(number: int = 0, **changes: Any) -> Ask:  # noqa: ANN401
    """A question on a prefix of 600 words that starts with BOS."""
    suffix = WORDS.encode(f" q{number}:")
    whole = {"prefix": (BOS, *PROMPT), "suffix": tuple(suffix), "id": f"q{number}"}
    return replace(ask(**whole), **changes)


def use(
    server: Speaker,
    job: Callable[[Any], Awaitable[Any]],
    choice: Choice | None = None,
    address: str = "http://127.0.0.1:9999",
) -> Any:  # noqa: ANN401
    """What ``job`` makes of the runtime that ``server`` is recognised as."""

    async def main() -> Any:  # noqa: ANN401
        async with new_client(address, httpx2.MockTransport(server)) as client:
            return await job(await recognise(client, choice or Local()))

    return asyncio.run(main())


def opened(server: Speaker, choice: Choice | None = None) -> Runtime:
    """The runtime, to be looked at only."""

    async def job(runtime: Runtime) -> Runtime:
        return runtime

    runtime: Runtime = use(server, job, choice)
    return runtime


def complete(server: Speaker, *asks: Ask, choice: Choice | None = None) -> list[Reply]:
    """The replies to ``asks``, one after the other."""

    async def job(runtime: Runtime) -> list[Reply]:
        return [await runtime.complete(one) for one in asks]

    replies: list[Reply] = use(server, job, choice)
    return replies
