"""The JSON that goes over the wire, field by field as llama-server writes it."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from kvphase.serve.job import Job
from kvphase.serve.settings import Settings
from kvphase.version import __version__

if TYPE_CHECKING:
    from kvphase.runtimes.toy import ToyEngine
    from kvphase.serve.job import Desk, Piece

__all__ = [
    "HEADERS",
    "chunk",
    "final",
    "identity",
    "model_list",
    "openai",
    "props",
    "slots",
]

Json = dict[str, Any]

OTHER_TASK = 0
"""What another client's slot calls its task: it is there from the start."""

HEADERS = {"server": "llama.cpp"}
"""Clients that look for llama-server find it by this."""

NEUTRAL: Json = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": False,
    "min_keep": 0,
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "speculative.types": "none",
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}
"""Settings that llama-server reports and the toys do not have: all off."""
NEUTRAL_REQUEST: Json = {
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "logit_bias": [],
    "grammar": "",
    "grammar_lazy": False,
    "grammar_triggers": [],
    "preserved_tokens": [],
}
"""The same, reported only with an answer."""
UNSEEDED = 2**32 - 1


def props(desk: Desk) -> Json:
    """``GET /props``."""
    engine = desk.engine
    params = {name: value for name, value in _settings().items() if name not in {"stop"}}
    return {
        "default_generation_settings": {"params": params, "n_ctx": engine.context_tokens},
        "total_slots": 2 if desk.faults.busy or desk.faults.batch else 1,
        "model_alias": engine.name,
        "model_ftype": "F16",
        "model_path": f"{engine.name.removeprefix('toy:')}.npz",
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": "",
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": False,
        "ui": False,
        "ui_settings": {},
        "chat_template": "",
        "chat_template_caps": {},
        "bos_token": engine.words.tokens[engine.words.bos],
        "eos_token": "",
        "build_info": build(),
        "is_sleeping": False,
        "cors_proxy_enabled": False,
        "kvphase": {"local_window": engine.model.local_window},
    }


def slots(desk: Desk) -> list[Json]:
    """``GET /slots``: the one slot there is, and one of another client where that is wanted."""
    look, desk.looks = desk.looks, desk.looks + 1
    listed = [_slot(desk, 0, desk.last, busy=desk.working)]
    if desk.faults.batch and not desk.faults.busy:
        listed.append(_slot(desk, 1, None, busy=False))
    if desk.faults.busy:
        busy = desk.faults.intrudes(look, desk.requests)
        other = Job(prompt=(), settings=Settings(), request=OTHER_TASK)
        listed.append(_slot(desk, 1, other, busy=busy))
    return listed


def _slot(desk: Desk, number: int, job: Job | None, *, busy: bool) -> Json:
    """One slot with its job or its last one; a slot that never had any says nothing of it."""
    slot: Json = {
        "id": number,
        "n_ctx": desk.engine.context_tokens,
        "speculative": desk.faults.speculative > 0,
        "is_processing": busy,
    }
    if job is None:
        return slot
    state = {
        "has_next_token": busy,
        "has_new_line": "\n" in job.text,
        "n_remain": -1,
        "n_decoded": len(job.tokens),
    }
    return slot | {
        "id_task": job.request,
        "n_prompt_tokens": len(job.prompt) + len(job.tokens),
        "n_prompt_tokens_processed": job.evaluated,
        "n_prompt_tokens_cache": job.reused,
        "params": {name: value for name, value in _settings(job).items() if name != "stop"},
        "next_token": [state],
    }


def model_list(engine: ToyEngine, created: int) -> Json:
    """``GET /v1/models``."""
    name, config = engine.name, engine.model.config
    model = {
        "id": name,
        "aliases": [name],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": created,
        "owned_by": "kvphase",
        "meta": {
            "vocab_type": 0,
            "n_vocab": engine.model.vocab_size,
            "n_ctx": engine.context_tokens,
            "n_ctx_train": engine.context_tokens,
            "n_embd": config.get("width", 0),
            "n_params": engine.parameters,
            "size": engine.file_bytes,
            "ftype": "F16",
        },
    }
    short = {"name": name, "model": name, "type": "model", "capabilities": ["completion"]}
    return {"models": [short], "object": "list", "data": [model]}


