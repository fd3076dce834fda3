"""One rank of two, with each read of a rank file written down where it reaches the system: `os.pread` on an open file."""

import json
import logging
import os
from pathlib import Path

from sglang_harness import two_ranks

from speculators_convert.rewrite.rank_manifest import MANIFEST_NAME, RANK_FOLDER
from speculators_convert.sglang_plugin.model import SpeculatorsDSparkModel


class Observer(logging.Handler):
    """Reads, as rows of folder, file, first byte, byte after the last and whether weights were being loaded; and what the package logged."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, str, int, int, bool]] = []
        self.lines: list[str] = []
        self._loading = False

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def install(self) -> None:
        """In force until the process ends."""
        logger, pread, load = logging.getLogger("speculators_convert"), os.pread, SpeculatorsDSparkModel.load_weights
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

        def observed_pread(descriptor, length, offset):
            data = pread(descriptor, length, offset)
            self._note(Path(os.readlink(f"/proc/self/fd/{descriptor}")), offset, offset + len(data))  # noqa: PTH115
            return data

        def observed_load(model, weights):
            self._loading = True
            load(model, weights)
            self._loading = False

        os.pread, SpeculatorsDSparkModel.load_weights = observed_pread, observed_load

    def _note(self, file: Path, start: int, stop: int) -> None:
        if file.name == MANIFEST_NAME or file.parent.name == RANK_FOLDER:
            folder = file.parent if file.name == MANIFEST_NAME else file.parents[1]
            self.reads.append((str(folder), file.relative_to(folder).as_posix(), start, stop, self._loading))


def run(rank: int, port: int, cases: list[tuple[str, str]], out: str) -> None:
    """Entry of one rank: the results of `two_ranks.run`, and beside them what was read and logged."""
    observer = Observer()
    observer.install()
    two_ranks.run(rank, port, cases, out)
    Path(out).with_suffix(".json").write_text(json.dumps({"reads": observer.reads, "log": observer.lines}))
