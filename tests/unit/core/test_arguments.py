"""Schemas of tools: never fetched, and none at all lets a call go ahead."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments


def test_a_schema_is_never_fetched():
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            calls.append(self.path)
            self.send_response(404)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    spec = ToolSpec(name="t", description="", parameters={"$ref": f"http://127.0.0.1:{server.server_port}/secret"})
    check_arguments(spec, {"a": 1})
    server.shutdown()
    server.server_close()
    assert calls == []


@pytest.mark.parametrize("schema", [{"properties": []}, {"required": True}, {"properties": {"a": {"pattern": "("}}}])
def test_a_schema_that_is_none_lets_the_call_go_ahead(schema):
    check_arguments(ToolSpec(name="t", description="", parameters=schema), {"a": "b"})
