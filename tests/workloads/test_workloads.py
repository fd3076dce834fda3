"""Workloads: MT-Bench as shipped, MMSpec copies of the published form, and what does not fit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from speculators_convert.errors import SourceError, UsageError
from speculators_convert.workloads import Skipped, load, load_workload, mmspec, mt_bench
from workload_copies import TOPICS, write_mmspec

TARGET = Path(__file__).parents[2] / "fixtures" / "trained" / "tiny-target"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}<a>"
)


@pytest.fixture
def chat_target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    shutil.copytree(TARGET, folder, ignore=shutil.ignore_patterns("model*"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    return folder


def test_mt_bench_is_the_published_file_and_has_both_sizes() -> None:
    assert hashlib.sha256(mt_bench.FILE.read_bytes()).hexdigest() == "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7"
    assert "Apache-2.0" in (mt_bench.FILE.parent / "README.md").read_text()
    first, both = mt_bench.items(both_turns=False), mt_bench.items(both_turns=True)
    assert (len(first), len(both)) == (80, 160)
    assert Counter(item.topic for item in first) == dict.fromkeys(("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"), 10)
    assert [item.name for item in both[:3]] == ["81.1", "81.2", "82.1"]
    assert both[1].text.startswith(both[0].text)


def test_what_does_not_fit_is_counted_and_named() -> None:
    told: list[Skipped] = []
    prompts = load_workload("mt-bench", TARGET, output_tokens=128, report=told.append)
    assert len(prompts) + len(told) == 160
    assert told
    assert all(item.input_tokens + 128 > 512 for item in told)
    assert all(len(prompt.input_ids) + 128 <= 512 for prompt in prompts)
    assert told[0].reason == f"{told[0].input_tokens} tokens and 128 more exceed the target's 512 positions"


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(UsageError, match="no request is left") as caught:
        load_workload("mt-bench", TARGET, output_tokens=512, report=lambda _: None)
    assert "fewer output tokens" in caught.value.hint


def test_a_chat_template_is_used_for_questions_and_not_for_prompt_files(chat_target: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"text": "def f"}\n{"input_ids": [5, 6]}\n')
    tokenizer = AutoTokenizer.from_pretrained(chat_target)
    asked = load("mt-bench", chat_target, output_tokens=8).requests[0]
    assert tokenizer.decode(asked.input_ids).startswith("<user>Compose an engaging")
    assert tokenizer.decode(asked.input_ids).endswith("<a>")
    stated = load(str(file), chat_target, output_tokens=8).requests
    assert tokenizer.decode(stated[0].input_ids) == "def f"
    assert stated[1].input_ids == (5, 6)


def test_a_processors_template_counts_too(tmp_path: Path) -> None:
    target = TARGET.parents[1] / "multimodal" / "vl-target"
    write_mmspec(tmp_path / "copy", per_topic=1)
    text = AutoTokenizer.from_pretrained(target).decode(load(f"mmspec:{tmp_path / 'copy'}", target, output_tokens=8).requests[0].input_ids)
    assert "<|vision_start|><|image_pad|><|vision_end|>" in text
    assert "What is number 0?" in text
    asked = load("mt-bench", target, output_tokens=8).requests[0]
    assert "Compose an engaging" in AutoTokenizer.from_pretrained(target).decode(asked.input_ids)


def test_the_digest_names_the_image(chat_target: Path, tmp_path: Path) -> None:
    write_mmspec(tmp_path / "copy", per_topic=1)
    before = load(f"mmspec:{tmp_path / 'copy'}", chat_target, output_tokens=8).digest
    image = tmp_path / "copy/images/mmspec_001.png"
    image.write_bytes(image.read_bytes() + b"0")
    assert load(f"mmspec:{tmp_path / 'copy'}", chat_target, output_tokens=8).digest != before


def test_the_digest_names_the_token_ids() -> None:
    one, same, other = (load("mt-bench", TARGET, output_tokens=count) for count in (64, 64, 256))
    assert one.digest == same.digest != other.digest


def test_mmspec_gives_topics_images_and_deterministic_subsets(chat_target: Path, tmp_path: Path) -> None:
    write_mmspec(tmp_path / "copy", per_topic=3)
    whole = load(f"mmspec:{tmp_path / 'copy'}", chat_target, output_tokens=8)
    assert [item.name for item in whole.requests] == [f"mmspec_{number:03}" for number in range(1, 19)]
    assert Counter(item.topic for item in whole.requests) == dict.fromkeys(TOPICS, 3)
    assert all(item.image is not None and item.image.uri.startswith("data:image/png;base64,iVBOR") for item in whole.requests)
    assert len({item.image.sha256 for item in whole.requests if item.image}) == 18
    lines = (tmp_path / "copy/mmspec.jsonl").read_text().splitlines()
    (tmp_path / "copy/mmspec.jsonl").write_text("\n".join(reversed(lines)))
    subset = load(f"mmspec:{tmp_path / 'copy'}", chat_target, output_tokens=8, topic_limit=2)
    assert [item.name for item in subset.requests] == [item.name for index, item in enumerate(whole.requests) if index % 3 < 2]


def test_mmspec_places_the_image_by_the_template(chat_target: Path, tmp_path: Path) -> None:
    write_mmspec(tmp_path / "copy", per_topic=1)
    text = AutoTokenizer.from_pretrained(chat_target).decode(load(f"mmspec:{tmp_path / 'copy'}", chat_target, output_tokens=8).requests[0].input_ids)
    assert text.startswith("<user><image>")
    with pytest.raises(UsageError, match="no chat template"):
        load(f"mmspec:{tmp_path / 'copy'}", TARGET, output_tokens=8)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"image": "../../secret"}, SourceError, "leaves the checkpoint"),
        ({"image": "missing.jpg"}, SourceError, "the image is not there"),
        ({"turns": []}, UsageError, "turns must be a list of texts"),
        ({"topic": None}, UsageError, "topic must be a string"),
        ({"id": "mmspec_002"}, UsageError, "the id stands twice"),
    ],
)
def test_mmspec_refuses_lines_of_another_form(tmp_path: Path, change: dict[str, object], error: type[Exception], message: str) -> None:
    folder = tmp_path / "copy"
    write_mmspec(folder, per_topic=1)
    lines = [json.loads(line) for line in (folder / "mmspec.jsonl").read_text().splitlines()]
    lines[0].update(change)
    (folder / "mmspec.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(error, match=message):
        mmspec.items(folder)


def test_prompts_without_their_images_are_refused(chat_target: Path, tmp_path: Path) -> None:
    write_mmspec(tmp_path / "copy", per_topic=1)
    with pytest.raises(UsageError, match="which cannot be sent here"):
        load_workload(f"mmspec:{tmp_path / 'copy'}", chat_target, report=lambda _: None)


def test_mmspec_is_not_shipped() -> None:
    with pytest.raises(UsageError, match="MMSpec is not shipped"):
        load("mmspec", TARGET, output_tokens=8)
