"""`make smoke-gpu`: every trained fixture on this machine's GPU through stock SGLang and through the plugin, as evidence.

    python tools/smoke_gpu.py [--run NAME] [--commit HASH] [--only PATTERN ...] [--control PATTERN] [--jobs N] [--budget SECONDS] [--list]

Each case is one `spec-convert smoke --engine sglang`: a fixture, stock (as rewritten for it) or the plugin (as the library saved it),
and a draft back end of those that the table of back ends has for the GPU. What the table knows to be wrong is not run, and named.
The null-draft control runs with the back end that the table chooses for a fixture, stock and through the plugin, on MT-Bench over the pair of
`tools/make_long_pair.py`, and, where there are two GPUs, with two ranks through the plugin; the other cases compare with ordinary decoding and
the reference engine only. FlashInfer has no kernels for the fixtures' heads of 32, so that its cases run the same models with heads of 64, the pair of
`tools/make_wide_pair.py`. With two GPUs the pair that ships with the package is run first, as `spec-convert smoke --tp 2`. Raw rows and logs stay in
`build/smoke-gpu/NAME`; rows of ordinary decoding that a case has in common with a finished one are taken from there. A case that was interrupted goes on
where it stopped when the command is run again with the same NAME. Results go to
`docs/evidence/NAME/smoke-CASE.json` with a manifest. Needs SGLang 0.5.23 and this package in the running Python.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import evidence  # tools/evidence.py, beside this file
from speculators_convert import api
from speculators_convert.cli.signals import ended_by_signals
from speculators_convert.engines.rules import Ruling
from speculators_convert.serving import backends, devices
from speculators_convert.smoke import pair
from speculators_convert.spec import Anchor, DraftSpec
from speculators_convert.workloads import load

ROOT = Path(__file__).resolve().parent.parent
TRAINED, EVIDENCE, BUILD = ROOT / "fixtures" / "trained", ROOT / "docs" / "evidence", ROOT / "build" / "smoke-gpu"
DRAFTS = sorted(path.name for path in TRAINED.iterdir() if path.is_dir() and path.name != "tiny-target")
WAYS = {"stock": "stock-only", "plugin": "speculators_dspark"}
"""SGLANG_PLUGINS of each way; no plugin has the first name, so SGLang is as without this package."""
WANTED = ("triton", "fa3", "flashinfer")
WIDE_HEADS = "flashinfer"
"""The back end that has no kernels for heads of 32. Its cases run heads of 64, so the table is asked without the fixtures' head_dim."""
OUTPUT_TOKENS, TIMEOUT_SECONDS = 64, 900
RANK_PROMPTS = 10
"""Prompts of a fixture's case with several ranks, whose servers are asked one after another: half of the 20, so that a case ends within minutes."""
DEFAULT = "default"
PAIR = "bundled-pair"
"""Draft of the case that runs the pair of the package, with nothing chosen but the ranks."""
STARTED: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Case:
    """One run of `smoke`."""

    draft: str
    way: str
    target_backend: str
    draft_backend: str
    mt_bench: bool = False
    tp: int = 1
    control: bool = False
    modes: str = "eager,graph"

    @property
    def name(self) -> str:
        backend = [] if self.draft_backend == DEFAULT else [self.draft_backend]
        return "-".join([*(["mt-bench"] if self.mt_bench else []), self.draft, self.way, *backend, *([f"tp{self.tp}"] if self.tp > 1 else [])])


