"""The null draft: a control that lets a server decode plain greedy through its verification path.

It has the geometry of a given draft (gamma, anchor layout, layers, widths, taps, mask token, windows) and its backbone
tensors byte for byte, but the target's whole vocabulary and a vanilla Markov head that proposes the mask token after
each token: `markov_w1` is 1 in column 0 and `markov_w2` is `PROPOSE` in row `mask_token_id`, column 0; all else is 0.
A target that never emits its mask token accepts none of it, so every token is the bonus of a verification. Stock SGLang
0.5.23 reads the folder (`models/dspark.py` sizes both matrices with `vocab_size` and takes head and embedding from the
target), and the plugin passes it through. Needs numpy only; no more than a chunk of a tensor is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from speculators_convert.checkpoint import collect
from speculators_convert.container.index import INDEX_NAME, encode_index
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.native_config import EXTRA_TABLE, native_config
from speculators_convert.layouts.padding import columns
from speculators_convert.layouts.parts import Part, copied, weight_files
from speculators_convert.model import JsonValue, pretty_json
from speculators_convert.rewrite.plan import Literal, OutputFile
from speculators_convert.sources import LocalSource, Source, streamed
from speculators_convert.spec import D2T, DraftSpec, MarkovHead, MarkovKind, expected_shapes, known
from speculators_convert.target.pairing import text_config
from speculators_convert.write.claim import claimed
from speculators_convert.write.file_writer import CHUNK_BYTES, FileWriter, write_bytes

PROPOSE = 16384.0
"""Bias of the mask token: exact in bfloat16 and float16 (1e4 is not exact in bfloat16), and above any logit."""
DEFAULT_RANK = 8
"""Of a draft without a Markov head, which stock SGLang does not take."""
_REPLACED = ("markov_head.", "lm_head.", "embed_tokens.")
_TABLES = ("d2t", "t2d")
_SERVED_DTYPES = ("bfloat16", "float16")
_ORIGIN = "made here"


def write_null_draft(spec: DraftSpec, source: Source, target: Path, out: Path) -> Path:
    """Write the null draft of `spec`, whose bytes are in `source`, to the new folder `out` and return it; `RefusedError` when the draft has no such control."""
    null = null_spec(spec, target)
    config = native_config(null)
    config[EXTRA_TABLE]["null_draft"] = {"proposes": null.mask_token_id, "bias": PROPOSE}
    files = weight_files(_parts(null))
    with claimed(out) as folder, streamed(source) as opened, ThreadPoolExecutor(3) as pool:
        writer = FileWriter(folder, {"draft": opened}, CHUNK_BYTES, pool)
        for file in files:
            writer.write(file, lambda _: None)
        write_bytes(folder / "config.json", pretty_json(config).encode())
        if len(files) > 1:
            write_bytes(folder / INDEX_NAME, pretty_json(_index(files)).encode())
    return out


def null_spec(spec: DraftSpec, target: Path) -> DraftSpec:
    """The control's normal form: the draft's but for vocabulary and Markov head; `tensors` holds those that are copied."""
    _demand_plain(spec)
    vocabulary, mask = known(spec.target_vocab_size, "vocab_size"), known(spec.mask_token_id, "mask_token_id")
    _demand_target(vocabulary, target)
    if mask >= vocabulary:
        raise RefusedError("the mask token is outside the vocabulary, so it cannot be proposed", where="mask_token_id", measured=mask, expected=f"below {vocabulary}")
    rank = (spec.markov.rank if spec.markov else None) or DEFAULT_RANK
    tensors = {role: ref for role, ref in spec.tensors.items() if role not in _TABLES and not role.startswith(_REPLACED)}
    null = spec.model_copy(
        update={
            "markov": MarkovHead(kind=MarkovKind.VANILLA, rank=rank),
            "draft_vocab_size": vocabulary,
            "d2t": D2T.NONE,
            "dtype": spec.dtype if spec.dtype in _SERVED_DTYPES else "bfloat16",
            "tensors": tensors,
        }
    )
    _demand_tensors(null)
    return null


def _parts(null: DraftSpec) -> list[Part]:
    """The draft's own tensors, and both Markov matrices in the type of its projection."""
    vocabulary, mask = known(null.target_vocab_size, "vocab_size"), known(null.mask_token_id, "mask_token_id")
    rank, dtype = known(null.markov.rank if null.markov else None, "markov_rank"), null.tensors["fc.weight"].dtype
    zeros, one, propose = (columns([first] + [0.0] * (rank - 1), dtype) for first in (0.0, 1.0, PROPOSE))
    w1 = (Literal(data=one, count=vocabulary),)
    w2 = (Literal(data=zeros, count=mask), Literal(data=propose), Literal(data=zeros, count=vocabulary - mask - 1))
    made = [
        Part(name, name, dtype, (vocabulary, rank), segments, (_ORIGIN,), copied=False, why="the null draft proposes the mask token only")
        for name, segments in (("markov_head.markov_w1.weight", w1), ("markov_head.markov_w2.weight", w2))
    ]
    return [*(copied(role, ref) for role, ref in null.tensors.items()), *made]


def _index(files: Sequence[OutputFile]) -> JsonValue:
    tensors = [(tensor, file.path) for file in files for tensor in file.tensors]
    return encode_index({tensor.name: path for tensor, path in tensors}, sum(tensor.stop - tensor.start for tensor, _ in tensors))


def _demand_plain(spec: DraftSpec) -> None:
    """Refuse what the flat config has no place for."""
    found = "a draft inside its target's files" if spec.bundled else "quantized weights" if spec.quantization else "attention sinks" if spec.attention_sinks else ""
    if found:
        raise RefusedError("no null draft can be written for this draft", where="config.json", measured=found, expected="plain weights of a draft of its own")


def _demand_target(vocabulary: int, target: Path) -> None:
    source = LocalSource(target)
    found = text_config(dict(collect(source, payloads=()).config)).get("vocab_size")
    if found != vocabulary:
        hint = "pass the target that the draft was trained for"
        raise RefusedError("the target has another vocabulary", where=f"{target}: vocab_size", measured=found, expected=vocabulary, hint=hint)


def _demand_tensors(null: DraftSpec) -> None:
    """Refuse a backbone whose tensors are not those that its own sizes ask for."""
    for role, expected in expected_shapes(null).items():
        ref = null.tensors.get(role)
        fits = ref is not None and len(ref.shape) == len(expected) and all(want in (None, have) for have, want in zip(ref.shape, expected, strict=True))
        if not fits and not role.startswith(_REPLACED):
            shown = "missing" if ref is None else list(ref.shape)
            raise RefusedError("a tensor is not as the draft's sizes ask for", where=role, measured=shown, expected=list(expected), hint="run inspect: it lists all that is wrong")
