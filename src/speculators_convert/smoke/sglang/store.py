"""A run's folder: rows of each finished server, bound to what was asked, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from speculators_convert.errors import WriteError
from speculators_convert.model import Model, canonical_json, packed, sha256_hex, unpacked
from speculators_convert.results.smoke import Prompt, SmokeConfig
from speculators_convert.serving.config import ServerConfig
from speculators_convert.smoke.sglang.ask import Rows
from speculators_convert.version import __version__


class Kept(Model):
    """Rows under the key of what was asked."""

    key: str
    rows: Rows


class Store:
    """The folder of one run; `digests` are those of draft and target. `WriteError` when it cannot be written."""

    def __init__(self, folder: Path, digests: Sequence[str], surroundings: Mapping[str, str]) -> None:
        self.folder, self._digests, self._surroundings = folder, tuple(digests), dict(surroundings)
        for name in ("logs", "rows"):
            try:
                (folder / name).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WriteError(f"cannot make the run's folder ({error.strerror})", where=str(folder / name), hint="name a folder that you may write to with --out") from error

    def log(self, config: ServerConfig) -> Path:
        """Where the server of `config` writes."""
        return self.folder / "logs" / f"{config.name}.log"

    def key(self, server: ServerConfig, config: SmokeConfig, prompts: Sequence[Prompt]) -> str:
        """Digest of server, requests, the checkpoints that it loads, versions and tool; where the models lie and which GPU it gets do not count."""
        asked = [config.max_new_tokens, config.servers.sampling_temperature, config.servers.image, [prompt.input_ids for prompt in prompts]]
        place = {"target": "", "draft": server.draft is not None, "gpus": None}
        loaded = self._digests if server.draft is not None else self._digests[1:]
        return sha256_hex(canonical_json([{**server.model_dump(mode="json"), **place}, asked, loaded, self._surroundings, __version__]))

    def read(self, server: ServerConfig, key: str) -> Rows | None:
        """Rows of an earlier run that asked the same of the same."""
        try:
            kept = unpacked(Kept, self._file(server).read_bytes())
        except (OSError, ValueError):
            return None  # not there, or cut short: asked again
        return kept.rows if kept.key == key else None

    def write(self, server: ServerConfig, key: str, rows: Rows) -> None:
        """Keep the rows, whole or not at all."""
        file = self._file(server)
        part = file.with_suffix(".part")
        try:
            part.write_bytes(packed(Kept(key=key, rows=rows)))
            os.replace(part, file)  # noqa: PTH105
        except OSError as error:
            raise WriteError(f"cannot write the server's rows ({error.strerror})", where=str(file), hint="free some space; finished servers are kept") from error

    def _file(self, server: ServerConfig) -> Path:
        return self.folder / "rows" / f"{server.name}.json"