def main() -> int:
    """Run what is left; 1 when a case did not pass, 3 when the budget ended before the cases did."""
    options = _options()
    gpus = devices.gpus()
    if not gpus and not options.list:
        raise SystemExit("no GPU: nvidia-smi lists none (driver missing?). `--list --capability 10.0` shows what would run on one.")
    capability = options.capability or (gpus[0].capability if gpus else "9.0")
    wanted, left_out = cases(capability, len(gpus))
    wanted = chosen(wanted, options.only, options.control, options.mt_bench_modes)
    print(backends.choose(capability, bonus_anchor=False, plugin_live=True).why)
    print("\n".join([*(f"run   {case.name}, target {case.target_backend}" for case in wanted), *(f"leave {name}: {why}" for name, why in left_out)]), flush=True)
    if options.list:
        return 0
    run = options.run or f"{gpus[0].name.lower().replace('nvidia ', '').replace(' ', '-')}-{datetime.now(tz=UTC).date()}"
    commit = options.commit or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    _demand_same_commit(BUILD / run, commit, stated=bool(options.commit))
    done, stop, lock = list[str](), time.monotonic() + options.budget, threading.Lock()
    for case in wanted:
        _inputs(case, BUILD / run)  # made once, before cases that run side by side need them

    def one(case: Case) -> None:
        if time.monotonic() > stop:
            return
        verdict = _run(case, BUILD / run, stop, options.parallel)
        with lock:
            done.append(verdict)
            record(EVIDENCE / run, BUILD / run, _machine(gpus), commit)

    with ended_by_signals(), ThreadPoolExecutor(options.jobs) as pool:
        try:
            list(pool.map(one, wanted))
        except BaseException:
            stop = 0.0
            for process in STARTED:
                process.terminate()  # its finished servers are kept, and it ends the others
            raise
    print(f"{len(done)} of {len(wanted)} cases: {', '.join(f'{done.count(word)} {word}' for word in sorted(set(done)))}; evidence in docs/evidence/{run}")
    return 3 if len(done) < len(wanted) else int(any(verdict != "pass" for verdict in done))


def _demand_same_commit(work: Path, commit: str, *, stated: bool) -> None:
    """Results of one run come from one commit, and from what it holds."""
    if not stated and subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src"], cwd=ROOT, check=False).returncode:
        raise SystemExit("src differs from HEAD: commit first, or state --commit")
    marker = work / "commit"
    if marker.exists() and marker.read_text() != commit:
        raise SystemExit(f"{work.relative_to(ROOT)} was made at {marker.read_text()}, this is {commit}: use another --run")
    work.mkdir(parents=True, exist_ok=True)
    marker.write_text(commit)


def cases(capability: str, gpus: int = 1) -> tuple[list[Case], list[tuple[str, str]]]:
    """What runs on GPUs of this capability, the most telling first, and what does not, with the reason."""
    found, left_out = list[Case](), list[tuple[str, str]]()
    for draft in DRAFTS:
        bonus, sliding = _facts(draft)
        for way in WAYS:
            live = way == "plugin"
            choice = backends.choose(capability, bonus_anchor=bonus, plugin_live=live, sliding=sliding)
            for name in dict.fromkeys((*backends.accepted(capability, "draft"), *WANTED)):
                case = Case(draft, way, choice.target, name, control=name == choice.draft)
                reason = _against(capability, name, backends.Case(bonus_anchor=bonus, plugin_live=live, sliding=sliding))
                if reason is None:
                    found.append(case)
                else:
                    left_out.append((case.name, reason))
    plugin, stock = ([case for case in found if case.control and case.way == way] for way in ("plugin", "stock"))
    first = [*plugin, *(_ranks(plugin, stock) if gpus > 1 else ()), *(replace(case, mt_bench=True) for case in plugin)]
    return [*first, *(case for case in found if case not in plugin)], left_out


def chosen(found: Sequence[Case], only: Sequence[str], control: str, mt_bench_modes: str) -> list[Case]:
    """The cases that a pattern of `only` matches, those of the first pattern first; a control only where `control` matches too."""
    order = [case for case in found if not only]
    for pattern in only:
        order += [case for case in found if re.search(pattern, case.name) and case not in order]
    kept = [replace(case, control=case.control and bool(re.search(control, case.name))) for case in order]
    return [replace(case, modes=mt_bench_modes) if case.mt_bench else case for case in kept]


def _ranks(plugin: Sequence[Case], stock: Sequence[Case]) -> Iterator[Case]:
    """Two ranks: the pair of the package, then the given cases; stock, as rewritten for it, without the control."""
    yield Case(PAIR, "plugin", DEFAULT, DEFAULT, tp=2, control=True)
    yield from (replace(case, tp=2) for case in plugin)
    yield from (replace(case, tp=2, control=False) for case in stock)


def _facts(draft: str) -> tuple[bool, bool]:
    """Bonus anchor, sliding layers."""
    spec = api.look(str(TRAINED / draft)).spec
    return spec.anchor is Anchor.BONUS, spec.slides


