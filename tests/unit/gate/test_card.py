"""The generated section states what was measured, and nothing outside its markers changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_convert.errors import RefusedError
from speculators_convert.gate.decision import Case, decide
from speculators_convert.policies import load_policy
from speculators_convert.publish.card import BEGIN, END, section, splice

PUBLISH, DEFAULT = load_policy("publish"), load_policy("default")


def test_the_section_has_geometry_engines_commands_and_acceptance(case: Case) -> None:
    text = section(decide(case, PUBLISH), "org/draft")
    assert text.startswith(BEGIN)
    assert text.endswith(END + "\n")
    for part in ("gamma 4", "**vllm 0.33.0**: loads", "vllm serve target", "| reference | eager | 1 | 2.50 | 4 of 4 prompts |", case.digest.digest if case.digest else "?"):
        assert part in text


def test_the_section_does_not_claim_what_was_not_measured(case: Case) -> None:
    assert "Acceptance was not measured." in section(decide(replace(case, evidence=()), DEFAULT))


def test_no_section_for_a_checkpoint_that_did_not_pass(case: Case) -> None:
    with pytest.raises(RefusedError, match="the gate did not pass"):
        section(decide(replace(case, evidence=()), PUBLISH))


def test_commands_name_the_repository_and_not_the_folder(case: Case) -> None:
    launch = case.report.engines[0].model_copy(update={"launch": "vllm serve T --model drafts/one"})
    gate = decide(replace(case, report=case.report.model_copy(update={"engines": (launch,)})), PUBLISH)
    assert "--model org/draft" in section(gate, "org/draft")
    assert "drafts/one" not in section(gate, "org/draft")


SECTION = f"{BEGIN}\nnew\n{END}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", SECTION),
        ("# Card\n", f"# Card\n\n{SECTION}"),
        ("# Card", f"# Card\n\n{SECTION}"),
        (f"# Card\n{BEGIN}\nold\n{END}\ntail\n", f"# Card\n{BEGIN}\nnew\n{END}\ntail\n"),
    ],
)
def test_splice(before: str, after: str) -> None:
    assert splice(before, SECTION) == after


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_second_splice_changes_nothing_and_the_rest_stays(head: str, tail: str) -> None:
    card = f"{head}{BEGIN}\nold\n{END}{tail}"
    once = splice(card, SECTION)
    assert once.startswith(head)
    assert once.endswith(tail)
    assert splice(once, SECTION) == once


@pytest.mark.parametrize("card", [BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}", f"{BEGIN}{BEGIN}{END}"])
def test_broken_markers_are_refused(card: str) -> None:
    with pytest.raises(RefusedError, match="not one pair"):
        splice(card, SECTION)
