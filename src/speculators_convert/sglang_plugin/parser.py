"""The model-config parser: Speculators DSpark drafts become native configs, everything else goes to SGLang's own parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from sglang.srt.configs.model_config_parser_registry import get_model_config_parser, register_model_config_parser
from sglang.srt.utils.hf_transformers.config import HfModelConfigParser
from transformers import PretrainedConfig

from speculators_convert.sglang_plugin import state
from speculators_convert.sglang_plugin.native import native_object
from speculators_convert.sglang_plugin.preflight import read_draft
from speculators_convert.spec import DraftSpec

PARSER = "hf"
"""The parser that SGLang uses unless told otherwise; gamma resolution has no way to name another one."""


class SpeculatorsConfigParser(HfModelConfigParser):  # type: ignore[misc]
    """SGLang's parser with one case more."""

    def parse(self, model: str | Path, trust_remote_code: bool, revision: str | None = None, **kwargs: Any) -> Any:
        """The config of `model`."""
        if not is_speculators_dspark(model, revision):
            return super().parse(model, trust_remote_code, revision, **kwargs)
        state.require_sound()
        folder = local_folder(model, revision)
        return native_object(read_draft(folder), folder)


def is_speculators_dspark(model: str | Path, revision: str | None) -> bool:
    """Whether the config says `speculators_model_type` "dspark"; false when there is no readable config."""
    try:
        table, _ = PretrainedConfig.get_config_dict(str(model), revision=revision)
    except (OSError, ValueError):
        return False
    return table.get("speculators_model_type") == "dspark"


def local_folder(model: str | Path, revision: str | None) -> Path:
    """The folder of a draft; one on the Hub is downloaded to the cache where SGLang's loader looks for it too."""
    path = Path(model)
    if path.is_dir():
        return path
    return Path(snapshot_download(str(model), revision=revision, allow_patterns=["*.json", "*.safetensors"]))


def load(model: str | Path, revision: str | None) -> tuple[DraftSpec, Path] | None:
    """The draft of `model` when it is a Speculators DSpark draft, and its folder."""
    if not is_speculators_dspark(model, revision):
        return None
    folder = local_folder(model, revision)
    return read_draft(folder), folder


def install() -> None:
    """Take the place of SGLang's parser, in this process."""
    register_model_config_parser(PARSER)(SpeculatorsConfigParser)


def is_live() -> bool:
    """Whether SGLang would call this parser."""
    return isinstance(get_model_config_parser(PARSER), SpeculatorsConfigParser)
