"""Types of the extension module, for type checkers. cffi makes ``ffi`` and ``lib``; module.c adds the rest."""

from typing import Any

ffi: Any
lib: Any
Rows: Any
Handles: Any
complete: Any
leave: Any
long_value: Any
surely: Any
watch_signals: Any
