"""What one server is asked, and its answers as they were."""

from __future__ import annotations

import base64
import mimetypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from speculators_convert.errors import SmokeError, SourceError
from speculators_convert.model import Model
from speculators_convert.results.smoke import Prompt, ServerRecord, SmokeConfig
from speculators_convert.serving.client import Answer
from speculators_convert.serving.process import Running
from speculators_convert.smoke.sglang import plan
from speculators_convert.sources.bounded import read_bounded

AGAIN = 2
"""Prompts that are asked again after a flush, and after an abort."""
ABORTED_TOKENS, ABORT_TRIES = 4096, 3
IMAGE_TOKENS = 16
MAX_IMAGE_BYTES = 64 * 1024 * 1024


class Rows(Model):
    """Raw answers of one server. `greedy` came one request after the other, `batched` many at once."""

    record: ServerRecord
    greedy: tuple[Answer, ...]
    batched: tuple[Answer, ...]
    sampled: tuple[Answer, ...] = ()
    flushed: tuple[Answer, ...] = Field(default=(), description="The first prompts after /flush_cache")
    abort_finish: str | None = Field(default=None, description="How the request ended that was aborted while it ran")
    after_abort: tuple[Answer, ...] = ()
    image_answer: str | None = None


def ask(server: Running, prompts: Sequence[Prompt], config: SmokeConfig) -> Rows:
    """All answers that the server's role is asked for; `ServerFailedError` when it fails on the way."""
    began, requests = time.monotonic(), [prompt.input_ids for prompt in prompts]
    tokens = config.max_new_tokens
    client, found = server.client, dict[str, Any]()
    with server.asked("answering greedy requests one after the other"):
        found["greedy"] = tuple(answer for request in requests for answer in client.generate([request], tokens=tokens, ignore_eos=False))
    with server.asked("answering several requests at once"):
        found["batched"] = tuple(client.generate(requests, tokens=plan.limits(tokens, len(requests)), ignore_eos=False))
    if server.config.role == plan.DRAFTED and not server.config.deterministic:
        found |= _more(server, requests, config)
    return Rows(record=_record(server, time.monotonic() - began), **found)


def _more(server: Running, requests: Sequence[tuple[int, ...]], config: SmokeConfig) -> dict[str, Any]:
    """Sampled requests, a flush, an abort, an image."""
    client, tokens, again, found = server.client, config.max_new_tokens, requests[:AGAIN], dict[str, Any]()
    with server.asked("answering sampled requests"):
        found["sampled"] = tuple(client.generate(requests, tokens=tokens, temperature=config.servers.sampling_temperature, ignore_eos=False))
    with server.asked("answering after /flush_cache"):
        client.flush_cache()
        found["flushed"] = tuple(answer for request in again for answer in client.generate([request], tokens=tokens, ignore_eos=False))
    with server.asked("answering after an aborted request"):
        found["abort_finish"] = _abort(server, min(requests, key=len))
        found["after_abort"] = tuple(answer for request in again for answer in client.generate([request], tokens=tokens, ignore_eos=False))
    if config.servers.image is not None:
        with server.asked("answering a question about an image"):
            found["image_answer"] = client.chat([about(Path(config.servers.image))], tokens=IMAGE_TOKENS)
    return found


def _abort(server: Running, prompt: Sequence[int]) -> str:
    """How a long request ended that was aborted at its first event; tried again when it was faster than the abort."""
    tokens, finish = max(1, min(ABORTED_TOKENS, server.client.context_tokens() - len(prompt) - 32)), "none"
    for attempt in range(ABORT_TRIES):
        name, asked = f"aborted-{attempt}", False
        for event in server.client.stream(prompt, tokens=tokens, request=name):
            finish = _finish(event)
            if not asked:
                server.client.abort(name)
                asked = True
        if finish == "abort":
            break
    return finish


def _finish(event: dict[str, Any]) -> str:
    """How a request ended, by its last event; SGLang tells an abort as an error whose text says so."""
    if "error" in event:
        message = str(event["error"])
        return "abort" if "abort" in message.lower() else message[:200]
    return str((event["meta_info"].get("finish_reason") or {}).get("type", "none"))


def about(file: Path) -> dict[str, Any]:
    """A chat message with the image inside."""
    try:
        data = base64.b64encode(read_bounded(file, MAX_IMAGE_BYTES)).decode()
    except OSError as error:
        raise SourceError(f"cannot read the image ({error.strerror})", where=str(file), hint="name an image file with --image") from error
    kind = mimetypes.guess_type(file.name)[0]
    if kind is None or not kind.startswith("image/"):
        raise SmokeError("the file's name does not say which kind of image it is", where=str(file), measured=str(kind), expected="a name such as photo.png")
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}, {"type": "text", "text": "What is in the image?"}]}


def _record(server: Running, seconds: float) -> ServerRecord:
    return ServerRecord(
        name=server.config.name,
        role=server.config.role,
        command=server.command,
        environment=server.variables,
        start_seconds=round(server.start_seconds, 2),
        asked_seconds=round(seconds, 2),
        memory_bytes=server.held_bytes() if server.config.device != "cpu" else None,
        log=f"logs/{server.log.name}",
    )
