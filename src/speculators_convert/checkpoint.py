"""Gather what can be known of a checkpoint without its weights: file list, JSON documents, headers, small tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from speculators_convert.container.gguf import GgufFault, GgufFile, parse_gguf
from speculators_convert.container.header import Header, HeaderFault, Tensor, header_length, parse
from speculators_convert.container.index import INDEX_NAME, parse_index
from speculators_convert.container.pickles import SNIFFED_BYTES, is_pickle
from speculators_convert.container.strict_json import loads
from speculators_convert.errors import SourceError
from speculators_convert.model import JsonValue
from speculators_convert.sources import FileInfo, LocalSource, MemorySource, Source, SourceId

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
FIRST_HEADER_READ_BYTES = 16 * 1024
SMALL_TENSORS = ("d2t", "t2d")
MAX_SNIFFED_FILES = 2000
MAX_SMALL_TENSOR_BYTES = 64 * 1024 * 1024
_DOCUMENTS = ("config.json", INDEX_NAME, "generation_config.json", "tokenizer_config.json", "hf_quant_config.json", "quantization_config.json", "special_tokens_map.json")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with a file itself; `kind` selects the check code."""

    kind: str
    file: str
    message: str
    tensor: str = ""
    measured: object = None
    expected: object = None


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor lies."""

    file: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All facts of a checkpoint; a plain value, made once by `collect`."""

    id: SourceId
    files: tuple[FileInfo, ...]
    documents: Mapping[str, JsonValue]
    headers: Mapping[str, Header]
    tensors: Mapping[str, Location]
    payloads: Mapping[str, bytes] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    gguf: Mapping[str, GgufFile] = field(default_factory=dict)
    """GGUF files at the top, read only where there is no safetensors file; their tensors then stand in `tensors`."""
    pickles: tuple[str, ...] = ()
    """Files on this machine whose first bytes are those of a pickle, whatever they are called."""

    @property
    def config(self) -> Mapping[str, JsonValue]:
        """`config.json`, or an empty mapping when it is missing or not an object."""
        config = self.documents.get("config.json")
        return config if isinstance(config, dict) else {}

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(location.tensor.size_bytes for location in self.tensors.values())

    def file(self, path: str) -> FileInfo | None:
        """The listed file of that path."""
        return next((info for info in self.files if info.path == path), None)


def collect(source: Source, *, payloads: Iterable[str] = SMALL_TENSORS) -> Checkpoint:
    """Read the facts of `source`; what is wrong with a file becomes a `Fault`, never an exception."""
    files = source.files()
    faults = [Fault("refused-file", info.path, info.refused) for info in files if info.refused]
    readable = {info.path: info for info in files if not info.refused}
    pickles = _pickles(source, files)
    ggufs = _ggufs(source, readable, faults)
    documents = _documents(source, readable, faults)
    if ggufs:
        return replace(_from_ggufs(source, files, documents, ggufs, payloads, faults), pickles=pickles)
    if "config.json" not in readable:
        faults.append(Fault("config-missing", "config.json", "there is no config.json", measured="missing", expected="a JSON object"))
    shards = _shards(readable, documents, faults)
    headers = {}
    for path in shards:
        try:
            headers[path] = read_header(source, readable[path])
        except HeaderFault as fault:
            faults.append(Fault(fault.kind, path, fault.message, fault.tensor, fault.measured, fault.expected))
    tensors = _locate(headers, documents, faults)
    return Checkpoint(source.id, files, documents, headers, tensors, _payloads(source, tensors, payloads), tuple(faults), pickles=pickles)


def _payloads(source: Source, tensors: Mapping[str, Location], names: Iterable[str]) -> dict[str, bytes]:
    return {name: source.read(tensors[name].file, tensors[name].tensor.start, tensors[name].tensor.stop) for name in names if _is_small(tensors.get(name))}


def _pickles(source: Source, files: tuple[FileInfo, ...]) -> tuple[str, ...]:
    """Pickles by content. Over a network this would cost a request for each file, so only names count there."""
    if not isinstance(source, LocalSource | MemorySource):
        return ()
    return tuple(info.path for info in files[:MAX_SNIFFED_FILES] if not info.refused and is_pickle(_first_bytes(source, info)))


def _first_bytes(source: Source, info: FileInfo) -> bytes:
    try:
        return source.read(info.path, 0, min(info.size_bytes, SNIFFED_BYTES))
    except SourceError:
        return b""


def _ggufs(source: Source, readable: Mapping[str, FileInfo], faults: list[Fault]) -> dict[str, GgufFile]:
    if any(path.endswith(".safetensors") and "/" not in path for path in readable):
        return {}
    found: dict[str, GgufFile] = {}
    for path, info in readable.items():
        if not path.endswith(".gguf") or "/" in path:
            continue
        try:
            found[path] = parse_gguf(partial(source.read, path), info.size_bytes)
        except GgufFault as fault:
            faults.append(Fault("gguf-invalid", path, fault.message, fault.tensor, fault.measured, fault.expected))
    return found


