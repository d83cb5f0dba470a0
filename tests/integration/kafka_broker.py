"""A real Kafka broker of one node, on loopback, and its own command-line tools: for tests behind the long marker."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PROPERTIES = Path(__file__).parent.parent / "golden" / "broker" / "server.properties"
_PATIENCE_S = 120.0
_QUIET = "log4j2.level=off"  # of the tools


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class KafkaBroker:
    """``folder``: its own; its log directory is ``data``. ``settings``: over those of the golden broker."""

    def __init__(self, jars: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.data = folder / "data"
        self._class_path = f"{jars}/*:{jars}/libs/*"
        self._log = folder / "broker.log"
        self._file = folder / "server.properties"
        self.address = f"127.0.0.1:{free_port()}"
        text = _PROPERTIES.read_text("utf-8")
        places = {
            "@DIR@": str(self.data),
            "@PORT@": self.address.split(":")[1],
            "@CONTROLLER@": str(free_port()),
        }
        for name, value in places.items():
            text = text.replace(name, value)
        known = dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")
        self._file.write_text("".join(f"{name}={value}\n" for name, value in {**known, **settings}.items()))
        self.tool("kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(self._file))

    def _java(self, *words: str) -> list[str]:
        return ["java", "-Xmx512m", f"-D{_QUIET}", "-cp", self._class_path, *words]

    def tool(self, name: str, *words: str) -> str:
        """What a command of Kafka's prints; it must not fail."""
        done = subprocess.run(
            self._java(name, *words), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{name} {words}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def topics(self, *words: str) -> str:
        return self.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *words)

    def groups(self, *words: str) -> str:
        return self.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            self.address,
            *words,
        )

    def consume(self, topic: str, group: str, count: int) -> list[str]:
        """Values that a member of the group gets, by KIP-848's protocol, as soon as it has ``count``."""
        told = self.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", self.address, "--topic", topic, "--group", group),
            *("--max-messages", str(count), "--timeout-ms", str(int(_PATIENCE_S * 500))),
            *(
                "--consumer-property",
                "group.protocol=consumer",
                "--consumer-property",
                "auto.offset.reset=earliest",
            ),
        )
        return [line for line in told.splitlines() if not line.startswith("Option ")]  # that is deprecated

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serving in the block, and stopped in order behind it."""
        with open(self._log, "ab") as log:
            process = subprocess.Popen(self._java("kafka.Kafka", str(self._file)), stdout=log, stderr=log)
        try:
            self._await(process)
            yield
            process.terminate()
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
            process.wait()

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        host, port = self.address.split(":")
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            assert process.poll() is None, self._log.read_text("utf-8", "replace")[-4000:]
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the broker does not serve")


def fetched(folder: Path) -> str:
    """The directory that KAFKA_JARS names; without it Maven fetches the jars into ``folder``."""
    given = os.environ.get("KAFKA_JARS")
    if given is not None:
        return given
    pom = Path(__file__).parent.parent / "golden" / "broker" / "pom.xml"
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
    ]
    subprocess.run(command, check=True, timeout=600)
    return str(folder)
