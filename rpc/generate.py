"""Generates ``rpc/pb`` from ``proto``: ``python -m rpc.generate [TARGET]``, run after each change of the contract.

The contract's package is ``logstore.v1``, which is no Python package here: the generated modules lie in ``rpc.pb`` and
import one another from there. Needs grpcio-tools (a development tool).
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTRACT = ROOT / "proto"
GENERATED = ROOT / "rpc" / "pb"
_IMPORT = re.compile(r"^from logstore\.v1 import ", re.MULTILINE)


def generate(target: Path) -> list[Path]:
    """Write the modules and their stubs into ``target``; the files. RuntimeError if the contract has faults."""
    from grpc_tools import protoc  # a development tool, and slow to import

    protos = sorted(str(path.relative_to(CONTRACT)) for path in CONTRACT.rglob("*.proto"))
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with tempfile.TemporaryDirectory() as made:
        failed = protoc.main(
            ["protoc", f"-I{CONTRACT}", f"--python_out={made}", f"--pyi_out={made}", *protos]
        )
        if failed:
            raise RuntimeError(f"protoc ended with {failed}: the contract has faults")
        for path in sorted(Path(made).rglob("*_pb2.py*")):
            written.append(target / path.name)
            written[-1].write_text(_IMPORT.sub("from rpc.pb import ", path.read_text()))
    return written


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
