"""Opening a repository: references, revisions, access, listings and what a Hub may answer instead."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hub_files import DRAFT
from local_hub import Body, Fault, LocalHub, Repository

from speculators_convert.checkpoint import collect
from speculators_convert.errors import SourceError
from speculators_convert.sources import LocalSource
from speculators_convert.sources.hub import HubReference, HubSource, open_hub, parse_reference


def open_repository(hub: LocalHub, text: str, token: str | None = None) -> HubSource:
    reference = parse_reference(text)
    assert reference
    source = open_hub(reference, endpoint=hub.url, token=token)
    assert isinstance(source, HubSource)
    return source


def refusal(hub: LocalHub, text: str, token: str | None = None) -> SourceError:
    with pytest.raises(SourceError) as caught:
        open_repository(hub, text, token)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubReference("org/name")),
        ("org/name@main", HubReference("org/name", "main")),
        ("org/name@refs/pr/1", HubReference("org/name", "refs/pr/1")),
        ("hf:org/name@v1.0", HubReference("org/name", "v1.0")),
        ("RedHatAI/Qwen3.6-35B-A3B-speculator.dspark", HubReference("RedHatAI/Qwen3.6-35B-A3B-speculator.dspark")),
        ("org/name@", None),
        ("org/name@../x", None),
        ("org/../name", None),
        ("./org/name", None),
        ("/org/name", None),
        ("org/name/more", None),
        ("name", None),
        ("org/näme", None),
        ("org/name\n", None),
    ],
)
def test_reference(text: str, expected: HubReference | None) -> None:
    assert parse_reference(text) == expected


def test_hub_and_folder_give_the_same_checkpoint(hub: LocalHub) -> None:
    ours, theirs = collect(open_repository(hub, "org/draft")), collect(LocalSource(DRAFT))
    assert (ours.documents, ours.headers, ours.tensors, ours.payloads, ours.faults) == (theirs.documents, theirs.headers, theirs.tensors, theirs.payloads, theirs.faults)


def test_revision_is_resolved_to_a_commit_once(hub: LocalHub) -> None:
    repository = hub.repositories["org/draft"]
    old = repository.refs["main"]
    source = open_repository(hub, "org/draft@main")
    repository.commit({"config.json": Body(b"{}")})
    assert source.id.revision == old
    assert collect(source).config["speculators_model_type"] == "dspark"
    assert sum("/api/models/" in exchange.path and "resolve-cache" not in exchange.path for exchange in hub.log) == 1
    assert all("main" not in exchange.path for exchange in hub.log[1:])


@pytest.mark.parametrize("revision", ["old", "refs/pr/1", "commit"])
def test_named_revision(hub: LocalHub, revision: str) -> None:
    repository = hub.repositories["org/draft"]
    commit = repository.commit({"config.json": Body(b'{"of": "old"}')}, ref=revision)
    source = open_repository(hub, f"org/draft@{commit if revision == 'commit' else revision}")
    assert source.id.revision == commit
    assert source.read("config.json", 0, 13) == b'{"of": "old"}'


def test_published_digests_are_listed(hub: LocalHub) -> None:
    listed = {info.path: info.sha256 for info in open_repository(hub, "org/draft").files()}
    assert listed == {"config.json": None, "model.safetensors": hashlib.sha256((DRAFT / "model.safetensors").read_bytes()).hexdigest()}


def test_renamed_repository_is_read_under_its_new_name(hub: LocalHub) -> None:
    hub.renamed["org/before"] = "org/draft"
    source = open_repository(hub, "org/before")
    assert source.id.name == "org/draft"
    assert collect(source).config


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("org/missing", "neither a folder here nor a repository that you may read on the Hub"),
        ("org/draft@missing", "the repository has no such revision"),
    ],
)
def test_missing(hub: LocalHub, text: str, what: str) -> None:
    error = refusal(hub, text)
    assert (error.what, error.where) == (what, text)
    assert hub.requests == 1


def test_private_repository_needs_a_token(hub: LocalHub) -> None:
    hub.tokens["hf_good"] = "member"
    hub.repositories["org/draft"].private = True
    assert "log in" in refusal(hub, "org/draft").hint
    assert open_repository(hub, "org/draft", "hf_good").id.name == "org/draft"


def test_wrong_token(hub: LocalHub) -> None:
    assert "Invalid credentials" in str(refusal(hub, "org/draft", "hf_wrong").measured)


@pytest.mark.parametrize("token", [None, "hf_member"])
def test_gated_repository_says_what_to_do(hub: LocalHub, token: str | None) -> None:
    hub.tokens["hf_member"] = "member"
    hub.repositories["org/draft"].gated = True
    source = open_repository(hub, "org/draft", token)
    with pytest.raises(SourceError, match="the repository is gated") as caught:
        collect(source)
    assert "accept its terms" in caught.value.hint


def test_gated_repository_with_accepted_terms(hub: LocalHub) -> None:
    hub.tokens["hf_accepted"] = "accepted"
    hub.repositories["org/draft"].gated = True
    assert collect(open_repository(hub, "org/draft", "hf_accepted")).config


def test_listing_is_tried_again_after_a_rate_limit(hub: LocalHub) -> None:
    hub.faults.append(Fault("api", "status", status=429, headers={"Retry-After": "0"}))
    assert open_repository(hub, "org/draft").files()


def test_listing_that_stays_broken(hub: LocalHub) -> None:
    hub.faults.append(Fault("api", "status", status=500, times=-1, headers={"Retry-After": "0"}))
    assert refusal(hub, "org/draft").what == "the Hub has a fault"
    assert hub.requests == 4


@pytest.mark.parametrize(
    "body",
    ["[]", "{}", "{", '{"id": "org/draft", "sha": "main", "siblings": []}', '{"id": "org/draft", "sha": null}', '{"id": 3, "sha": "' + "a" * 40 + '", "siblings": [{"size": 1}]}'],
)
def test_answer_that_is_not_a_repository(hub: LocalHub, body: str) -> None:
    hub.faults.append(Fault("api", "json", headers={"body": body}))
    assert refusal(hub, "org/draft").what in {"the answer is not that of a Hub", "the Hub did not name a commit"}


def test_web_page_in_place_of_the_listing(hub: LocalHub) -> None:
    hub.faults.append(Fault("api", "html"))
    assert refusal(hub, "org/draft").what == "the answer is not that of a Hub"


def test_redirect_loop_of_the_listing(hub: LocalHub) -> None:
    hub.faults.append(Fault("api", "redirect", times=-1))
    assert "TooManyRedirects" in refusal(hub, "org/draft").what
    assert hub.requests < 25


def test_nobody_listens() -> None:
    reference = parse_reference("org/draft")
    assert reference
    with pytest.raises(SourceError, match="the Hub cannot be reached") as caught:
        open_hub(reference, endpoint="http://127.0.0.1:9")
    assert "HF_HUB_OFFLINE=1" in caught.value.hint


def test_long_listing_is_read_page_by_page(hub: LocalHub) -> None:
    shared = Body(b"x")
    files = {f"extra/{number:05}.txt": shared for number in range(50_100)} | {"config.json": Body(b"{}")}
    hub.repositories["org/long"] = Repository()
    hub.repositories["org/long"].commit(files)
    hub.sibling_limit = 50_000
    hub.page_size = 10_000
    source = open_repository(hub, "org/long")
    assert len(source.files()) == 50_101
    assert sum("/tree/" in exchange.path for exchange in hub.log) == 6


@pytest.mark.parametrize("name", ["../up.json", "/root.json", "a/../b", "a\\b", "a\x00b", "a\nb", ".", "a//b"])
def test_hostile_file_name_is_listed_as_refused_and_never_asked_for(hub: LocalHub, name: str) -> None:
    hub.add("org/hostile", {"config.json": Body(b"{}"), name: Body(b"x")})
    source = open_repository(hub, "org/hostile")
    assert {info.path: bool(info.refused) for info in source.files()} == {"config.json": False, name: True}
    with pytest.raises(SourceError, match="no such file"):
        source.read(name, 0, 1)
    assert hub.requests == 1


@pytest.mark.parametrize("name", ["a b#c?d%20.json", "ünï.json", "dir/ä b.json"])
def test_unusual_file_name_is_read(hub: LocalHub, name: str) -> None:
    hub.add("org/unusual", {"config.json": Body(b"{}"), name: Body(b"right")})
    assert open_repository(hub, "org/unusual").read(name, 0, 5) == b"right"


def test_file_listed_twice(hub: LocalHub) -> None:
    body = '{"id": "org/draft", "sha": "' + "a" * 40 + '", "siblings": [{"rfilename": "a", "size": 1, "blobId": "x"}, {"rfilename": "a", "size": 2, "blobId": "x"}]}'
    hub.faults.append(Fault("api", "json", headers={"body": body}))
    assert refusal(hub, "org/draft").what == "the Hub lists a file twice"


def test_read_past_the_end(hub: LocalHub) -> None:
    source = open_repository(hub, "org/draft")
    with pytest.raises(SourceError, match="shorter than expected"):
        source.read("config.json", 0, 1 << 40)
    assert hub.requests == 1


def test_files_of_the_cache_are_not_downloaded_again(hub: LocalHub, tmp_path: Path) -> None:
    import huggingface_hub  # noqa: PLC0415

    huggingface_hub.snapshot_download("org/draft", endpoint=hub.url)
    before = hub.requests
    source = open_repository(hub, "org/draft")
    assert collect(source).payloads
    assert hub.requests == before + 1


def test_a_token_file_that_cannot_be_read_is_named(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants  # noqa: PLC0415

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/dev/null/token")
    error = refusal(hub, "org/draft")
    assert (error.what, error.where) == ("the Hub's client cannot use its files (Not a directory)", "/dev/null/token")
    assert "HF_HOME" in error.hint
