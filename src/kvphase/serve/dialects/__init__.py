"""The servers whose HTTP APIs are spoken, one file each; each names the version it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.serve.dialects.chat import Chat
from kvphase.serve.dialects.deepseek import DeepSeek
from kvphase.serve.dialects.ds4 import Ds4
from kvphase.serve.dialects.llama_server import LlamaServer
from kvphase.serve.dialects.lmstudio import LMStudio
from kvphase.serve.dialects.mlx import Mlx
from kvphase.serve.dialects.ollama import Ollama
from kvphase.serve.dialects.openai import OpenAI
from kvphase.serve.dialects.sglang import SGLang
from kvphase.serve.dialects.vllm import VLlm

if TYPE_CHECKING:
    from kvphase.serve.front import Front

__all__ = ["DIALECTS"]

DIALECTS: dict[str, type[Front]] = {
    "llama-server": LlamaServer,
    "vllm": VLlm,
    "sglang": SGLang,
    "ollama": Ollama,
    "lmstudio": LMStudio,
    "mlx": Mlx,
    "ds4": Ds4,
    "deepseek": DeepSeek,
    "openai": OpenAI,
    "chat": Chat,
}
"""Names as for ``--runtime``; ``openai`` and ``chat`` are servers that say no more than that."""
