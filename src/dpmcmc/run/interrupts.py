"""Ctrl-C, and the signal to terminate, while a run goes on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_held() -> Iterator[list[int]]:
    """Collect Ctrl-C and the signal to terminate in the yielded list, instead of raising them.

    An exception at the wrong moment would discard a block, or all draws while these are saved, and
    in the compiler it ends the process. Signals are held only where Python would raise them: in the
    main thread, and if no other handler is set. After a signal to terminate, the process terminates
    at the end.
    """
    held: list[int] = []
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    is_main = threading.current_thread() is threading.main_thread()
    ours = {
        number: handler
        for number, handler in usual.items()
        if is_main and signal.getsignal(number) is handler
    }
    for number in ours:
        signal.signal(number, lambda number, frame: held.append(number))
    try:
        yield held
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if signal.SIGTERM in held:
            signal.raise_signal(signal.SIGTERM)
