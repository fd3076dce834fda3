"""`python -m speculators_convert`."""

from __future__ import annotations

import gc
import os


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for plugins reads the metadata of each installed package
    gc.set_threshold(100_000)  # a checkpoint of 20,000 tensors is many small objects without cycles: a fifth of the time went into looking for some
    from speculators_convert.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
