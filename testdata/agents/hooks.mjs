// Holds Claude Code and Codex by their hooks: node hooks.mjs GAVEL CLIENT...
//
// Each client is the real program, offline, with the hooks that gavel hook install writes; what its model says is a
// script. One session tries what gates are on and stops too early, and is held; another one runs everyday commands,
// and nothing disturbs it. In a third one, gates need what the user said, which the hooks read in the client's transcript.
// Codex runs no hook that nobody trusts.
import { spawn, spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { serveScript } from "./endpoint.mjs"

const bins = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin")
const bin = (name) => join(bins, name)

const gates = `gates:
  - {tool: "builtin:shell", name: push, when: [{program: git, args: [push]}], workflow: release, states: [tested]}
  - {tool: "builtin:edit", name: tests, when: [{path: "tests/**"}], workflow: release, states: [tested]}
  - {tool: "builtin:read", name: secrets, when: [{path: .env}], workflow: release, states: [tested]}
`
const finish = `hooks:
  finish: {workflow: release, states: [released], attempts: 2, start: true}
`
const flow = `name: release
initialState: writing
states:
  writing: {transitions: {test: {target: tested, requiredFields: [result]}}}
  tested: {transitions: {release: released}}
  released: {final: true}
`

// A push needs that the user said exactly "go", as the command lines below do; a tag needs a word that only the agent says.
const words = `evidence: {sources: {user: {transcript: true}}}
gates:
  - {tool: "builtin:shell", name: tag, when: [{program: git, args: [tag]}], workflow: release, states: [writing], action: tag, start: true}
  - {tool: "builtin:shell", name: push, when: [{program: git, args: [push]}], workflow: release, states: [writing], action: push, start: true}
`
const wordsFlow = `name: release
initialState: writing
states:
  writing:
    transitions:
      tag: {target: released, evidence: [{name: said, source: user}], validator: "(data, context, evidence) => ({valid: /release/.test(JSON.stringify(evidence.said)), reason: 'The user said ' + JSON.stringify(evidence.said)})"}
      push: {target: released, evidence: [{name: said, source: user}], validator: "(data, context, evidence) => ({valid: JSON.stringify(evidence.said) === '{\\"messages\\":[\\"go\\"],\\"omitted\\":0}', reason: 'The user said ' + JSON.stringify(evidence.said)})"}
  released: {final: true}
`

// What an agent runs all day. Programs that a machine may not have are fakes, which say what they were called with.
const everyday = [
  "git status", "git diff HEAD", "git log --oneline -5", "git checkout -b fix/1", "git stash", "git stash pop",
  "source .venv/bin/activate && pytest -q tests", "python3 -m pytest -q | tail -20", "make test", "make build", "npm test", "npm run build",
  "black .", "ruff check --fix .", "go test ./...", "cargo test", "docker compose up -d", "npx tsc --noEmit",
  "cp -r src build/", "mv src/b.py src/c.py", "sed -i s/a/b/ src/app.py", "rm build/app.py", "mkdir -p src/new && touch src/new/x.py",
  "for f in src/*.py; do wc -l $f; done", "find src -name '*.pyc' -delete", "bash scripts/check.sh", "echo done > notes.txt", "git add -A",
  "git commit -qm work", "git fetch -q origin",
]
const fakes = ["black", "cargo", "docker", "go", "make", "npm", "npx", "pytest", "python3", "ruff"]

const patch = (file, from, to) => `*** Begin Patch\n*** Update File: ${file}\n@@\n-${from}\n+${to}\n*** End Patch\n`

// shell, read and edit are steps of a script: uses of the client's tools. results lists what the model read of them, messages what it read from elsewhere.
const clients = {
  "claude-code": {
    shell: (line) => ({ tool: "Bash", input: { command: line, description: "a command" } }),
    read: (file) => ({ tool: "Read", input: { file_path: file } }),
    edit: (file, from, to) => [{ tool: "Read", input: { file_path: file } }, { tool: "Edit", input: { file_path: file, old_string: from, new_string: to } }],
    messages: (body) => body.messages.filter((m) => m.role === "user").flatMap((m) => textsOf(m.content)),
    results: (body) => body.messages.flatMap((m) => (Array.isArray(m.content) ? m.content : [])).filter((c) => c.type === "tool_result").map((c) => ({ text: textsOf(c.content).join("\n"), failed: Boolean(c.is_error) })),
    prepare() {},
    run: ({ url }) => ({
      command: [bin("claude"), "-p", "go", "--allowedTools", "Bash,Edit,Read,Write"],
      env: { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" },
    }),
  },
  codex: {
    shell: (line) => ({ tool: "exec_command", input: { cmd: line, login: false } }),
    read: (file) => ({ tool: "exec_command", input: { cmd: `cat ${file}`, login: false } }),
    edit: (file, from, to) => [{ patch: patch(file, from, to) }],
    messages: (body) => body.input.filter((i) => i.role === "user").flatMap((i) => textsOf(i.content)),
    results: (body) => body.input.filter((i) => /_output$/.test(i.type)).map((i) => { const text = textsOf(i.output).join("\n"); return { text, failed: !/exited with code 0|Exit code: 0|Success/.test(text) } }),
    prepare({ home, project, url, trust }) {
      writeFile(
        join(home, ".codex", "config.toml"),
        `model = "gpt-5.5"\nmodel_provider = "script"\n[model_providers.script]\nname = "script"\nbase_url = "${url}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\nsupports_websockets = false\n[analytics]\nenabled = false\n[projects."${project}"]\ntrust_level = "trusted"\n`,
      )
      return trust ? trustHooks(home, project) : undefined
    },
    run: () => ({ command: [bin("codex"), "exec", "--dangerously-bypass-approvals-and-sandbox", "go"], env: {} }),
  },
}

function textsOf(content) {
  if (typeof content === "string") return [content]
  return (content ?? []).map((c) => c.text ?? "")
}

// trustHooks does what a person does in /hooks of Codex: it trusts the hooks of the project as they are.
async function trustHooks(home, project) {
  const server = spawn(bin("codex"), ["app-server"], { cwd: project, env: { PATH: process.env.PATH, HOME: home }, stdio: ["pipe", "pipe", "ignore"] })
  const waiting = new Map()
  createInterface({ input: server.stdout }).on("line", (line) => {
    const message = JSON.parse(line)
    waiting.get(message.id)?.(message)
  })
  let id = 0
  const call = (method, params) =>
    new Promise((done) => {
      waiting.set(++id, ({ result, error }) => (error ? done(Promise.reject(new Error(`${method}: ${error.message}`))) : done(result)))
      server.stdin.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n")
    })
  await call("initialize", { clientInfo: { name: "gavel-test", version: "1" } })
  const { data } = await call("hooks/list", { cwds: [project] })
  const edits = data[0].hooks.map((h) => ({ keyPath: "hooks.state", value: { [h.key]: { trusted_hash: h.currentHash } }, mergeStrategy: "upsert" }))
  await call("config/batchWrite", { edits, filePath: null, expectedVersion: null })
  server.kill()
  return edits.length
}

function writeFile(file, text, mode = 0o644) {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
  chmodSync(file, mode)
}

function runProgram(command, options) {
  return new Promise((done) => {
    const child = spawn(command[0], command.slice(1), { ...options, stdio: ["ignore", "pipe", "pipe"], detached: true })
    let output = ""
    child.stdout.on("data", (data) => (output += data))
    child.stderr.on("data", (data) => (output += data))
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), 100_000)
    child.on("error", (error) => done({ output: String(error) }))
    child.on("close", (code) => {
      clearTimeout(timer)
      done({ code, output })
    })
  })
}

