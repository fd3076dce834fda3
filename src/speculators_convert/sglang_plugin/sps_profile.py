"""SGLang's profiler of verification cost (`sglang.benchmark.dspark_sps_profiler`) with bins of 8 tokens instead of 64.

    python -m speculators_convert.sglang_plugin.sps_profile [--mbin-width 8] run|fit|all ...

The table says how a step's time grows with the tokens verified, and compact verification is planned with it. A batch of a
few requests verifies fewer tokens than one bin of 64, so its cost came out flat. The profiler is a program of its own
that loads no plugins; hence this entry point. All other arguments are SGLang's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

MBIN_WIDTH = 8
_FLAG = "--mbin-width"


def split_arguments(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Bin width in tokens, and the arguments that SGLang's profiler gets. `ValueError` for a width that is no positive number."""
    rest, width = list(arguments), str(MBIN_WIDTH)
    for index, word in enumerate(rest):
        if word == _FLAG and index + 1 < len(rest):
            width = rest[index + 1]
            del rest[index : index + 2]
            break
        if word.startswith(f"{_FLAG}="):
            width = rest.pop(index).partition("=")[2]
            break
    if not width.isascii() or not width.isdigit() or int(width) < 1:
        raise ValueError(f"{_FLAG}: {width!r} is not a positive number of tokens")
    return int(width), rest


def install(width: int) -> None:
    """Let the profiler's fit use bins of `width` tokens, in this process."""
    from sglang.benchmark import dspark_sps_profiler as profiler  # noqa: PLC0415

    profiler.ols_resid_backfit = functools.partial(profiler.ols_resid_backfit, mbin_w=width)


def main() -> int:
    """Exit code: the profiler's, or 2 for a wrong width."""
    try:
        width, sys.argv[1:] = split_arguments(sys.argv[1:])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    install(width)
    from sglang.benchmark import dspark_sps_profiler as profiler  # noqa: PLC0415

    profiler.cli_main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
