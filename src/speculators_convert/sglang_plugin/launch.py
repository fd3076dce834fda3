"""The check at launch, in the process that reads the command line: nothing is loaded before draft and target fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang.srt.arg_groups.model_override_base import resolving_view
from sglang.srt.utils.hf_transformers.common import get_hf_text_config
from sglang.srt.utils.hf_transformers_utils import get_config

from speculators_convert.sglang_plugin import hooks
from speculators_convert.sglang_plugin.parser import load
from speculators_convert.sglang_plugin.preflight import Target, check_target


def checked_launch(original: Callable[[Any], None], server_args: Any) -> None:
    """SGLang's own DSPARK argument handling, which forgets errors of the config parser, between two checks of ours."""
    given = _check(server_args)
    original(server_args)
    if not given:
        _check(server_args)


def _check(server_args: Any) -> bool:
    """Refuse a draft that would not work; false while no draft is named."""
    arguments = resolving_view(server_args)
    name = arguments.speculative_draft_model_path
    if not name:
        return False
    found = load(name, arguments.speculative_draft_model_revision)
    if found is not None:
        hooks.require_live()
        spec, folder = found
        check_target(spec, _target(arguments), folder)
    return True


def _target(arguments: Any) -> Target:
    config = get_config(
        arguments.model_path,
        trust_remote_code=arguments.trust_remote_code,
        revision=arguments.revision,
        model_override_args=json.loads(arguments.json_model_override_args),
        model_config_parser=arguments.model_config_parser,
    )
    text = get_hf_text_config(config)
    layers = int(text.num_hidden_layers) * int(getattr(text, "num_loops", 1))
    return Target(Path(arguments.model_path).name, (config.architectures or ["?"])[0], int(text.vocab_size), int(text.hidden_size), layers)
