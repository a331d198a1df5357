"""One server of the chaining document on FastMCP: document_server.py NAME. Each call is a line of the file CALLS."""

import json
import os
import subprocess
import sys
from typing import Any

from fastmcp import FastMCP

name = sys.argv[1]
server = FastMCP(name)
shots = 0
# Code of the document may write files; here it writes none.
RUN = "import builtins, io, sys; builtins.open = lambda *a, **k: io.StringIO(); exec(sys.argv[1], {})"


def note(called: str, **arguments: Any) -> None:
    with open(os.environ["CALLS"], "a", encoding="utf-8") as log:
        log.write(json.dumps({"name": called, "arguments": arguments}) + "\n")


if name == "vision-agent-mcp":

    @server.tool()
    def navigate(url: str) -> str:
        note("navigate", url=url)
        if "down" in url:
            raise ValueError("the site is down")
        return "at " + url

    @server.tool()
    def screenshot() -> str:
        global shots
        shots += 1
        note("screenshot")
        return f"/tmp/shot-{shots}.png" + (" Expected Text" if shots > 1 else "")

    @server.tool()
    def verify(text: str = "", url: str = "", page: str = "", at: str = "", before: Any = None) -> str:
        note("verify", text=text, url=url, page=page, before=before)
        return "the page has an Error" if text == "Error" else "OK " + (url or text or page)

    @server.tool()
    def fill_form(url: str, fields: dict[str, str]) -> str:
        note("fill_form", url=url, fields=fields)
        return f"filled {len(fields)} fields"

    @server.tool()
    def alert(message: str) -> str:
        note("alert", message=message)
        return "alerted"

    # FastMCP takes no resource whose URI has no scheme, as that of the document; a template it takes.
    @server.resource("screenshots/{name}")
    def latest(name: str) -> str:
        note("screenshots/" + name)
        return "page text"

    @server.prompt()
    def send_alert(message: str) -> str:
        note("send_alert", message=message)
        return "ALERT " + message

    @server.prompt()
    def analyze_dashboard(dashboard_url: str) -> str:
        note("analyze_dashboard", dashboard_url=dashboard_url)
        return "Look at " + dashboard_url

    @server.prompt()
    def compare_multiple_sites(sites: str) -> str:
        note("compare_multiple_sites", sites=sites)
        return "Compare " + sites

elif name == "code-mcp":

    @server.tool()
    def execute(code: str) -> str:
        note("execute", code=code)
        done = subprocess.run([sys.executable, "-c", RUN, code], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return done.stdout.strip()

    @server.tool()
    def write_input(uri: str, data: str) -> str:
        note("write_input", uri=uri, data=data)
        return "written"

else:

    @server.prompt()
    def summarize(text: str) -> str:
        note("summarize", text=text)
        return "In short: " + text


server.run(show_banner=False)
