// What the checks of the console run against: gavel demo console with its sample data, and gavel serve and gavel ui over the
// same store, with another MCP server behind them whose tools change.
import { execFileSync, spawn } from "node:child_process";
import { appendFileSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(GAVEL|LLM)_/.test(name)));
const running = [];

/** Starts gavel, and returns the match of a line that it prints. */
export async function start(gavel, args, line, more = {}) {
  const child = spawn(gavel, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...environment, ...more } });
  running.push(child);
  const said = [];
  return await new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface(stream).on("line", (text) => {
        said.push(text);
        const found = text.match(line);
        if (found) resolve({ child, found, said });
      });
    }
    child.once("exit", (code) => reject(new Error(`gavel ${args.join(" ")} ended with ${code}:\n${said.join("\n")}`)));
  });
}

/** Ends what was started. */
export async function stop() {
  await Promise.all(running.map((child) => child.exitCode !== null || new Promise((resolve) => { child.once("exit", resolve); child.kill("SIGTERM"); })));
}

/** Starts everything in a new folder. */
export async function begin(gavel, folder) {
  mkdirSync(join(folder, "infra"), { recursive: true });
  const store = join(folder, "gavel.db"), config = join(folder, "gavel.yaml"), run = (...args) => execFileSync(gavel, args, { env: environment, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const demo = await start(gavel, ["demo", "console", "--store", store], /^http\S+\/console\/link\/\S+$/);
  copyFileSync(join(folder, "demo.yaml"), config);
  const infra = JSON.stringify({ command: [gavel, "__demo-infra"], directory: "infra", allow: [{ tools: ["*"], roles: ["agent"] }] });
  appendFileSync(config, `upstreams:\n  infra: ${infra}\n`);
  appendFileSync(config, "chains:\n  definitions: [chains]\n");
  mkdirSync(join(folder, "chains"));
  writeFileSync(join(folder, "chains", "check-version.yaml"), `name: check-version
description: Asks whether a version can be deployed.
variables: { input: { version: "1.4.0" } }
steps:
  - { id: deployed, type: tool, server: infra, action: deployed }
  - { id: validate, type: tool, server: infra, action: validate, arguments: { version: "{{variables.input.version}}" } }
`);
  run("upstream", "pin", "--all", "--config", config);
  const tokens = {};
  for (const [name, role] of Object.entries({ olga: "operator", rita: "reviewer", otto: "reviewer", audrey: "auditor", agent: "agent" })) {
    const out = join(folder, `${name}.token`);
    run("token", "create", name, "--role", role, "--principal", name, "--store", store, "--out", out);
    tokens[name] = readFileSync(out, "utf8").trim();
  }
  const model = { LLM_BASE_URL: readFileSync(config, "utf8").match(/http:\/\/127[^/]+/)[0], LLM_JUDGE_MODEL: "scripted" };
  const serve = await start(gavel, ["serve", "--listen", "127.0.0.1:0", "--store", store, "--config", config], /serving (http:\S+)/, model);
  const ui = await start(gavel, ["ui", "--store", store, "--config", config], /^http\S+\/console\/link\/\S+$/, model);
  const root = serve.found[1];
  return {
    folder, tokens, serve: root, ui: ui.found[0], demo: demo.found[0], said: () => [...serve.said, ...ui.said],
    pins: () => readFileSync(join(folder, "gavel.pins.json"), "utf8"),
    drift: () => writeFileSync(join(folder, "infra", "mood"), "drifted"),
    rest: (who, method, path, body) => rest(root, tokens[who], method, path, body),
    mcp: (who) => connect(root, tokens[who]),
  };
}

async function rest(root, token, method, path, body) {
  const answer = await fetch(root + path, { method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok && answer.status !== 409 && answer.status !== 422) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/** Opens a session over MCP, and returns a function that calls a tool. */
async function connect(root, token) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", accept: "application/json, text/event-stream" };
  let id = 0;
  const ask = async (method, params) => {
    const answer = await fetch(`${root}/mcp`, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", id: ++id, method, params }) });
    const session = answer.headers.get("mcp-session-id");
    if (session) headers["mcp-session-id"] = session;
    const text = await answer.text();
    const message = JSON.parse(text.startsWith("{") ? text : text.split("\n").filter((l) => l.startsWith("data: ")).at(-1).slice(6));
    if (message.error) throw new Error(`${method}: ${JSON.stringify(message.error)}`);
    return message.result;
  };
  await ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "console", version: "1" } });
  headers["mcp-protocol-version"] = "2025-11-25";
  return async (name, args) => { const r = await ask("tools/call", { name, arguments: args }); return r.structuredContent ?? JSON.parse(r.content[0].text); };
}
