"""Prompt files, under the name that the smoke run has for them."""

from speculators_convert.workloads.prompt_file import load_tokenizer, parse_line, read_prompts

__all__ = ["load_tokenizer", "parse_line", "read_prompts"]
