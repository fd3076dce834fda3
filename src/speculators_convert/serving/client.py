"""What is asked of a server over HTTP, with token ids in and out."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import requests
from pydantic import Field

from speculators_convert.errors import SmokeError
from speculators_convert.model import Model

_OK = 200
IDLE_SECONDS = 60
_PLAIN = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Stated with each request: a model's generation_config.json may have other defaults."""


class Answer(Model):
    """One completion as SGLang reports it. A server without a draft has no counts."""

    request: str
    output_ids: tuple[int, ...]
    prompt_tokens: int
    finish: str = Field(description="length, stop or abort")
    verify_steps: int = 0
    accepted: int = Field(default=0, description="Draft tokens that were accepted, over all steps")
    drafted: int = Field(default=0, description="Draft tokens that were proposed")
    histogram: tuple[int, ...] = Field(default=(), description="Number of steps in which exactly k draft tokens were accepted, for k = 0, 1, ...")


class Client:
    """A server on the loopback. `SmokeError` when it answers with an error, not in `timeout` seconds, or not before `deadline` (monotonic)."""

    def __init__(self, port: int, timeout: float, deadline: float = math.inf) -> None:
        self._base, self._timeout, self._deadline, self._http = f"http://127.0.0.1:{port}", timeout, deadline, requests.Session()
        self._http.trust_env = False  # a proxy has no business here

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def healthy(self) -> bool:
        """Whether the server takes requests; false while it starts."""
        try:
            return bool(self._http.get(f"{self._base}/health", timeout=5).status_code == _OK)
        except requests.RequestException:
            return False

    def generate(self, prompts: Sequence[Sequence[int]], *, tokens: int | Sequence[int], temperature: float = 0.0, ignore_eos: bool = True) -> list[Answer]:
        """Complete each prompt of token ids, all in one request, so that the server runs as many at once as it may. `tokens` per prompt or for all."""
        limits = [tokens] * len(prompts) if isinstance(tokens, int) else list(tokens)
        parameters = [{**_PLAIN, "temperature": temperature, "max_new_tokens": limit, "ignore_eos": ignore_eos} for limit in limits]
        found = self._post("/generate", {"input_ids": [list(prompt) for prompt in prompts], "sampling_params": parameters})
        return [_answer(item) for item in found]

    def stream(self, prompt: Sequence[int], *, tokens: int, request: str | None = None, temperature: float = 0.0, image: str | None = None) -> Iterator[dict[str, Any]]:
        """SGLang's events of one completion as they come: each has `meta_info` and the output so far in `output_ids`. `image` is a data URI."""
        body: Any = {"input_ids": list(prompt), "sampling_params": {**_PLAIN, "temperature": temperature, "max_new_tokens": tokens, "ignore_eos": True}, "stream": True}
        if request is not None:
            body["rid"] = request
        if image is not None:
            body["image_data"] = image
        try:
            with self._http.post(f"{self._base}/generate", json=body, stream=True, timeout=self._left()) as response:
                _demand(response, "/generate")
                for line in response.iter_lines():
                    if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                        yield json.loads(line[5:])
        except requests.RequestException as error:
            raise _unanswered("/generate", error) from error

    def abort(self, request: str) -> None:
        """End a running request."""
        self._send("POST", "/abort_request", {"rid": request})

    def flush_cache(self) -> None:
        """Forget all cached prefixes once the server is idle: it may be clearing up for a moment after its last answer, and would refuse."""
        self._send("POST", f"/flush_cache?timeout={IDLE_SECONDS}", None)

    def chat(self, messages: Sequence[dict[str, Any]], *, tokens: int) -> str:
        """Text of one greedy chat completion, for requests that are more than token ids."""
        found = self._post("/v1/chat/completions", {"model": "default", "messages": list(messages), "temperature": 0, "max_tokens": tokens})
        return str(found["choices"][0]["message"]["content"])

    def info(self) -> dict[str, Any]:
        """SGLang's own account of its flags, memory and counters."""
        found: dict[str, Any] = self._send("GET", "/server_info", None).json()
        return found

    def context_tokens(self) -> int:
        """Tokens that a request may have, prompt and output together."""
        return int(self._send("GET", "/v1/models", None).json()["data"][0]["max_model_len"])

    def _left(self) -> float:
        """Seconds that a request may take."""
        return max(0.1, min(self._timeout, self._deadline - time.monotonic()))

    def _post(self, path: str, body: object) -> Any:
        return self._send("POST", path, body).json()

    def _send(self, method: str, path: str, body: Any) -> requests.Response:
        try:
            response = self._http.request(method, f"{self._base}{path}", json=body, timeout=self._left())
        except requests.RequestException as error:
            raise _unanswered(path, error) from error
        _demand(response, path)
        return response


def _demand(response: requests.Response, path: str) -> None:
    if response.status_code == _OK:
        return
    raise SmokeError("the server refused a request", where=path, measured=f"{response.status_code}: {response.text[:400]}", expected="200")


def _unanswered(path: str, error: requests.RequestException) -> SmokeError:
    return SmokeError(f"the server did not answer ({type(error).__name__})", where=path, measured=str(error) or "nothing", expected="an answer")


def _answer(item: dict[str, Any]) -> Answer:
    meta = item["meta_info"]
    return Answer(
        request=meta["id"],
        output_ids=tuple(item["output_ids"]),
        prompt_tokens=meta["prompt_tokens"],
        finish=(meta.get("finish_reason") or {}).get("type", "none"),
        verify_steps=meta.get("spec_verify_ct", 0),
        accepted=meta.get("spec_num_correct_drafts", 0),
        drafted=meta.get("spec_num_proposed_drafts", 0),
        histogram=tuple(meta.get("spec_correct_drafts_histogram", ())),
    )
