"""The one environment of every test and every notebook kernel.

Kernels and subprocesses inherit it, so it is set here, when pytest starts, and nowhere else.
"""

from __future__ import annotations

import os
import time

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "MNEMES_STATIC": "1",
    "TQDM_DISABLE": "1",
    "TZ": "UTC",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

os.environ.update(ENVIRONMENT)
if hasattr(time, "tzset"):  # not on Windows
    time.tzset()
