"""Each way in which a server can misbehave: the right bytes or a clear error, and never the whole file by accident."""

from __future__ import annotations

import time

import pytest
from hub_files import LARGE_BYTES, MARK
from local_hub import Fault, LocalHub

from speculators_convert.errors import SourceError
from speculators_convert.sources.hub import HubSource, open_hub, parse_reference

MIDDLE = LARGE_BYTES // 2
REFUSED_RESPONSE_BYTES = LARGE_BYTES // 4
"""What one refused response may cost: socket buffers, far less than the file."""


def open_large(hub: LocalHub, *, timeout_s: float = 5.0) -> HubSource:
    source = open_hub(parse_reference("org/large"), endpoint=hub.url, timeout_s=timeout_s)
    assert isinstance(source, HubSource)
    return source


def read_mark(source: HubSource) -> bytes:
    return source.read("model.safetensors", MIDDLE, MIDDLE + len(MARK))


def refusal(source: HubSource, path: str = "model.safetensors", start: int = MIDDLE, stop: int = MIDDLE + len(MARK)) -> SourceError:
    with pytest.raises(SourceError) as caught:
        source.read(path, start, stop)
    return caught.value


def test_a_range_is_the_bytes_asked_for(hub: LocalHub) -> None:
    source = open_large(hub)
    assert read_mark(source) == MARK
    assert hub.sent_bytes < 4096


def test_later_ranges_of_a_file_cost_one_request_each(hub: LocalHub) -> None:
    source = open_large(hub)
    read_mark(source)
    before = hub.requests
    assert [read_mark(source) for _ in range(3)] == [MARK] * 3
    assert hub.requests - before == 3


def test_ignored_range_is_refused_before_the_body_is_read(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "ignore-range", times=-1))
    error = refusal(source)
    assert error.what == "the server ignores byte ranges and would send the whole file"
    assert (error.measured, error.expected) == ("status 200", "status 206")
    assert sum(exchange.host == "cdn" for exchange in hub.log) == 1
    assert hub.sent_bytes < REFUSED_RESPONSE_BYTES


def test_ignored_range_is_accepted_where_the_whole_of_a_small_file_was_asked_for(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "ignore-range", path="resolve-cache"))
    assert source.read("config.json", 0, 19) == b'{"model_type": "x"}'


def test_ignored_range_is_refused_for_a_part_of_a_small_file(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "ignore-range", path="resolve-cache"))
    assert "ignores byte ranges" in refusal(source, "config.json", 0, 5).what


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("wrong-range", "the server answered with another byte range"),
        ("wrong-total", "the server answered with another byte range"),
        ("no-content-range", "the server answered with another byte range"),
        ("gzip", "the server sent an encoded body for a byte range"),
        ("too-long", "the server sent more bytes than were asked for"),
        ("html", "the server ignores byte ranges and would send the whole file"),
    ],
)
def test_spoilt_answer_is_refused_at_once(hub: LocalHub, kind: str, what: str) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", kind, times=-1))
    error = refusal(source)
    assert (error.what, error.where) == (what, "model.safetensors")
    assert error.hint
    assert sum(exchange.host == "cdn" for exchange in hub.log) == 1
    assert hub.sent_bytes < REFUSED_RESPONSE_BYTES


def test_html_page_in_place_of_a_json_file(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "html", path="config.json"))
    error = refusal(source, "config.json", 0, 19)
    assert error.what == "the server answered with a web page"
    assert error.measured == "Content-Type text/html; charset=utf-8"


def test_small_file_that_is_not_that_of_the_commit(hub: LocalHub) -> None:
    source = open_large(hub)
    next(iter(hub.repositories["org/large"].commits.values()))["config.json"].data = b'{"model_type": "y"}'
    assert refusal(source, "config.json", 0, 19).what == "the file is not the one of this commit"


def test_file_changed_between_two_requests(hub: LocalHub) -> None:
    source = open_large(hub)
    read_mark(source)
    hub.faults.append(Fault("cdn", "changed"))
    error = refusal(source)
    assert error.what == "the file changed between two requests"
    assert error.measured == 'ETag "another"'


def test_file_changed_between_listing_and_read(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "changed"))
    assert refusal(source).what == "the server has another file than it listed"


def test_answer_from_another_commit(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "commit", headers={"X-Repo-Commit": "f" * 40}))
    assert refusal(source).what == "the server answered from another commit"


def test_file_became_shorter(hub: LocalHub) -> None:
    source = open_large(hub)
    read_mark(source)
    blob = next(iter(hub.blobs.values()))
    blob.data = b"short"
    assert refusal(source).what == "the server has a shorter file than it listed"


