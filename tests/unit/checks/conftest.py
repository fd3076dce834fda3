"""Lets the tests use the draft editor, which also makes the mutations of the benchmark."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
