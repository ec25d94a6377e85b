"""A thread that calls a function at a fixed interval, until it is stopped or the function returns False."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lakebed.errors import StorageUnavailable


class Periodic:
    """Calls `beat` every `interval_s` seconds while it answers True. A store that does not answer is tried again."""

    def __init__(self, name: str, interval_s: float, beat: Callable[[], bool]) -> None:
        self._interval_s = interval_s
        self._beat = beat
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No beat begins after this returns."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                if not self._beat():
                    return
            except StorageUnavailable:
                continue
            except BaseException:
                return  # nobody catches what a thread raises; callers that rely on the beat check for themselves
