"""The Python SDK in both eras and FastMCP with the server of odd-server.mjs behind gavel: they take every list whole and call every tool.

    python strict_clients.py GAVEL FOLDER

FOLDER has the configuration that strict-clients.mjs wrote.
"""

import asyncio
import json
import pathlib
import sys

import fastmcp
from fastmcp.client.transports import StdioTransport
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

GAVEL, FOLDER = sys.argv[1:]
ARGS = ["mcp", "--config", f"{FOLDER}/gavel.yaml", "--store", "memory"]
ODD = json.loads((pathlib.Path(__file__).parent / "odd.json").read_text())


def check(kind, key, prefix, seen):
    wanted = sorted(prefix + d["definition"][key] for d in ODD[kind] if d["is"] != "left out")
    assert sorted(name for name in seen if name.startswith(prefix)) == wanted, (kind, seen)


async def use(client, whole):
    """whole is the list in an answer."""
    tools = whole(await client.list_tools(), "tools")
    check("tool", "name", "odd__", [t.name for t in tools])
    check("prompt", "name", "odd__", [p.name for p in whole(await client.list_prompts(), "prompts")])
    check("resource", "uri", "odd+", [str(r.uri) for r in whole(await client.list_resources(), "resources")])
    templates = whole(await client.list_resource_templates(), "resource_templates")
    check("template", "uriTemplate", "odd+", [t.uri_template for t in templates])
    for tool in tools:
        if tool.name.startswith("odd__") and not tool.output_schema:
            assert (await client.call_tool(tool.name, {})).content[0].text == tool.name.removeprefix("odd__")


async def use_sdk(mode):
    async with Client(stdio_client(StdioServerParameters(command=GAVEL, args=ARGS)), mode=mode) as client:
        await use(client, getattr)


async def use_fastmcp():
    async with fastmcp.Client(StdioTransport(GAVEL, ARGS)) as client:
        await use(client, lambda items, _: items)


async def main():
    for how, run in [
        ("Python SDK, initialize", lambda: use_sdk("legacy")),
        ("Python SDK, 2026-07-28", lambda: use_sdk("2026-07-28")),
        ("FastMCP", use_fastmcp),
    ]:
        await asyncio.wait_for(run(), 120)
        print(f"ok   {how}", flush=True)


asyncio.run(main())
