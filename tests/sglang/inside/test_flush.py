"""A flush beside captured draft graphs, through SGLang's own `Scheduler.flush_cache`: what is cleared, and whether memory goes back to the driver."""

from types import SimpleNamespace

import pytest
from sglang.srt.managers import scheduler as module
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

pytestmark = pytest.mark.usefixtures("world")
LOGICAL = ["tree", "requests", "tokens", "auxiliary", "grammar", "metrics", "draft"]


class Owner:
    """The parts of a scheduler that a flush touches; each notes its name when it is cleared. There is no captured graph without a GPU."""

    def __init__(self, algorithm: SpeculativeAlgorithm, *, graph: object, idle: bool = True) -> None:
        note = self.cleared = []
        eager = object()
        self.spec_algorithm, self.idle, self._engine_paused = algorithm, idle, False
        self.tree_cache = SimpleNamespace(reset=lambda: note.append("tree"))
        self.req_to_token_pool = SimpleNamespace(clear=lambda: note.append("requests"), reset_aux_cache_allocator=lambda: note.append("auxiliary"))
        self.token_to_kv_pool_allocator = SimpleNamespace(clear=lambda: note.append("tokens"))
        self.grammar_manager = SimpleNamespace(clear=lambda: note.append("grammar"))
        self.metrics_reporter = SimpleNamespace(reset_metrics=lambda: note.append("metrics"), is_stats_logging_rank=False)
        runner = SimpleNamespace(decode_cuda_graph_runner=eager if graph == "eager" else graph, eager_runner=eager)
        self.draft_worker = SimpleNamespace(clear_cache_pool=lambda: note.append("draft"), draft_model_runner=runner)
        self.waiting_queue, self.running_batch = [], SimpleNamespace(reqs=[])

    def is_fully_idle(self, *, ignore_waiting: bool) -> bool:
        return self.idle


@pytest.fixture
def emptied(monkeypatch) -> list[str]:
    """Calls of `empty_cache`."""
    calls = []
    monkeypatch.setattr(module, "current_platform", SimpleNamespace(empty_cache=lambda: calls.append("emptied")))
    return calls


@pytest.mark.parametrize(
    ("algorithm", "graph", "expected"),
    [("DSPARK", "captured", []), ("DSPARK", "eager", ["emptied"]), ("DSPARK", None, ["emptied"]), ("EAGLE", "captured", ["emptied"])],
)
def test_memory_stays_mapped_only_while_a_dspark_graph_may_read_it(emptied, algorithm, graph, expected):
    owner = Owner(SpeculativeAlgorithm.from_string(algorithm), graph=graph)
    assert Scheduler.flush_cache(owner) is True
    assert emptied == expected
    assert sorted(owner.cleared) == sorted(LOGICAL)


def test_stock_empties_beside_a_captured_graph(emptied):
    assert Scheduler.flush_cache.__wrapped__(Owner(SpeculativeAlgorithm.from_string("DSPARK"), graph="captured")) is True
    assert emptied == ["emptied"]


def test_a_busy_scheduler_refuses_as_before(emptied):
    owner = Owner(SpeculativeAlgorithm.from_string("DSPARK"), graph="captured", idle=False)
    assert Scheduler.flush_cache(owner) is False
    assert (owner.cleared, emptied) == ([], [])
