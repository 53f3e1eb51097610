"""LM Studio: completions of text; what is loaded, and with which context, is told.

Only a model that is loaded already is measured: naming another would load it. LM Studio's HTTP API
has no tokenizer, scores or cache counts, so a tokenizer must be named (the GGUF that is loaded will
do), and what came from the cache is told by time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.llamacpp_wire import read
from kvphase.runtimes.openai import Completions
from kvphase.runtimes.served import ASSUMED_CONTEXT
from kvphase.runtimes.server import Server, listed, shown_model
from kvphase.types import Limits

if TYPE_CHECKING:
    from kvphase.types import Ask

__all__ = ["ADAPTER", "LMStudio"]

MODELS = "api/v1/models"


class _Instance(BaseModel):
    """A model in memory."""

    id: str
    config: dict[str, Any] = {}


class _Model(BaseModel):
    key: str
    type: str = "llm"
    quantization: dict[str, Any] | None = None
    loaded_instances: list[_Instance] = []


class _List(BaseModel):
    models: list[_Model] = []


class LMStudio(Completions):
    """A model that LM Studio has loaded."""

    called: ClassVar[str] = "LM Studio"
    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT, ids=False, cold=False)

    scores: int = 0

    def options(self, ask: Ask, salt: str | None) -> dict[str, Any]:
        """Nothing cut off but the best token."""
        del ask, salt
        return {"top_k": 1, "repeat_penalty": 1}

    async def identity(self) -> str | None:
        """The model that is loaded now; None if none is."""
        names = [instance.id for _, instance in await _loaded(Server(self.client))]
        return self.model if self.model in names else next(iter(names), None)


async def _loaded(server: Server) -> list[tuple[_Model, _Instance]]:
    """Language models in memory."""
    models = read(_List, await server.page(MODELS)).models
    return [(one, loaded) for one in models if one.type == "llm" for loaded in one.loaded_instances]


async def recognises(server: Server) -> bool:
    """Whether the server lists models and their loaded instances, as LM Studio alone does."""
    models = (await server.page(MODELS)).get("models")
    return isinstance(models, list) and all(
        isinstance(one, dict) and "loaded_instances" in one for one in models
    )


async def connect(server: Server, choice: Choice) -> LMStudio:
    """Open it.

    Raises:
        UsageError: nothing is loaded, or a model or a tokenizer must be named.
        RuntimeFault: it does not answer as LM Studio does.
    """
    model, instance = _picked(await _loaded(server), choice)
    words = choice.words()
    if words is None:
        raise UsageError(message("runtime.no-tokenizer"))
    size = instance.config.get("context_length")
    quant = (model.quantization or {}).get("name")
    runtime = LMStudio.of(
        server,
        words,
        instance.id,
        context=size if isinstance(size, int) else None,
        quant=quant if isinstance(quant, str) else None,
    )
    await runtime.negotiate()
    return runtime


def _picked(loaded: list[tuple[_Model, _Instance]], choice: Choice) -> tuple[_Model, _Instance]:
    """The loaded instance that was named, or the only one."""
    names = [shown_model(instance.id) for _, instance in loaded]
    wanted = [pair for pair in loaded if choice.model in (None, pair[0].key, pair[1].id)]
    if len(wanted) == 1:
        return wanted[0]
    if not wanted:
        raise UsageError(message("tokenizer.not-loaded", names=listed(names) or "-"))
    raise UsageError(message("runtime.many-models", n=len(names), names=listed(names)))


ADAPTER = Adapter(recognises, connect)
