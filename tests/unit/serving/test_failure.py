"""Logs of SGLang 0.5.23, shortened: how far the server came, the first error that matters, the check that belongs to it."""

from __future__ import annotations

import pytest

from speculators_convert.serving import failure

START = "[2026-11-29 17:32:40] server_args={'model_path': '/m'}\n"
TARGET = START + "[2026-11-29 17:32:44] Load weight begin. avail mem=20.17 GB\n"
DRAFT = TARGET + "[2026-11-29 17:32:44] Load weight end. elapsed=0.05 s\n[2026-11-29 17:32:44] Load weight begin. avail mem=20.16 GB\n"
POOL = DRAFT + "[2026-11-29 17:32:44] KV Cache is allocated. dtype: torch.float32, #tokens: 4096\n[2026-11-29 17:32:44] Memory pool end. avail mem=20.14 GB\n"
GRAPH = POOL + "[2026-11-29 17:32:45] Capture target verify CUDA graph begin. bs=[1, 2]\n"
UP = GRAPH + "[2026-11-29 17:32:46] The server is fired up and ready to roll!\n"


@pytest.mark.parametrize(
    ("log", "stage"),
    [
        ("", "reading its command line"),
        (START, "starting its processes"),
        (TARGET, "loading the target's weights"),
        (DRAFT, "loading the draft's weights"),
        (POOL, "building the draft's runner"),
        (GRAPH, "capturing CUDA graphs"),
        (UP, "answering requests"),
    ],
)
def test_stage(log: str, stage: str) -> None:
    assert failure.find(log).stage == stage


def test_step_of_the_caller_counts_once_the_server_is_up() -> None:
    assert failure.find(UP, "answering sampled requests").stage == "answering sampled requests"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("ValueError: DSpark requires mask_token_id to be set in the draft model config.", "DSP220"),
        ("ValueError: DSpark mask_token_id=2000 is outside the target vocab size 1024.", "DSP220"),
        ("ValueError: DSpark could not resolve gamma from the draft config and speculative_num_draft_tokens is unset.", "DSP208"),
        ("ValueError: DSpark draft requires markov_rank > 0, got markov_rank=0.", "DSP328"),
        ("ValueError: Unsupported DSpark markov_head_type='lstm'. Supported: ('vanilla', 'gated', 'rnn').", "DSP329"),
        ("ValueError: DFlash layer selection requires num_target_layers >= 4. Got num_target_layers=2.", "DSP210"),
        ("RuntimeError: The size of tensor a (1024) must match the size of tensor b (512) at non-singleton dimension 0", "DSP302"),
        ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "DSP003"),
        ("speculators_convert.errors.RefusedError: d: the checkpoint has 1 error(s): DSP104 d2t holds absolute ids", "DSP104"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", None),
    ],
)
def test_first_error_and_its_check(error: str, code: str | None) -> None:
    log = DRAFT + f'[2026-11-29 17:32:44] Scheduler hit an exception: Traceback (most recent call last):\n  File "x.py", line 1, in f\n{error}\nRuntimeError: later\n'
    found = failure.find(log)
    assert (found.line, found.code, found.stage) == (error, code, "loading the draft's weights")


def test_mere_consequences_are_passed_over() -> None:
    log = START + "SystemExit: 1\nasyncio.exceptions.CancelledError: gone\nKeyboardInterrupt\nValueError: the cause\n"
    assert failure.find(log).line == "ValueError: the cause"


@pytest.mark.parametrize(
    "sign", ["Subprocess scheduler_0 (pid=15566) crashed with exit code 3. Triggering SIGQUIT for cleanup...", "Health check failed. Server couldn't get a response"]
)
def test_a_lost_process_counts_when_no_exception_does(sign: str) -> None:
    noise = "[2026-11-29 18:39:55] post-warmup freeze_gc failed\nurllib3.exceptions.MaxRetryError: HTTPConnectionPool\n"
    noise += "ConnectionRefusedError: [Errno 111] Connection refused\nrequests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=1)\n"
    assert failure.find(UP + noise + f"[2026-11-29 18:23:44] {sign}\n").line == sign


def test_usage_errors_and_ports() -> None:
    for program in ("launch_server.py", "sglang serve"):
        assert failure.find(f"{program}: error: unrecognized arguments: --no-such-flag").line == "unrecognized arguments: --no-such-flag"
    assert failure.find("OSError: [Errno 98] Address already in use").port_taken
    assert not failure.find(UP).port_taken


def test_a_silent_log_has_no_line() -> None:
    found = failure.find(GRAPH)
    assert (found.line, found.code) == ("", None)
    assert found.hint