def _against(capability: str, name: str, case: backends.Case) -> str | None:
    known = backends.problem(capability, "draft", name, case)
    if known is None and name not in backends.accepted(capability, "draft"):
        return f"the table has no {name} for drafts on {backends.key_of(capability)}"
    return known


def _run(case: Case, work: Path, stop: float, parallel: int | None) -> str:
    """The verdict of one case, ended at `stop`; a finished one is not run again."""
    out, result = work / case.name, work / case.name / "smoke-result.json"
    if not result.exists() or json.loads(result.read_text())["verdict"] == "not-run":
        result.unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        draft, target, prompts = _inputs(case, work)
        words = command(case, str(draft), str(target), str(prompts), str(out), parallel)
        share(case, work)
        (out / "command.txt").write_text(f"SGLANG_PLUGINS={WAYS[case.way]} " + " ".join(["spec-convert", *words]) + "\n")
        with (out / "smoke.txt").open("w") as log:
            environ = {**os.environ, "SGLANG_PLUGINS": WAYS[case.way]}
            process = subprocess.Popen([sys.executable, "-m", "speculators_convert", *words], cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT)
            STARTED.append(process)
            try:
                process.wait(max(1.0, stop - time.monotonic()) if math.isfinite(stop) else None)
            except subprocess.TimeoutExpired:
                process.terminate()  # its finished servers are kept
                process.wait()
    verdict = json.loads(result.read_text())["verdict"] if result.exists() else "no result"
    print(f"{verdict:9} {case.name}" + ("" if verdict == "pass" else f": see {(out / 'smoke.txt').relative_to(ROOT)}"), flush=True)
    return verdict


def command(case: Case, draft: str, target: str, prompts: str, out: str, parallel: int | None = None) -> list[str]:
    """Words of `spec-convert` for a case; the bundled pair runs with nothing else said."""
    if case.draft == PAIR:
        return ["smoke", "--tp", str(case.tp), *([] if case.control else ["--no-control"]), "--out", out]
    return [
        "smoke", draft, "--target", target, "--prompts", prompts, "--engine", "sglang", "--modes", case.modes, "--max-new-tokens", str(OUTPUT_TOKENS),
        "--attention-backend", case.target_backend, "--draft-attention-backend", case.draft_backend, "--timeout", str(TIMEOUT_SECONDS), "--out", out,
        "--tp", str(case.tp), "--control" if case.control else "--no-control", *(["--parallel", str(parallel)] if parallel else []),
    ]  # fmt: skip


def share(case: Case, work: Path) -> None:
    """Rows and logs that a finished case has of the same server; `smoke` takes rows only where they answer what it asks of the same bytes."""
    own = work / case.name
    for rows in sorted(work.glob("*/rows/*.json")):
        there, name = rows.parents[1], rows.name
        if not (own / "rows" / name).exists() and (there / "smoke-result.json").exists() and _same_server(case, there.name, rows.stem):
            for folder, file in (("rows", name), ("logs", f"{rows.stem}.log")):
                (own / folder).mkdir(parents=True, exist_ok=True)
                if (there / folder / file).exists():
                    shutil.copy2(there / folder / file, own / folder / file)


def _same_server(case: Case, other: str, server: str) -> bool:
    """Whether a server of the case `other` may be one of `case` too: ordinary decoding of the same target by as many ranks."""
    ranks = f"-tp{case.tp}" if case.tp > 1 else ""
    return (
        server.startswith("plain")
        and other.startswith("mt-bench") == case.mt_bench
        and ("sliding" in other) == ("sliding" in case.name)
        and other.endswith(ranks or case.draft_backend)
    )


def _inputs(case: Case, work: Path) -> tuple[Path, Path, Path]:
    """Draft, target and prompts; what is not a fixture is made once."""
    if case.draft == PAIR:
        return pair.DRAFT, pair.TARGET, pair.PROMPTS
    place, prompts, stock = TRAINED, TRAINED / "prompts.jsonl", work / "stock"
    if case.mt_bench:
        place, prompts = _long(work)
    elif case.tp > 1:
        prompts = _first(prompts, work / f"prompts-{RANK_PROMPTS}.jsonl")
    if WIDE_HEADS in (case.target_backend, case.draft_backend):
        place, stock = _wide(place, work), work / "wide-stock"
    draft, target = place / case.draft, place / "tiny-target"
    return (draft if case.way == "plugin" else _rewritten(draft, target, stock)), target, prompts