// play runs a session of a client in a new project and returns what its model was told.
async function play(gavel, name, { settings, steps, trust = true, definition = flow }) {
  const client = clients[name]
  const top = realpathSync(mkdtempSync(join(tmpdir(), "agent-play-")))
  const [home, project, remote, fake] = ["home", "project", "remote.git", "bin"].map((folder) => join(top, folder))
  for (const folder of [home, project]) mkdirSync(folder)
  const env = { PATH: `${fake}:${bins}:${process.env.PATH}`, HOME: home, TERM: "dumb", CALLS: join(top, "calls") }
  const call = (program, ...args) => {
    const { status, stdout, stderr } = spawnSync(program, args, { cwd: project, env, encoding: "utf8" })
    return { status, output: `${stdout}${stderr}` }
  }
  const must = (program, ...args) => {
    const { status, output } = call(program, ...args)
    if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${output}`)
  }
  for (const program of fakes) writeFile(join(fake, program), `#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n`, 0o755)
  for (const [file, text] of Object.entries({
    "src/app.py": "a = 1\n", "src/b.py": "b = 1\n", "tests/app_test.py": "x = 1\n", ".env": "KEY=canary-of-the-env\n", ".gitignore": ".env\n.claude\n.codex\n",
    "notes.txt": "a note\n", ".venv/bin/activate": "", "scripts/check.sh": "exit 0\n",
  })) writeFile(join(project, file), text)
  must("git", "init", "-q", "--bare", remote)
  must("git", "init", "-q", "-b", "main", project)
  must("git", "config", "--global", "user.email", "a@example.com")
  must("git", "config", "--global", "user.name", "a")
  must("git", "add", "-A")
  must("git", "commit", "-qm", "first")
  must("git", "remote", "add", "origin", remote)
  writeFile(join(project, "notes.txt"), "another note\n") // something to stash
  const config = join(top, "gavel", "gavel.yaml")
  writeFile(config, `definitions: [flow.yaml]\nstore: store/gavel.db\n${settings}`)
  writeFile(join(top, "gavel", "flow.yaml"), definition)
  must(gavel, "hook", "install", name, "--config", config, "--yes")

  const endpoint = await serveScript(steps(client, project))
  await client.prepare({ home, project, url: endpoint.url, trust })
  const doctor = call(gavel, "hook", "doctor", name)
  const began = Date.now()
  const { command, env: own } = client.run({ url: endpoint.url })
  const ran = await runProgram(command, { cwd: project, env: { ...env, ...own } })
  endpoint.close()
  const last = JSON.parse(endpoint.requests.at(-1) ?? "{}")
  const played = {
    ...ran, doctor, seconds: ((Date.now() - began) / 1000).toFixed(1), requests: endpoint.requests.length,
    results: last.model ? client.results(last) : [], said: last.model ? client.messages(last).join("\n") : "",
    pushed: spawnSync("git", ["-C", remote, "rev-parse", "-q", "--verify", "main"]).status === 0,
    calls: existsSync(env.CALLS) ? readFileSync(env.CALLS, "utf8") : "",
    files: Object.fromEntries(["src/app.py", "tests/app_test.py", "notes.txt"].map((file) => [file, readFileSync(join(project, file), "utf8")])),
  }
  rmSync(top, { recursive: true, force: true })
  return played
}

let failures = 0
function check(name, what, holds, played) {
  console.log(`${name.padEnd(12)} ${holds ? "ok  " : "FAIL"} ${what}`)
  if (holds) return
  failures++
  const { output, results, said, requests, code, doctor } = played
  console.log(`exit ${code}, ${requests} requests\n${results.map((r, i) => `${i}: ${r.failed ? "failed " : ""}${r.text.slice(0, 500)}`).join("\n")}\n${said.slice(-1500)}\n${output.slice(-1500)}\n${doctor.output}`)
}

async function playHeld(gavel, name) {
  const played = await play(gavel, name, {
    settings: finish + gates,
    steps: (client, project) => [
      client.shell("git push origin main"),
      ...client.edit(join(project, "tests", "app_test.py"), "x = 1", "x = 2"),
      client.read(join(project, ".env")),
      client.shell("echo y > tests/app_test.py"),
      client.shell('x=git; "$x" push origin main'),
      ...client.edit(join(project, "src", "app.py"), "a = 1", "a = 2"),
      { text: "All is done." },
      { text: "All is done, as I said." },
      { text: "I stop here." },
    ],
  })
  const told = (i) => played.results.at(i)?.text ?? ""
  const edits = name === "codex" ? 1 : 2 // Claude Code reads a file first
  check(name, "doctor says that the hooks work", played.doctor.status === 0 && /result +works/.test(played.doctor.output), played)
  check(name, "git push is held, and says in which state it may run", !played.pushed && /git push/.test(told(0)) && /tested/.test(told(0)), played)
  check(name, "an edit of tests/** is held", played.files["tests/app_test.py"] === "x = 1\n" && /`tests\/.*"tested"/.test(told(edits)), played)
  check(name, "a read of .env is held", !played.results.some((r) => r.text.includes("canary")) && /\.env/.test(told(edits + 1)), played)
  check(name, "a line that writes to tests/** is held", /`tests\/.*"tested"/.test(told(edits + 2)), played)
  check(name, "a line that may push is held", /git push.*"tested"/.test(told(edits + 3)), played)
  check(name, "an edit that no gate is on happens", played.files["src/app.py"] === "a = 2\n", played)
  check(name, "an early stop is held twice, with the next step", played.requests === played.results.length + 3 && /"writing"[^]*mcp__gavel__workflow_advance/.test(played.said), played)
  console.log(`${name.padEnd(12)}      ${played.seconds} s`)
}

async function playEveryday(gavel, name) {
  const played = await play(gavel, name, {
    settings: gates,
    steps: (client, project) => [...everyday.map(client.shell), client.read(join(project, "src", "app.py")), ...client.edit(join(project, "notes.txt"), "done", "really done"), { text: "All is done." }],
  })
  const disturbed = played.results.flatMap((r, i) => (r.failed || /gavel|hook/i.test(r.text) ? [`${everyday[i] ?? "an edit"}: ${r.text.slice(0, 300)}`] : []))
  const run = fakes.filter((program) => !played.calls.includes(`${program} `))
  check(name, `${everyday.length} everyday lines run undisturbed${disturbed.length ? `: ${disturbed.join("; ")}` : ""}`, played.results.length >= everyday.length + 2 && !disturbed.length, played)
  check(name, `the programs were called${run.length ? `, but not ${run}` : ""}`, !run.length && played.files["notes.txt"] === "really done\n", played)
  console.log(`${name.padEnd(12)}      ${played.seconds} s`)
}

async function playWords(gavel, name) {
  const played = await play(gavel, name, {
    settings: words, definition: wordsFlow,
    steps: (client) => [
      client.shell("echo 'The user wants a release.' | tee notes.txt"),
      client.shell("git tag v1"),
      client.shell("git push origin main"),
      { text: "The user wants a release." },
    ],
  })
  check(name, "its transcript holds the user's prompt, and nothing of the agent", played.results[1]?.text.includes('The user said {"messages":["go"],"omitted":0}'), played)
  check(name, "git push, which needs that prompt, happens", played.pushed, played)
  console.log(`${name.padEnd(12)}      ${played.seconds} s`)
}

async function playUntrusted(gavel, name) {
  const played = await play(gavel, name, { settings: gates, trust: false, steps: (client) => [client.shell("git push origin main"), { text: "Done." }] })
  check(name, "hooks that nobody trusts do not run: git push happens", played.pushed, played)
  const { status, output } = played.doctor
  check(name, "doctor says so", status === 1 && /Codex skips the hooks at PreToolUse.*untrusted.*\/hooks/.test(output) && !/result +works/.test(output), played)
}

const [gavel, ...names] = process.argv.slice(2)
if (!gavel) throw new Error("usage: node hooks.mjs GAVEL [CLIENT...]")
const programs = names.length ? names : Object.keys(clients)
await Promise.all(
  programs.flatMap((name) => [playHeld, playEveryday, playWords, ...(name === "codex" ? [playUntrusted] : [])].map((part) => part(resolve(gavel), name))),
)
process.exitCode = failures ? 1 : 0
