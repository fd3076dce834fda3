"""Write the first corpus: real headers, indexes, configs and GGUF files, and one file per rule that is easy to miss. python fuzz/seed.py"""

from __future__ import annotations

import json
import struct
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "fuzz" / "corpus"


def safetensors(text: bytes, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + data


def headers() -> dict[str, bytes]:
    entry = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    return {
        "one": safetensors(f'{{"a":{entry}}}'.encode(), bytes(8)),
        "empty": safetensors(b"{}"),
        "metadata": safetensors(f'{{"__metadata__":{{"format":"pt"}},"a":{entry}}}  '.encode(), bytes(8)),
        "two": safetensors(b'{"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"BOOL","shape":[3],"data_offsets":[4,7]}}', bytes(7)),
        "half-bytes": safetensors(b'{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}', bytes(2)),
        "scalar": safetensors(b'{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}', bytes(8)),
        "empty-tensor": safetensors(b'{"a":{"dtype":"U8","shape":[0,9],"data_offsets":[0,0]}}'),
        "duplicate": safetensors(f'{{"a":{entry},"a":{entry}}}'.encode(), bytes(8)),
        "overflow": safetensors(b'{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'),
        "beyond-64-bits": safetensors(b'{"a":{"dtype":"U8","shape":[36893488147419103232],"data_offsets":[0,36893488147419103232]}}'),
        "deep": safetensors(b'{"a":' * 200 + b"1" + b"}" * 200),
        "surrogate": safetensors(b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "huge-length": struct.pack("<Q", 1 << 63) + b"{}",
        "lfs-pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "zip": b"PK\x03\x04" + bytes(60),
        "text": f'{{"a":{entry}}}'.encode(),
    }


def indexes() -> dict[str, bytes]:
    return {
        "good": b'{"metadata":{"total_size":12},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}',
        "traversal": b'{"weight_map":{"a":"../../etc/passwd"}}',
        "no-map": b'{"weight_map":[]}',
        "duplicate": b'{"weight_map":{"a":"x","a":"y"}}',
        "mark": b'\xef\xbb\xbf{"weight_map":{"a":"x"}}',
        "large-number": b'{"metadata":{"total_size":1e400},"weight_map":{"a":"x"}}',
        "infinity": b'{"metadata":{"total_size":Infinity},"weight_map":{"a":"x"}}',
        "deep": b"[" * 2000,
    }


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(pairs: list[bytes], entries: list[bytes], data: bytes = b"") -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(pairs)) + b"".join(pairs) + b"".join(entries)
    return head + b"\0" * (-len(head) % 32) + data


def ggufs() -> dict[str, bytes]:
    name = text("general.architecture") + struct.pack("<I", 8) + text("dflash")
    array = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    nested = text("n") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 4, 1) + b"\1\0\0\0"
    number = text("dflash.block_size") + struct.pack("<II", 4, 8)
    tensor = text("output.weight") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0)
    quantized = text("blk.0.attn_q.weight") + struct.pack("<IQIQ", 1, 32, 8, 0)
    return {
        "one": gguf([name, array, number], [tensor], bytes(32)),
        "quantized": gguf([name], [quantized], bytes(34)),
        "nested": gguf([name, nested], []),
        "empty": gguf([], []),
        "bomb-count": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + bytes(64),
        "bomb-string": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62) + bytes(64),
        "version-1": b"GGUF" + struct.pack("<I", 1) + bytes(32),
    }


def configs() -> dict[str, bytes]:
    real = sorted((ROOT / "fixtures" / "trained").glob("*/config.json"))
    found = {f"raw-{path.parent.name}": json.dumps(json.loads(path.read_bytes()), separators=(",", ":")).encode() for path in real}
    edits = {f"edit-{base}-{where}": bytes([base, where | 1, where, 3 * where % 256, where & ~1, base, where]) for base in range(3) for where in (0, 40, 90, 200)}
    return found | edits | {"not-an-object": b"[]", "text": b'"x"', "empty-object": b"{}"}


def main() -> None:
    for target, files in {"header": headers(), "index": indexes(), "gguf": ggufs(), "config": configs()}.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / f"seed-{name}").write_bytes(data)


if __name__ == "__main__":
    main()
