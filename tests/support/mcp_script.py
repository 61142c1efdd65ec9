"""An MCP server over stdio that says what a JSON file tells it, whether that is right or not.

python mcp_script.py FILE [ARGUMENT...]

The file has `hello` (the answer to initialize), `pages` (the answers to tools/list, each `result` or `error`), `answer`
(to tools/call), `banner` (lines that are no JSON), and `only_old`: the server ends at any other first message than
initialize. The answer "ask" puts a `question` to the user, "name" is the name of the tool. A call of the tool
`arguments` answers with the arguments of the process and its environment.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


def answer_to(tool: str, script: dict[str, Any]) -> dict[str, Any]:
    if script["answer"] == "name":
        return {"result": {"content": [{"type": "text", "text": f"called {tool}"}]}}
    return ask(script["question"]) if script["answer"] == "ask" else script["answer"]


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """Put a question to the user; the answer is the result of the tool."""
    request = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question}
    print(json.dumps(request), flush=True)
    answer = json.loads(sys.stdin.readline())["result"]
    return {"result": {"content": [{"type": "text", "text": json.dumps(answer)}]}}


def main() -> None:
    script = json.loads(Path(sys.argv[1]).read_text())
    note = Path(sys.argv[1]).with_suffix(".starts")
    note.write_text(note.read_text() + "x" if note.exists() else "x")
    for line in script.get("banner", ()):
        print(line, flush=True)
    pages = script.get("pages") or [{"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}]
    count, is_open = 0, False
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if not is_open and method != "initialize" and script.get("only_old"):
            sys.exit(1)
        is_open = True
        if "id" not in message or method is None:
            continue
        if method == "initialize":
            body = {"result": script.get("hello", HELLO)}
        elif method == "tools/list":
            body = pages[min(count, len(pages) - 1)]
            count += 1
        elif method == "tools/call" and message["params"]["name"] == "arguments":
            body = {"result": {"content": [{"type": "text", "text": json.dumps([sys.argv[2:], dict(os.environ)])}]}}
        elif method == "tools/call":
            if script["answer"] == "end":
                sys.exit(1)
            body = answer_to(message["params"]["name"], script)
        else:
            body = {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
