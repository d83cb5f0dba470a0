"""``BrokerProcess``: a store of this process, owned and served until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn

import logstore
from logstore.cli.streams.failures import EXIT_INTERRUPTED
from logstore.errors import LogStoreError
from rpc.addresses import address_of, host_and_port
from rpc.broker import Broker
from rpc.observability.metrics import serve_metrics
from rpc.security.security import Security, open_security
from rpc.serving import Serving, serving
from rpc.settings import BrokerSettings
from rpc.supervisor import notify

logger = logging.getLogger(__name__)

_SIGNALS: Final = {signal.SIGTERM: 0, signal.SIGINT: EXIT_INTERRUPTED}


class BrokerProcess:
    """``say``: told the address once calls are served. ``store_settings``: more of ``logstore.open``.

    The first SIGTERM or SIGINT ends it in order, the second at once, as a kill does.
    """

    def __init__(
        self, settings: BrokerSettings, say: Callable[[str], None], store_settings: dict[str, Any]
    ) -> None:
        self._settings = settings
        self._say = say
        self._store_settings = store_settings
        self._security = Security()
        self._exit_code = 0
        self._superseded: LogStoreError | None = None

    def run(self) -> int:
        """Serve until a signal; the exit code. Of the main thread. Errors: those of ``logstore.open``,
        TopicLockedError (other processes write), DuplicateBrokerError and StaleBrokerError (another process is this
        broker, or has become it), BrokerConfigError (the address cannot be listened on),
        SecretFileError and TlsConfigError (files of the broker's security)."""
        signal.signal(signal.SIGTERM, _leave)
        self._security = open_security(self._settings, self._settings.data)
        with serving(self._settings, self._store_settings) as served:
            if served.access is not None:
                self._security = open_security(self._settings, self._settings.data, served.access)
            asyncio.run(self._serve(served))
        if self._superseded is not None:
            raise self._superseded
        return self._exit_code

    async def _serve(self, served: Serving) -> None:
        settings = self._settings
        broker = Broker(
            served.engine,
            settings,
            cluster_id=served.cluster_id,
            version=logstore.__version__,
            security=self._security,
            brokers=served.brokers,
            place=served.place,
        )
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number, code in _SIGNALS.items():
            loop.add_signal_handler(number, self._stop, stopping, code)

        def end(error: LogStoreError) -> None:
            self._superseded = error
            with suppress(RuntimeError):  # the loop is over: this process ends anyway
                loop.call_soon_threadsafe(stopping.set)

        served.when_superseded(end)
        metrics = None
        try:
            port = await broker.start()
            metrics = serve_metrics(settings, served.store, broker, served.place)
            if metrics is not None:
                address = address_of(
                    host_and_port(settings.metrics_listen, "metrics_listen")[0], metrics.port
                )
                logger.info("metrics at http://%s/metrics", address)
            self._say(address_of(settings.address[0], port))
            notify("READY=1")
            await stopping.wait()
            notify("STOPPING=1")
            if self._superseded is None:
                await asyncio.to_thread(served.hand_over)
                logger.info("stopping: calls under way may go on for %g s", settings.drain_s)
        finally:
            await broker.stop(None if self._superseded is None else 0.0)
            if metrics is not None:
                await asyncio.to_thread(metrics.close)

    def _stop(self, stopping: asyncio.Event, exit_code: int) -> None:
        """The first signal. The next one finds the system's own handling, which no lock or sync can hold up."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._exit_code = exit_code
        stopping.set()


def _leave(signal_number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM before anything is served: what was opened is closed, in order."""
    del signal_number, frame
    raise SystemExit(0)
