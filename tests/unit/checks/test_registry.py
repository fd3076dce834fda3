"""Laws over all codes: each is documented, and a run never raises for bad input."""

import re

import pytest

from speculators_convert.checkpoint import Checkpoint, Fault
from speculators_convert.checks import CHECKS, Check
from speculators_convert.checks.container import FAULT_CODES

SECTIONS = ("## What it checks", "## Why it matters", "## How to fix", "## Reported in")


@pytest.mark.parametrize("item", CHECKS.values(), ids=lambda item: item.code)
def test_each_check_is_documented(item: Check) -> None:
    positions = [item.doc.find(section) for section in SECTIONS]
    assert -1 not in positions
    assert positions == sorted(positions)
    for section in SECTIONS:
        assert len(item.doc.partition(section)[2].partition("##")[0].strip()) > 10
    assert item.hint
    assert re.fullmatch(r"DSP\d{3}", item.code)
    assert len(item.title) < 90


def test_required_codes_exist() -> None:
    assert {code for item in CHECKS.values() for code in item.requires} <= set(CHECKS)


def test_each_kind_of_fault_has_a_code() -> None:
    """Kinds are written as literals in the modules that make faults; none may be without a code."""
    from pathlib import Path  # noqa: PLC0415

    import speculators_convert  # noqa: PLC0415

    root = Path(speculators_convert.__file__).parent
    text = "".join((root / name).read_text() for name in ("checkpoint.py", "container/header.py", "container/strict_json.py") if (root / name).exists())
    kinds = set(re.findall(r'(?:Fault|HeaderFault)\(\s*"([a-z-]+)"', text)) | {"index-unlisted-tensor", "index-wrong-shard"}
    assert kinds == set(FAULT_CODES)
    assert Fault
    assert Checkpoint


@pytest.mark.parametrize("item", CHECKS.values(), ids=lambda item: item.code)
def test_flags_in_the_text_exist(item: Check) -> None:
    """A finding that leaves two readings open names the `--set` key that decides; each named key is one."""
    from speculators_convert.spec import Settings  # noqa: PLC0415

    assert set(re.findall(r"--set ([a-z_]+)=", item.doc)) <= set(Settings.model_fields)


@pytest.mark.parametrize("code", ["DSP202", "DSP203", "DSP204", "DSP210", "DSP215", "DSP220", "DSP221", "DSP230", "DSP231", "DSP241", "DSP250", "DSP329"])
def test_an_open_fact_names_the_flag_that_states_it(code: str) -> None:
    assert "--set " in CHECKS[code].hint
