"""The Python SDK, FastMCP and the OpenAI Agents SDK with the servers behind gavel, over stdio and over HTTP.

    python gateway_clients.py GAVEL CONFIG URL TOKEN

CONFIG is gavel's, with server-everything as the upstream everything, which ann may use. TOKEN is hers. The model of
the Agents SDK is a script.
"""

import asyncio
import json
import logging
import sys
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastmcp
import httpx2
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI

GAVEL, CONFIG, URL, TOKEN = sys.argv[1:]
ARGS = ["mcp", "--config", CONFIG, "--principal", "ann", "--store", "memory"]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
DOCUMENT = "everything+demo://resource/static/document/features.md"


async def use(client, list_names, call, content):
    """What the clients of the protocol have in common."""
    assert "everything__echo" in await list_names()
    assert content(await call("everything__echo", {"message": "hi"}))[0].text == "Echo: hi"
    steps = []

    async def progress(done, total, message):
        steps.append((done, total))

    await call("everything__trigger-long-running-operation", {"duration": 0.5, "steps": 3}, progress)
    assert steps == [(1, 3), (2, 3), (3, 3)], steps
    started = asyncio.Event()

    async def start(*_):
        started.set()

    task = asyncio.create_task(call("everything__trigger-long-running-operation", {"duration": 30, "steps": 60}, start))
    await started.wait()
    task.cancel()
    assert content(await call("everything__echo", {"message": "still"}))[0].text == "Echo: still"
    prompt = await client.get_prompt("everything__args-prompt", {"city": "Bern"})
    assert "Bern" in prompt.messages[0].content.text, prompt


async def use_sdk(transport, mode):
    async with Client(transport, mode=mode) as client:

        async def names():
            return [t.name for t in (await client.list_tools()).tools]

        def call(name, arguments, progress=None):
            return client.call_tool(name, arguments, progress_callback=progress)

        await use(client, names, call, lambda result: result.content)
        document = await client.read_resource(DOCUMENT)
        assert str(document.contents[0].uri) == DOCUMENT, document


@asynccontextmanager
async def http():
    async with httpx2.AsyncClient(headers=HEADERS) as client, streamable_http_client(URL, http_client=client) as streams:
        yield streams


async def use_fastmcp(transport):
    async with fastmcp.Client(transport) as client:

        async def names():
            return [t.name for t in await client.list_tools()]

        def call(name, arguments, progress=None):
            return client.call_tool(name, arguments, progress_handler=progress)

        await use(client, names, call, lambda result: result.content)
        document = await client.read_resource(DOCUMENT)
        assert str(document[0].uri) == DOCUMENT, document


class Model(BaseHTTPRequestHandler):
    """A model that adds two numbers with a tool."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        if said:
            message, reason = {"role": "assistant", "content": f"the tool said {said}"}, "stop"
        else:
            assert any(t["function"]["name"] == "everything__get-sum" for t in body["tools"])
            call = {"id": "call-1", "type": "function", "function": {"name": "everything__get-sum", "arguments": '{"a":2,"b":3}'}}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        answer = {
            "id": "1", "object": "chat.completion", "created": 1, "model": "script",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        doc = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(doc)))
        self.end_headers()
        self.wfile.write(doc)

    def log_message(self, *_):
        pass


async def use_agents(gavel, model):
    async with gavel:
        assert "everything__echo" in [t.name for t in await gavel.list_tools()]
        agent = Agent(name="adder", instructions="Add.", mcp_servers=[gavel], model=model)
        said = (await Runner.run(agent, "What is 2 + 3?")).final_output
        assert "The sum of 2 and 3 is 5." in said, said


async def main():
    set_tracing_disabled(True)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it complains of streams that it closed itself
    endpoint = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    model = OpenAIChatCompletionsModel(
        model="script",
        openai_client=AsyncOpenAI(base_url=f"http://127.0.0.1:{endpoint.server_port}/v1", api_key="none"),
    )
    stdio = StdioServerParameters(command=GAVEL, args=ARGS)
    for how, run in [
        ("SDK, initialize, stdio", lambda: use_sdk(stdio_client(stdio), "legacy")),
        ("SDK, 2026-07-28, stdio", lambda: use_sdk(stdio_client(stdio), "2026-07-28")),
        ("SDK, initialize, HTTP", lambda: use_sdk(http(), "legacy")),
        ("SDK, 2026-07-28, HTTP", lambda: use_sdk(http(), "2026-07-28")),
        ("FastMCP, stdio", lambda: use_fastmcp(StdioTransport(GAVEL, ARGS))),
        ("FastMCP, HTTP", lambda: use_fastmcp(StreamableHttpTransport(URL, headers=HEADERS))),
        ("Agents SDK, stdio", lambda: use_agents(MCPServerStdio({"command": GAVEL, "args": ARGS}, client_session_timeout_seconds=120), model)),
        ("Agents SDK, HTTP", lambda: use_agents(MCPServerStreamableHttp({"url": URL, "headers": HEADERS}, client_session_timeout_seconds=120), model)),
    ]:
        await asyncio.wait_for(run(), 120)
        print(f"ok   {how}", flush=True)


asyncio.run(main())
