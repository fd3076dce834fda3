"""SGLang's profiler of verification cost through the plugin's entry point, from recorded rounds to the table that the planner reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sglang.srt.speculative.dspark_components.dspark_sps import load_sps_table_from_path

from speculators_convert.sglang_plugin.sps_profile import split_arguments

OURS, STOCK = "speculators_convert.sglang_plugin.sps_profile", "sglang.benchmark.dspark_sps_profiler"


def seconds(requests: int, tokens: int) -> float:
    """A step's time in this test: it grows with requests and, past 16 tokens, with tokens."""
    return 1e-3 + 2e-5 * requests + 5e-5 * max(0, tokens - 16)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Rounds as `run` records them, beside the table's path."""
    rounds = []
    for requests in (2, 4, 8):
        for tokens in range(requests, 7 * requests + 1, 2):
            rounds.append({"batch_size_per_rank": requests, "batch_tokens": tokens, "steps_per_sec": 1 / seconds(requests, tokens), "frac": 0.5})
    path = tmp_path / "table.json"
    (tmp_path / "table.rounds.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rounds))
    return path


def fit(module: str, table: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments, "fit", "--out", str(table), "--no-plot"], capture_output=True, text=True, timeout=240, check=False
    )


def probes(module: str, table: Path, *arguments: str) -> list[int]:
    done = fit(module, table, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return load_sps_table_from_path(str(table)).m_probes


def worst(table: Path) -> float:
    """Largest relative error of the table over the recorded rounds."""
    read = load_sps_table_from_path(str(table))
    return max(abs(read.step_time(num_reqs=n, budget=m - n) / seconds(n, m) - 1) for n in (2, 4, 8) for m in range(n, 7 * n + 1, 2))


def test_bins_of_eight_tokens_follow_the_cost_that_bins_of_64_flatten(table):
    assert probes(OURS, table) == list(range(0, 57, 8))
    ours = worst(table)
    assert probes(STOCK, table) == [0, 64]
    assert ours < 0.1 < worst(table)


def test_another_width_can_be_asked_for(table):
    assert probes(OURS, table, "--mbin-width", "16") == [0, 16, 32, 48, 64]


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["fit", "--x"], (8, ["fit", "--x"])), (["--mbin-width=4", "run"], (4, ["run"])), (["run", "--mbin-width", "32", "-y"], (32, ["run", "-y"]))]
)
def test_the_rest_of_the_command_line_is_sglangs(arguments, expected):
    assert split_arguments(arguments) == expected


@pytest.mark.parametrize("word", ["0", "-8", "eight", "", "1.5"])
def test_a_wrong_width_is_refused_before_anything_runs(table, word):
    done = fit(OURS, table, f"--mbin-width={word}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == f"--mbin-width: {word!r} is not a positive number of tokens"
    assert not table.exists()