def test_cut_body_is_resumed_where_it_broke_off(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "cut", after_bytes=1_000_000))
    data = source.read("model.safetensors", MIDDLE - 2_000_000, MIDDLE + len(MARK))
    assert data == bytes(2_000_000) + MARK
    ranges = [exchange.headers["range"] for exchange in hub.log if exchange.host == "cdn"]
    first = MIDDLE - 2_000_000
    assert ranges[0] == f"bytes={first}-{MIDDLE + 15}"
    resumed = int(ranges[1].removeprefix("bytes=").split("-")[0])
    assert first < resumed <= first + 1_000_000
    assert hub.sent_bytes < 2_100_000


def test_body_cut_for_ever_is_an_error(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "cut", times=-1, after_bytes=3))
    error = refusal(source, start=0, stop=1000)
    assert "connection failed" in error.what or "cut the body off" in error.what
    assert sum(exchange.host == "cdn" for exchange in hub.log) == 4


def test_dropped_connection_is_tried_again(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "drop"))
    assert read_mark(source) == MARK


def test_slow_body_is_waited_for(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "slow", delay_s=0.1))
    assert read_mark(source) == MARK


def test_stalled_body_is_resumed(hub: LocalHub) -> None:
    source = open_large(hub, timeout_s=0.5)
    hub.faults.append(Fault("cdn", "stall", delay_s=60))
    assert read_mark(source) == MARK


def test_trickle_is_given_up(hub: LocalHub) -> None:
    source = open_large(hub, timeout_s=0.5)
    hub.faults.append(Fault("cdn", "stall", times=-1, delay_s=0.1))
    began = time.monotonic()
    error = refusal(source, start=0, stop=100_000)
    assert error.what == "the server sends too slowly"
    assert time.monotonic() - began < 20


def test_rate_limit_waits_as_long_as_the_server_says(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "status", status=429, headers={"Retry-After": "1"}))
    began = time.monotonic()
    assert read_mark(source) == MARK
    assert 1.0 <= time.monotonic() - began < 3.0


def test_rate_limit_longer_than_a_minute_is_told_and_not_waited_for(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "status", status=429, headers={"Retry-After": "3600"}))
    began = time.monotonic()
    error = refusal(source)
    assert error.what == "the Hub limits the rate of requests"
    assert error.measured == "status 429, Retry-After 3600"
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_passing_server_fault_is_tried_again(hub: LocalHub, status: int) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "status", status=status, times=2, headers={"Retry-After": "0"}))
    assert read_mark(source) == MARK


def test_lasting_server_fault_is_an_error_after_four_tries(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("cdn", "status", status=503, times=-1, headers={"Retry-After": "0"}))
    error = refusal(source)
    assert (error.what, error.measured) == ("the Hub has a fault", "status 503, Retry-After 0")
    assert sum(exchange.host == "cdn" for exchange in hub.log) == 4


def test_redirect_loop(hub: LocalHub) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "redirect", times=-1))
    before = hub.requests
    assert refusal(source).what == "the server redirects in a circle"
    assert hub.requests - before == 6


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[::1", "http://127.0.0.1:99999/x", " "])
def test_redirect_to_an_unusable_address(hub: LocalHub, location: str) -> None:
    source = open_large(hub)
    hub.faults.append(Fault("resolve", "redirect", times=-1, headers={"Location": location}))
    what = refusal(source).what
    assert what == "the server redirects to an address that is not safe to follow" or "Invalid URL in location header" in what


def test_signed_address_that_ran_out_is_asked_for_again(hub: LocalHub) -> None:
    source = open_large(hub)
    read_mark(source)
    hub.signature = "2"
    assert read_mark(source) == MARK
    assert [exchange.status for exchange in hub.log[-3:]] == [403, 302, 206]


def test_token_goes_to_the_hub_only(hub: LocalHub) -> None:
    hub.tokens["hf_secret"] = "accepted"  # noqa: S105
    hub.repositories["org/large"].private = True
    source = open_hub(parse_reference("org/large"), endpoint=hub.url, token="hf_secret")  # noqa: S106
    assert isinstance(source, HubSource)
    assert read_mark(source) == MARK
    assert hub.leaked_tokens == 0
    assert [exchange.headers.get("authorization") for exchange in hub.log] == ["Bearer hf_secret", "Bearer hf_secret", None]
    assert all(exchange.headers["accept-encoding"] == "identity" for exchange in hub.log[1:])
