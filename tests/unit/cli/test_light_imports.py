"""`import agentlab` and `agentlab --help` load no heavy module; every public name exists."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentlab import __version__


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_and_import_load_no_sdk():
    heavy = "{'openai', 'chromadb', 'onnxruntime', 'xllamacpp', 'pandas', 'pydantic', 'numpy', 'rich', 'aiohttp'}"
    loaded = f"print(sorted({heavy} & set(__import__('sys').modules)))"
    assert run_python(f"import agentlab; {loaded}") == "[]\n"
    help_text = "import agentlab.cli.parser\ntry: agentlab.cli.parser.main(['--help'])\nexcept SystemExit: pass\n"
    assert run_python(help_text + loaded).endswith("[]\n")
    assert run_python("import agentlab; print(agentlab.__version__)").strip() == __version__


def test_every_public_name_exists_and_has_a_docstring_of_its_own():
    import agentlab

    for name in {*agentlab.__all__} - {"__version__"}:
        value = getattr(agentlab, name)
        text = (vars(value) if isinstance(value, type) else {"__doc__": value.__doc__}).get("__doc__") or ""
        assert len(text) > 20 and not text.startswith(f"{name}("), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = agentlab.nonsense


def test_importing_the_rooms_loads_no_sdk() -> None:
    code = (
        "import sys, json\n"
        "import agentlab.knowledge.index, agentlab.data.documents\n"
        "from agentlab.models.embedders import hashing, local, openai, sentence_transformers\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert not {"chromadb", "onnxruntime", "tokenizers", "bm25s", "bs4", "openai", "sentence_transformers"} & set(
        loaded
    )


def test_agentlab_stays_light():
    check = "import sys, agentlab, agentlab.tools.mcp.tool_manager; heavy = {'mcp', 'httpx2', 'anyio'}"
    check += "; assert not heavy & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
