"""From raw answers to modes, comparisons and verdicts on splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from speculators_convert.errors import SmokeError
from speculators_convert.results.smoke import Comparison, Equivalence, ModeResult, Prompt, Sampled, SmokeConfig
from speculators_convert.serving.config import ServerConfig
from speculators_convert.smoke import compare
from speculators_convert.smoke.compare import Drafted, Progress
from speculators_convert.smoke.sglang import beside, claims, plan
from speculators_convert.smoke.sglang.ask import Rows
from speculators_convert.smoke.sglang.beside import Beside
from speculators_convert.smoke.sglang.outputs import drafted
from speculators_convert.smoke.sglang.server_splits import classify
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec
from speculators_convert.workloads.tokens import max_positions


class Judge:
    """Claims of servers that all answered; `reference` makes them."""

    def __init__(self, config: SmokeConfig, gamma: int, prompts: Sequence[Prompt], servers: Sequence[ServerConfig], rows: Mapping[str, Rows]) -> None:
        self._config, self._gamma, self._prompts, self._servers, self._rows = config, gamma, prompts, servers, rows
        self.modes, self.comparisons, self.equivalence, self.sampled = list[ModeResult](), list[Comparison](), list[Equivalence](), list[Sampled]()

    def reference(self, spec: DraftSpec, source: Source, target: Path, progress: Progress) -> Beside | str:
        """The reference engine's measures, or why there are none; the claims are made either way, those that need it only with it."""
        found: Beside | str
        try:
            found = beside.measure(self._config, spec, source, target, self._prompts, progress)
        except (SmokeError, RuntimeError) as error:  # out of memory, or no kernel for a quantized weight
            found = " ".join(str(error).split())[:300]
        engine = found if isinstance(found, Beside) else None
        plain = self._rows[next(server.name for server in self._servers if server.role == plan.PLAIN)]
        ordinary = [server for server in self._servers if server.role == plan.DRAFTED and not server.deterministic]
        alone = [self._serial(server) for server in ordinary]
        for server, run in zip(ordinary, alone, strict=True):
            self._server(server, run, claims.tokens(plain.greedy), plain.record.asked_seconds, engine)
        if engine is not None or self._config.dtype == "float32":
            self.comparisons += compare.equal_to_each_other(alone, [item for item in self.equivalence if item.concurrency == 1])
        self.comparisons += claims.control(self._config, self._rows)
        self._control_splits(plain, engine)
        if self._config.dtype == "float32":
            self.comparisons += compare.equal_to_recorded([list(tokens) for tokens in claims.tokens(plain.greedy)], self._prompts)
        window = spec.sliding_window if spec.slides else None
        room = max_positions(target)
        windows = [window] if window is not None and (room is None or room > window) else []  # a window that no context can pass asks for nothing
        self.comparisons += claims.window(alone[0], [prompt.input_ids for prompt in self._prompts], windows)
        return found

    def _serial(self, server: ServerConfig) -> Drafted:
        rows = self._rows[server.name]
        return drafted(server, self._gamma, rows.greedy, seconds=rows.record.asked_seconds)

    def _server(self, server: ServerConfig, alone: Drafted, plain: Sequence[tuple[int, ...]], seconds: float, engine: Beside | None) -> None:
        """One ordinary drafted server: alone, many at once, sampled."""
        rows, many = self._rows[server.name], self._config.servers.concurrency
        batched = drafted(server, self._gamma, rows.batched, concurrency=many)
        limits = plan.limits(self._config.max_new_tokens, len(plain))
        cut = [tokens[:limit] for tokens, limit in zip(plain, limits, strict=True)]
        single, together = alone.against(plain, seconds), batched.against(cut, seconds)
        self.modes += [single, together]
        self._explain(engine, plain, alone, single)
        self._explain(engine, cut, batched, together)
        self.comparisons.append(claims.same_at_once(together.name, together, single, limits, engine.drafted if engine else None))
        self.comparisons += claims.stays(rows, server)
        if engine is not None:
            self.comparisons.append(claims.same_length(single.name, "the reference engine's", single, engine.result))
            self.comparisons.append(claims.same_positions(single.name, "the reference engine's", single, engine.result))
        self._sample(server, rows, plain, seconds, engine)

    def _sample(self, server: ServerConfig, rows: Rows, plain: Sequence[tuple[int, ...]], seconds: float, engine: Beside | None) -> None:
        if not rows.sampled or engine is None:
            return
        temperature, many = self._config.servers.sampling_temperature, self._config.servers.concurrency
        run = drafted(server, self._gamma, rows.sampled, concurrency=many, temperature=temperature)
        judged = beside.distribution(engine, run, self._config)
        self.modes.append(run.against(plain, seconds))
        self.sampled.append(judged)
        self.comparisons.append(compare.lossless(judged))

    def _explain(self, engine: Beside | None, plain: Sequence[Sequence[int]], run: Drafted, result: ModeResult) -> None:
        """Each split of `run` from `plain`, with the target's own verdict where the reference engine has the target."""
        if engine is None and result.exact < result.total:
            if not self._config.servers.control:
                measured = f"{result.exact} of {result.total} exact, and nobody to judge the others"
                expected = "all exact, or the control beside them (leave out --no-control)"
                self.comparisons.append(Comparison(name=f"{run.name}: drafted greedy equals target-only greedy", holds=False, measured=measured, expected=expected))
            return
        item = self._splits(engine, plain, run, "plain")
        self.equivalence.append(item)
        self.comparisons.append(compare.equal_to_plain(item))

    def _control_splits(self, plain: Rows, engine: Beside | None) -> None:
        """The control's servers against ordinary decoding: where both part from it at the same tokens, the verification's arithmetic does, not the draft."""
        if engine is None:
            return
        for server in self._servers:
            if server.role == plan.NULL:
                item = self._splits(engine, claims.tokens(plain.greedy), self._serial(server), "plain (null draft)")
                self.equivalence.append(item)

    def _splits(self, engine: Beside | None, plain: Sequence[Sequence[int]], run: Drafted, against: str) -> Equivalence:
        if engine is None:
            return compare.report(run.mode, run.tp, len(run.tokens), (), run.dtype).model_copy(update={"against": against, "concurrency": run.concurrency})
        return classify(
            engine.target, engine.requests, plain, run.tokens, gamma=self._gamma, dtype=run.dtype, against=against, mode=run.mode, tp=run.tp, concurrency=run.concurrency
        )
