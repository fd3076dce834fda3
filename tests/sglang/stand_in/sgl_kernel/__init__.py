"""Stand-in for the compiled kernel wheel, which needs libcuda: the names that a CPU process of SGLang 0.5.23 imports.

Two of them are called on this path and are written out; one is a warm-up without effect for a draft chain; the others
raise, so that a run which depends on them fails instead of passing with made-up numbers.
"""

__version__ = "0.4.10"


def assign_req_to_token_pool_cpu(rows, table, starts, stops, slots, width):
    """Write consecutive `slots` into columns starts..stops of each row of `table`."""
    taken = 0
    for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
        table[row, start:stop] = slots[taken : taken + stop - start].to(table.dtype)
        taken += stop - start


def assign_extend_cache_locs_cpu(rows, table, starts, stops, out, width, *rest):
    """Read columns starts..stops of each row of `table` into `out`, one row after the other."""
    taken = 0
    for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
        out[taken : taken + stop - start] = table[row, start:stop].to(out.dtype)
        taken += stop - start


def copy_all_layer_kv_cache_cpu(*args, **kwargs):
    """Moves accepted tree branches; called once to warm up. A chain has nothing to move."""


def _absent(name):
    def call(*args, **kwargs):
        raise NotImplementedError(f"the stand-in has no {name}")

    return call


for _name in (
    "assign_draft_cache_locs_contiguous_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "merge_state_v2",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
):
    globals()[_name] = _absent(_name)
