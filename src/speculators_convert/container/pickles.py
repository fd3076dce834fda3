"""Recognise pickles by their first bytes, whatever the file is called. Nothing is ever unpickled."""

from __future__ import annotations

import re

SNIFFED_BYTES = 128
_OLD_PICKLE = re.compile(rb"\(?(?:[ldt]p\d*\n|[ci][A-Za-z_][\w.]*\n\w+\n)|[\]})]q\x00")
_ZIP, _NPY = b"PK\x03\x04", b"\x93NUMPY"


def is_pickle(first: bytes) -> bool:
    """True for a pickle (protocol 2 to 5, or an older one that builds a list, a dict or an object), a torch archive of one, or an array of Python objects."""
    if first[:1] == b"\x80":
        return first[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}
    if first.startswith(_ZIP):
        name = first[30 : 30 + int.from_bytes(first[26:28], "little")]
        return name.endswith(b"data.pkl")
    return _OLD_PICKLE.match(first) is not None or (first.startswith(_NPY) and b"'|O'" in first)
