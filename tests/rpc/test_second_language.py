"""A client in Go, of plain generated stubs and Kafka's record batch, against a broker: any language can be a client.

Needs Go, and its module proxy for grpc, protobuf and their generators.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from grpc_tools import protoc

from rpc.generate import CONTRACT
from tests.rpc.served import Served

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SOURCE = Path(__file__).parent / "second_language"
GENERATORS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
)
PACKAGE = "logstore.test/client/pb"


def run(*command: str, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def generate(target: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protos = sorted(str(path.relative_to(CONTRACT)) for path in CONTRACT.rglob("*.proto"))
    places = ",".join(f"M{proto}={PACKAGE}" for proto in protos)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    (target / "pb").mkdir()
    options = [f"--{kind}_out={target}" for kind in ("go", "go-grpc")]
    options += [f"--{kind}_opt=module=logstore.test/client,{places}" for kind in ("go", "go-grpc")]
    assert protoc.main(["protoc", f"-I{CONTRACT}", *options, *protos]) == 0


def test_a_client_of_generated_stubs_in_go(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, module = tmp_path / "tools", tmp_path / "client"
    tools.mkdir()
    for generator in GENERATORS:
        run("go", "install", generator, cwd=tmp_path, GOBIN=str(tools))
    shutil.copytree(SOURCE, module)
    generate(module, tools, monkeypatch)
    run("go", "mod", "tidy", cwd=module)
    run("go", "build", "-o", "client", ".", cwd=module)
    told = run(str(module / "client"), served.address, cwd=module).splitlines()
    assert told == [
        "features true",
        "topic go 2",
        "produced 0 7",
        "streamed 2 0",
        "streamed 3 1",
        "streamed 4 2",
        "refused UnknownTopicError false",
        "fetched [0=a 1=b 2=s0 3=s1 4=s2] 5 5",
        "stream [0=a 1=b 2=s0 3=s1 4=s2] [5=late]",
        "assigned 2",
        "error UnknownTopicError",
    ]
    assert [record.value for record in served.store.partition("go", 0).records(0)] == [
        *(b"a", b"b", b"s0", b"s1", b"s2", b"late")
    ]
    (committed,) = served.store.committed_offsets("gophers").values()
    assert committed.offset == 3
