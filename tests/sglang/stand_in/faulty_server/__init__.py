"""A server that fails on purpose: FAULTY_SERVER=die-at-start, die-when-asked or hang-when-asked. Health checks do not count as asking."""

import os
import time


def _die(*args, **kwargs):
    os._exit(3)


def _hang(*args, **kwargs):
    time.sleep(3600)


def _when_asked(fault):
    def check(scheduler, request, *args, **kwargs):
        if not str(request.rid).startswith("HEALTH_CHECK"):
            fault()

    return check


_ASKED = "sglang.srt.managers.scheduler.Scheduler.handle_generate_request"
FAULTS = {
    "die-at-start": ("sglang.srt.managers.scheduler.Scheduler.__init__", _die),
    "die-when-asked": (_ASKED, _when_asked(_die)),
    "hang-when-asked": (_ASKED, _when_asked(_hang)),
}


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    target, fault = FAULTS[os.environ["FAULTY_SERVER"]]
    HookRegistry.register(target, fault, HookType.BEFORE)