def _from_ggufs(
    source: Source, files: tuple[FileInfo, ...], documents: Mapping[str, JsonValue], ggufs: Mapping[str, GgufFile], payloads: Iterable[str], faults: list[Fault]
) -> Checkpoint:
    """Each GGUF stands alone, so a name may stand in several (a target beside its draft); the first file's tensor is listed."""
    tensors: dict[str, Location] = {}
    for path, file in ggufs.items():
        for tensor in file.tensors:
            tensors.setdefault(tensor.name, Location(path, tensor))
    return Checkpoint(source.id, files, documents, {}, tensors, _payloads(source, tensors, payloads), tuple(faults), ggufs)


def read_header(source: Source, info: FileInfo, first_bytes: int = FIRST_HEADER_READ_BYTES) -> Header:
    """The header of one safetensors file, in one read when it fits into the first one and in two when it does not. A first read of 8 bytes, its length, reads nothing behind it."""
    first = source.read(info.path, 0, min(info.size_bytes, first_bytes))
    length = header_length(first, info.size_bytes)
    raw = first if 8 + length <= len(first) else first + source.read(info.path, len(first), 8 + length)
    return parse(raw, info.size_bytes)


def parse_document(data: bytes) -> JsonValue:
    """Strict JSON, a byte order mark allowed; `ValueError` says what is wrong."""
    return loads(data.removeprefix(b"\xef\xbb\xbf"))


def _is_small(location: Location | None) -> bool:
    return location is not None and location.tensor.size_bytes <= MAX_SMALL_TENSOR_BYTES


def _documents(source: Source, readable: Mapping[str, FileInfo], faults: list[Fault]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for path in _DOCUMENTS:
        info = readable.get(path)
        if info is None:
            continue
        if info.size_bytes > MAX_DOCUMENT_BYTES:
            faults.append(Fault("document-too-large", path, "the JSON file is too large", measured=f"{info.size_bytes} bytes", expected=f"at most {MAX_DOCUMENT_BYTES}"))
            continue
        try:
            found[path] = parse_document(source.read(path, 0, info.size_bytes))
        except ValueError as error:
            faults.append(Fault("document-json", path, "the file is not valid JSON", measured=str(error)[:160], expected="a JSON object"))
    config = found.get("config.json")
    if config is not None and not isinstance(config, dict):
        faults.append(Fault("config-not-object", "config.json", "the config is not a JSON object", measured=type(config).__name__, expected="object"))
    return found


def _shards(readable: Mapping[str, FileInfo], documents: Mapping[str, JsonValue], faults: list[Fault]) -> list[str]:
    """Weight files to read: those of the index when there is one, else each safetensors file at the top."""
    present = [path for path in readable if path.endswith(".safetensors") and "/" not in path]
    if INDEX_NAME not in documents:
        if not present:
            faults.append(Fault("no-weights", "", "there is no safetensors file", measured="none", expected="model.safetensors"))
        return present
    index = parse_index(documents[INDEX_NAME])
    if isinstance(index, str):
        faults.append(Fault("index-invalid", INDEX_NAME, f"the index cannot be used: {index}"))
        return present
    named = sorted(set(index.weight_map.values()))
    for shard in named:
        if shard not in readable:
            faults.append(Fault("index-missing-shard", INDEX_NAME, "the index names a file that is not there", measured=shard[:120], expected="a file beside the index"))
        elif not shard.endswith(".safetensors"):
            faults.append(
                Fault("index-missing-shard", INDEX_NAME, "the index names a weight file of another kind, which is not read", measured=shard[:120], expected="a .safetensors file")
            )
    faults.extend(
        Fault("index-unlisted-file", path, "the index does not name this weight file", measured=path, expected="each shard named in the index")
        for path in present
        if path not in named
    )
    return [shard for shard in named if shard in readable and shard.endswith(".safetensors")]


def _locate(headers: Mapping[str, Header], documents: Mapping[str, JsonValue], faults: list[Fault]) -> dict[str, Location]:
    index = parse_index(documents[INDEX_NAME]) if INDEX_NAME in documents else None
    weight_map: Mapping[str, str] = index.weight_map if index is not None and not isinstance(index, str) else {}
    found: dict[str, Location] = {}
    for path, header in headers.items():
        for tensor in header.tensors:
            if weight_map and weight_map.get(tensor.name) != path:
                kind = "index-unlisted-tensor" if tensor.name not in weight_map else "index-wrong-shard"
                faults.append(
                    Fault(kind, path, "index and shard disagree on a tensor", tensor.name, measured=f"in {path}", expected=weight_map.get(tensor.name, "listed in the index"))
                )
            if tensor.name in found:
                faults.append(Fault("duplicate-tensor", path, "the tensor stands in two files", tensor.name, measured=f"{found[tensor.name].file} and {path}", expected="one file"))
                if weight_map.get(tensor.name) != path:
                    continue
            found[tensor.name] = Location(path, tensor)
    for name, shard in sorted(weight_map.items()):
        if shard in headers and name not in found:
            faults.append(Fault("index-missing-tensor", INDEX_NAME, "the index names a tensor that its shard lacks", name, measured=f"not in {shard}", expected=f"in {shard}"))
    return found


__all__ = ["Checkpoint", "Fault", "Location", "SourceError", "collect", "parse_document", "read_header"]