def _long(work: Path) -> tuple[Path, Path]:
    """The trained pair with room for MT-Bench, and its requests."""
    out, prompts = work / "long-pair", work / "mt-bench.jsonl"
    if not out.exists():
        subprocess.run([sys.executable, str(ROOT / "tools" / "make_long_pair.py"), str(out)], check=True)
        requests = load("mt-bench", out / "tiny-target", output_tokens=OUTPUT_TOKENS, both_turns=True).requests
        prompts.write_text("".join(json.dumps({"input_ids": list(item.input_ids)}) + "\n" for item in requests))
    return out, prompts


def _first(prompts: Path, out: Path) -> Path:
    """The first `RANK_PROMPTS` lines; written once, since cases that run read it."""
    if not out.exists():
        out.write_text("".join(prompts.read_text().splitlines(keepends=True)[:RANK_PROMPTS]))
    return out


def _wide(place: Path, work: Path) -> Path:
    """The pair in `place` with heads of 64."""
    out = work / ("wide-pair" if place == TRAINED else f"wide-{place.name}")
    if not out.exists():
        subprocess.run([sys.executable, str(ROOT / "tools" / "make_wide_pair.py"), str(out), "--pair", str(place)], check=True)
    return out


def _rewritten(draft: Path, target: Path, stock: Path) -> Path:
    """The draft as stock SGLang reads it, below `stock`."""
    spec: DraftSpec = api.look(str(draft)).spec
    out = stock / draft.name
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        api.normalize(str(draft), out, layout="sglang-dense" if spec.reduced_vocabulary else "sglang", target=str(target))
    verdict = next(item for item in api.inspect(str(out), target=str(target)).engines if (item.engine, item.version) == ("SGLang", "0.5.23"))
    if verdict.verdict != Ruling.LOADS.value:
        raise SystemExit(f"{out}: stock SGLang does not load it: {'; '.join(verdict.reasons)}")
    return out


def record(folder: Path, work: Path, machine: str, commit: str) -> None:
    """Results of `work` to a folder of evidence, with paths of the repository only, and their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    stated = folder / "commands.json"
    before = json.loads(stated.read_text()) if stated.exists() else {"date": str(datetime.now(tz=UTC).date()), "commands": {}}
    commands = dict(before["commands"])
    for result in sorted(work.glob("*/smoke-result.json")):
        name = f"smoke-{result.parent.name}.json"
        (folder / name).write_text(_portable(result.read_text()))
        commands[name] = _portable((result.parent / "command.txt").read_text().strip())
    stated.write_text(json.dumps({**before, "machine": machine, "commands": commands}, indent=2) + "\n")
    evidence.write(folder, commit)


def _portable(text: str) -> str:
    """Without this machine's folders."""
    for place, shown in ((f"{ROOT}/", ""), (f"{sys.prefix}/", ""), (f"{Path.home()}/", "~/")):
        text = text.replace(place, shown)
    return text


def _machine(gpus: Sequence[devices.Gpu]) -> str:
    kinds = sorted({gpu.name for gpu in gpus})
    return f"{len(gpus)} x {', '.join(kinds)} (compute capability {gpus[0].capability}, driver {gpus[0].driver}), Python {sys.version.split()[0]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="Name of the folder in docs/evidence; the GPU and today's date without it")
    parser.add_argument("--commit", help="Commit that is run, where the sources are not in a git repository")
    parser.add_argument("--only", action="append", default=[], help="Cases whose name matches this regular expression; given several times, the cases of the first go first")
    parser.add_argument("--control", default="", help="The null-draft control only for cases whose name matches this regular expression too")
    parser.add_argument("--mt-bench-modes", default="eager,graph", help="Modes of the cases over MT-Bench, which have eight times the prompts")
    parser.add_argument("--jobs", type=int, default=1, help="Cases at once; each starts all its servers at once where memory and cores allow")
    parser.add_argument("--parallel", type=int, help="Servers at once of one case; without it as many as memory and cores allow")
    parser.add_argument("--budget", type=float, default=float("inf"), help="Seconds after which no further case is started")
    parser.add_argument("--capability", help="With --list: a compute capability such as 10.0")
    parser.add_argument("--list", action="store_true", help="Show the cases and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
