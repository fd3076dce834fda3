"""`python -m speculators_convert`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    import gc  # noqa: PLC0415

    from speculators_convert.cli import main as run  # noqa: PLC0415

    gc.set_threshold(100_000)  # a checkpoint of 20,000 tensors is many small objects without cycles: a fifth of the time went into looking for some
    run()


if __name__ == "__main__":
    main()
