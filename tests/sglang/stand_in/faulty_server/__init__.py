"""A server that fails on purpose: FAULTY_SERVER=die-at-start, die-when-asked or hang-when-asked."""

import os
import time


def _die(*args, **kwargs):
    os._exit(3)


def _hang(*args, **kwargs):
    time.sleep(3600)


_ASKED = "sglang.srt.managers.scheduler.Scheduler.handle_generate_request"
FAULTS = {"die-at-start": ("sglang.srt.managers.scheduler.Scheduler.__init__", _die), "die-when-asked": (_ASKED, _die), "hang-when-asked": (_ASKED, _hang)}


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    target, fault = FAULTS[os.environ["FAULTY_SERVER"]]
    HookRegistry.register(target, fault, HookType.BEFORE)
