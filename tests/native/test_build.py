"""The build: what it needs, what it says where that is missing, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logstore.native import build
from logstore.native.modules import MODULES, file_of
from tests.house import ROOT

HAS_TOOLS = find_spec("Cython") is not None and shutil.which("cc") is not None


class StandInForHatchling:
    """What the hook uses of Hatchling's interface, which is only there while a wheel is built."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.warnings: list[str] = []
        self.app = SimpleNamespace(display_warning=self.warnings.append)


def hook(monkeypatch: pytest.MonkeyPatch, root: Path = ROOT) -> Any:
    interface = ModuleType("interface")
    interface.BuildHookInterface = StandInForHatchling  # type: ignore[attr-defined]  # a module made here
    names = "hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    monkeypatch.delitem(sys.modules, "logstore.native.build_hook", raising=False)
    from logstore.native.build_hook import NativeBuildHook

    return NativeBuildHook(str(root))


def wheel() -> dict[str, Any]:
    return {"pure_python": True, "infer_tag": False, "force_include": {}}


def put(name: str, folder: Path, text: str) -> None:
    """A built file of an extension module, with a mark of its source or without."""
    path = file_of(name, build.suffix(), folder)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    monkeypatch.setattr(build, "find_spec", lambda name: name)
    with pytest.raises(build.BuildSkippedError, match="no C compiler: '/nonexistent' is not there"):
        build.build(tmp_path)
    assert contents(tmp_path) == []


def test_no_cython(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(build.BuildSkippedError, match="Cython is not installed"):
        build.build(tmp_path)


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As without Python's header, or of another kind than was thought."""
    monkeypatch.setenv("CC", "false")
    monkeypatch.setattr(build, "find_spec", lambda name: name)
    with pytest.raises(build.BuildSkippedError, match=r"failed:"):
        build.build(tmp_path)
    assert contents(tmp_path) == []


def test_forbidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOGSTORE_NO_BUILD", "1")
    with pytest.raises(build.BuildSkippedError, match="LOGSTORE_NO_BUILD=1 is set"):
        build.build(tmp_path)


def test_what_is_current_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSTORE_NO_BUILD", "1")
    for name in MODULES:
        mark = f"..logstore-source:{build.fingerprint(name)}.."
        put(name, tmp_path, mark)
    assert build.build(tmp_path) == [file_of(name, build.suffix(), tmp_path) for name in MODULES]
    put(MODULES[0], tmp_path, "..logstore-source:00000000..")
    with pytest.raises(build.BuildSkippedError):
        build.build(tmp_path)


def test_only_what_is_not_current_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(name: str, work: Path, _compiler: object, _flags: object) -> Path:
        made.append(name)
        (work / f"{name}{build.suffix()}").write_text("new")
        return work / f"{name}{build.suffix()}"

    monkeypatch.setattr(build, "_compiler", list)
    monkeypatch.setattr(build, "_make", make)
    for name in MODULES:
        mark = f"..logstore-source:{build.fingerprint(name)}.."
        put(name, tmp_path, "old" if name == MODULES[1] else mark)
    build.build(tmp_path)
    assert made == [MODULES[1]]
    assert file_of(MODULES[1], build.suffix(), tmp_path).read_text() == "new"
    build.build(tmp_path, force=True)
    assert sorted(made) == sorted([MODULES[1], *MODULES])


def test_pure_wheel_where_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSTORE_NO_BUILD", "1")
    made, data = hook(monkeypatch), wheel()
    made.initialize("standard", data)
    made.finalize("standard", data, "")
    assert data == wheel()
    assert made.warnings == [
        "logstore: the Python twin will serve, nothing was compiled: LOGSTORE_NO_BUILD=1 is set"
    ]


def test_release_builds_refuse_a_pure_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSTORE_NO_BUILD", "1")
    monkeypatch.setenv("LOGSTORE_REQUIRE_BUILD", "1")
    with pytest.raises(build.BuildSkippedError):
        hook(monkeypatch).initialize("standard", wheel())


def test_wheel_of_this_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_build(target: Path) -> list[Path]:
        made = [file_of(name, build.suffix(), target) for name in MODULES]
        for path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text("built")
        return made

    monkeypatch.setattr(build, "build", fake_build)
    made, data = hook(monkeypatch), wheel()
    made.initialize("standard", data)
    assert (data["pure_python"], data["infer_tag"]) == (False, True)
    assert sorted(data["force_include"].values()) == sorted(
        str(file_of(name, build.suffix(), Path("logstore/native"))) for name in MODULES
    )
    files = [Path(path) for path in data["force_include"]]
    assert [path.read_text() for path in files] == ["built"] * len(MODULES)
    made.finalize("standard", data, "")
    assert not any(path.exists() for path in files)


def test_editable_install_builds_beside_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[Path] = []
    monkeypatch.setattr(build, "build", targets.append)
    data = wheel()
    hook(monkeypatch).initialize("editable", data)
    assert targets == [ROOT / "logstore/native"]
    assert data == wheel()


@pytest.mark.slow
def test_build_in_a_tree_of_its_own(tmp_path: Path) -> None:
    """With the tools that are here: modules that are then in use, or a sentence that says what is missing."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "logstore", tmp_path / "logstore", ignore=ignored)
    environment = {key: text for key, text in os.environ.items() if not key.startswith("LOGSTORE_")}
    done = subprocess.run(
        [
            sys.executable, "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
            "from logstore.native.build import main\nfailed = main([])\n"
            "from logstore.native import native_status\nprint(native_status())\nsys.exit(failed)",
        ],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    if HAS_TOOLS:
        assert done.returncode == 0, done.stderr
        assert "compiled core in use" in done.stdout
    else:
        assert done.returncode == 1
        assert "the Python twin serves" in done.stderr
