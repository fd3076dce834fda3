"""`python -m speculators_convert`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from speculators_convert.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