def chunk(job: Job, piece: Piece) -> Json:
    """One event of a streamed ``/completion``: a token, or progress of the prefill."""
    content: Json = {
        "index": job.index,
        "content": piece.text,
        "tokens": piece.tokens or [0],
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": len(job.tokens),
        "tokens_evaluated": len(job.prompt),
    }
    if job.settings.timings_per_token:
        content["timings"] = _timings(job)
    if piece.processed is not None:
        content["prompt_progress"] = _progress(job, piece.processed)
    return content | _probabilities(job, piece.places)


def final(job: Job, engine: ToyEngine) -> Json:
    """The answer to ``/completion``, or the last event of its stream."""
    streamed = job.settings.stream
    content: Json = {
        "index": job.index,
        "content": "" if streamed else job.text,
        "tokens": job.tokens if job.settings.return_tokens and not streamed else [],
        "id_slot": 0,
        "stop": True,
        "model": engine.name,
        "tokens_predicted": len(job.tokens),
        "tokens_evaluated": len(job.prompt),
        "generation_settings": _settings(job) | NEUTRAL_REQUEST,
        "prompt": engine.words.decode(job.prompt),
        "has_new_line": "\n" in job.text,
        "truncated": job.truncated,
        "stop_type": job.stop_type,
        "stopping_word": job.stopping_word,
        "tokens_cached": job.held,
        "timings": _timings(job),
    }
    return content if streamed else content | _probabilities(job, range(len(job.tokens)))


def openai(job: Job, engine: ToyEngine, identity: Json, piece: Piece | None = None) -> Json:
    """The answer to ``/v1/completions``; with ``piece``, one event of its stream."""
    streamed = job.settings.stream
    text = piece.text if piece else "" if streamed else job.text
    places = piece.places if piece else range(0 if streamed else len(job.tokens))
    scores = _probabilities(job, places).get("completion_probabilities")
    ending = "length" if job.stop_type == "limit" else "stop"
    choice = {
        "text": text,
        "index": job.index,
        "logprobs": {"content": scores} if scores else None,
        "finish_reason": None if piece else ending,
    }
    content = {"choices": [choice], **identity, "model": engine.name}
    content |= {"system_fingerprint": build(), "object": "text_completion"}
    if piece:
        return content
    usage = {
        "completion_tokens": len(job.tokens),
        "prompt_tokens": len(job.prompt),
        "total_tokens": len(job.tokens) + len(job.prompt),
        "prompt_tokens_details": {"cached_tokens": job.reused},
    }
    return content | {"usage": usage, "timings": _timings(job)}


def identity() -> Json:
    """What every event of one ``/v1/completions`` answer shares."""
    return {"created": int(time.time()), "id": f"cmpl-{secrets.token_hex(16)}"}


def build() -> str:
    """What ``/props`` calls this server's build."""
    return f"kvphase {__version__}"


def _settings(job: Job | None = None) -> Json:
    """Settings as llama-server reports them, those of ``job`` or the defaults."""
    settings = job.settings if job else Settings()
    return NEUTRAL | {
        "seed": settings.seed if settings.seed >= 0 else UNSEEDED,
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": settings.min_p,
        "max_tokens": settings.n_predict,
        "n_predict": settings.n_predict,
        "stop": list(settings.stop),
        "stream": settings.stream,
        "n_probs": settings.n_probs,
        "samplers": list(settings.samplers),
        "timings_per_token": settings.timings_per_token,
    }


def _timings(job: Job) -> Json:
    """Counts and milliseconds; the first answer token is the prefill's, as llama-server has it."""
    prompt_ms, predicted_ms = 1000 * job.prompt_seconds, 1000 * job.predicted_seconds
    later = max(len(job.tokens) - 1, 0)
    return {
        "cache_n": job.reused,
        "prompt_n": job.evaluated,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / job.evaluated if job.evaluated else 0.0,
        "prompt_per_second": 1000 * job.evaluated / prompt_ms if prompt_ms else 0.0,
        "predicted_n": len(job.tokens),
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / later if later else 0.0,
        "predicted_per_second": 1000 * later / predicted_ms if later and predicted_ms else 0.0,
    }


def _progress(job: Job, processed: int) -> Json:
    return {
        "total": len(job.prompt),
        "cache": job.reused,
        "processed": processed,
        "time_ms": int(1000 * job.prompt_seconds),
    }


def _probabilities(job: Job, places: range) -> Json:
    """Scores of the answer tokens at ``places``, where the request asked for any."""
    if job.settings.n_probs <= 0 or not places:
        return {}
    return {"completion_probabilities": [job.entries[place] for place in places]}
