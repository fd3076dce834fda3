#!/bin/sh
# Install Debian's Chromium and its driver for tests/ci/test_smoke_html.py, where there is none. Without apt or root it only says so: those tests are skipped.
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "no chromium, and no apt-get as root: the tests of report pages in a browser are skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { timeout 120 apt-get -qq update && timeout 600 apt-get -qq install -y --no-install-recommends chromium chromium-driver fonts-dejavu-core; } >/dev/null 2>&1; then
    echo "chromium could not be installed: the tests of report pages in a browser are skipped" >&2
fi
