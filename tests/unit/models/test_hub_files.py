"""GGUF files of a hub: the first download shows and keeps a hash, a pinned one refuses other bytes."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError, WeightsError
from agentlab.core.plugins import resolve
from agentlab.models import hub_files
from support.model_hub import DATA, Hubs

NAME = "hf:org/tiny-GGUF/tiny-q4.gguf"
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, own_home: Path, tmp_path: Path) -> Iterator[Hubs]:
    for switch in ("AGENTLAB_OFFLINE", "HF_HUB_OFFLINE", "AGENTLAB_LOCAL_MODEL"):
        monkeypatch.delenv(switch, raising=False)
    server = Hubs()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetched(name: str) -> Path:
    file = hub_files.parse(name)
    assert file is not None
    return hub_files.fetch(file)


def test_the_first_download_shows_its_hash_and_later_ones_need_no_hub(hub: Hubs, capsys: pytest.CaptureFixture[str]):
    assert main(["pull", f"local/{NAME}"]) == 0
    assert f"local/{NAME}@{SHA256}" in capsys.readouterr().out
    requests = len(hub.received)
    assert fetched(NAME).read_bytes() == DATA and fetched(f"{NAME}@{SHA256}").read_bytes() == DATA
    assert len(hub.received) == requests
    for command in (["list", "models"], ["doctor"]):
        main(command)
        output = capsys.readouterr().out
        assert NAME in output and SHA256[:12] in output


def test_other_bytes_than_the_pinned_ones_are_refused(hub: Hubs) -> None:
    with pytest.raises(WeightsError, match="not the pinned bytes"):
        fetched(f"{NAME}@{'0' * 64}")
    assert fetched(f"{NAME}@{SHA256}").read_bytes() == DATA
    fetched(NAME).write_bytes(DATA[:-1] + b"x")
    with pytest.raises(WeightsError, match="no source has"):
        hub.body = DATA[:-1] + b"y"
        fetched(NAME)


def test_a_hub_that_fails_and_a_switch_that_forbids_downloads_are_one_line(
    hub: Hubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.status = 404
    with pytest.raises(WeightsError, match=r"no source has tiny-q4\.gguf: .*404.*HF_ENDPOINT"):
        fetched(NAME)
    hub.status = 200
    monkeypatch.setenv("AGENTLAB_OFFLINE", "1")
    with pytest.raises(WeightsError, match="AGENTLAB_OFFLINE forbids the download"):
        fetched(NAME)
    assert not hub.received


@pytest.mark.parametrize(
    "name",
    ["hf:org/tiny.gguf", "hf:org/repo/../../x.gguf", "hf:org/repo/x.bin", f"{NAME}@abc", "hf:../../x.gguf", "hf:"],
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"write local/hf:OWNER/REPO/FILE\.gguf"):
        hub_files.parse(name)


def test_the_hash_is_part_of_the_identity_with_and_without_a_pin(own_home: Path) -> None:
    local = resolve("models", "local")
    with pytest.raises(ConfigError, match=r"has no hash: run `agentlab pull local/hf:org/tiny-GGUF/tiny-q4\.gguf`"):
        local.identity(NAME)
    pinned = local.identity(f"{NAME}@{SHA256}")
    fetched(NAME)
    assert local.identity(NAME) == pinned
    assert SHA256 in pinned[1] and pinned[0] == f"local/{NAME}"
    assert local.identity(f"{NAME}@{'0' * 64}") != pinned


def test_a_path_and_the_environment_name_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = resolve("models", "local")
    (tmp_path / "mine.gguf").write_bytes(DATA)
    by_path = local.identity(str(tmp_path / "mine.gguf"))
    assert by_path == local.identity("./mine.gguf") and by_path[0] == "local/mine"
    monkeypatch.setenv("AGENTLAB_LOCAL_MODEL", str(tmp_path / "mine.gguf"))
    assert local.identity("qwen2.5-coder-0.5b") == by_path
    monkeypatch.delenv("AGENTLAB_LOCAL_MODEL")
    (tmp_path / "mine.gguf").write_bytes(DATA[1:])
    assert local.identity("./mine.gguf") != by_path
    with pytest.raises(ConfigError, match=r"local/\./no\.gguf is not a file; give the path of a GGUF file$"):
        local.connect("./no.gguf")


def test_a_run_pins_the_hash_in_its_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    other = f"hf:org/tiny-GGUF/other.gguf@{SHA256}"
    flows = f"flows: [{{flow: tools, model: local/{other}}}]  # not local/hf:org/repo/old.gguf\n"
    spec.write_text(f"datasets: [nowhere]\nmodel: local/{NAME}  # mine\n{flows}")
    assert main(["run", str(spec)]) == 1, "there is no data set"
    assert spec.read_text() == f"datasets: [nowhere]\nmodel: local/{NAME}@{SHA256}  # mine\n{flows}"
    assert f"{NAME}: SHA-256 {SHA256}" in capsys.readouterr().out
    before = spec.stat().st_mtime_ns
    main(["run", str(spec)])
    assert spec.stat().st_mtime_ns == before


@pytest.mark.parametrize("with_spec", [True, False])
def test_a_chat_shows_the_hash_and_pins_its_spec(
    with_spec: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("/quit\n"))
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"model: local/{NAME}\nflows: [rag_only]\nembedder: hashing/hashing-64\n")
    given = ["--spec", str(spec)] if with_spec else ["--model", f"local/{NAME}", "--set", "embedder=hashing/hashing-64"]
    assert main(["chat", "rag_only", *given, "--memory", "kept"]) == 0
    printed = capsys.readouterr().out
    assert f"{NAME}: SHA-256 {SHA256}" in printed
    assert (f"local/{NAME}@{SHA256}" in spec.read_text()) == ("spec.yaml: pinned" in printed) == with_spec
