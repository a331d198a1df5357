// Plays coding agents against gavel: node play.mjs GAVEL [AGENT...]
//
// Each agent is the real program, offline, with the hooks that gavel hook install writes; what its model says is a
// script. Shown is that a harmless command runs, that the agent's own rules hold beside gavel's neutral answer, that a
// gated command does not run and says why, that an agent that stops too early is sent back as often as configured, and
// what the agent does where gavel is gone.
import { spawn, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { serveScript } from "./endpoint.mjs"

const bin = (name) => join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", name)

// shell names the agent's tool and its member; run is its command line. granted says whether the agent's own rules
// let commands run. sendsBack: a stop can be held. gone: a gated command runs where gavel is gone.
const agents = {
  "claude-code": {
    shell: ["Bash", "command"],
    sendsBack: true,
    gone: false,
    run: ({ url, granted }) => ({
      command: [bin("claude"), "-p", "go", ...(granted ? ["--allowedTools", "Bash"] : [])],
      env: { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" },
    }),
  },
  codex: {
    shell: ["exec_command", "cmd"],
    sendsBack: true,
    gone: true,
    run: ({ url, granted, home }) => {
      writeFile(
        join(home, ".codex", "config.toml"),
        `model = "gpt-5.2-codex"\nmodel_provider = "script"\n[model_providers.script]\nname = "script"\nbase_url = "${url}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\nsupports_websockets = false\n[analytics]\nenabled = false\n`,
      )
      const rules = granted ? ["--dangerously-bypass-approvals-and-sandbox"] : ["--sandbox", "read-only"]
      return { command: [bin("codex"), "exec", "--dangerously-bypass-hook-trust", ...rules, "go"], env: {} }
    },
  },
  copilot: {
    shell: ["bash", "command", { description: "a command" }],
    sendsBack: true,
    gone: false,
    run: ({ url, granted }) => ({
      command: [bin("copilot"), "-p", "go", ...(granted ? ["--allow-all-tools"] : [])],
      env: { COPILOT_OFFLINE: "true", COPILOT_PROVIDER_BASE_URL: `${url}/v1`, COPILOT_PROVIDER_API_KEY: "none", COPILOT_MODEL: "gpt-4.1", COPILOT_AUTO_UPDATE: "false" },
    }),
  },
  gemini: {
    shell: ["run_shell_command", "command"],
    sendsBack: true,
    gone: false, // its shell ends with 127, and writes to stderr
    run: ({ url, granted }) => ({
      command: [bin("gemini"), "-m", "gemini-2.5-flash", "-p", "go", ...(granted ? ["--yolo"] : [])],
      env: { GEMINI_API_KEY: "none", GOOGLE_GEMINI_BASE_URL: url, GEMINI_CLI_TRUST_WORKSPACE: "true" },
    }),
    settings: { ".gemini/settings.json": { security: { auth: { selectedType: "gemini-api-key" } }, general: { enableAutoUpdate: false }, privacy: { usageStatisticsEnabled: false } } },
  },
  opencode: {
    shell: ["bash", "command", { description: "a command" }],
    sendsBack: false, // opencode run ends before the plugin's next prompt
    gone: false,
    run: ({ url, granted, home }) => {
      const provider = { npm: "@ai-sdk/openai-compatible", name: "script", options: { baseURL: `${url}/v1`, apiKey: "none" }, models: { m: { name: "m", tool_call: true } } }
      const config = { model: "script/m", small_model: "script/m", autoupdate: false, share: "disabled", permission: { bash: granted ? "allow" : "deny" }, provider: { script: provider } }
      writeFile(join(home, ".config", "opencode", "opencode.json"), JSON.stringify(config))
      return { command: [bin("opencode"), "run", "go"], env: { OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_AUTOUPDATE: "1" } }
    },
  },
}

const settings = `definitions: [flow.yaml]
store: store/gavel.db
hooks:
  finish: {workflow: release, states: [released], attempts: 2, start: true}
gates:
  - {tool: "builtin:shell", name: push, when: [{program: git, args: [push]}], workflow: release, states: [tested]}
`
const flow = `name: release
initialState: writing
states:
  writing: {transitions: {test: {target: tested, requiredFields: [result]}}}
  tested: {transitions: {release: released}}
  released: {final: true}
`

function writeFile(file, text) {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

function runProgram(command, options) {
  return new Promise((done) => {
    const child = spawn(command[0], command.slice(1), { ...options, stdio: ["ignore", "pipe", "pipe"], detached: true })
    let output = ""
    child.stdout.on("data", (data) => (output += data))
    child.stderr.on("data", (data) => (output += data))
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), 120_000)
    child.on("error", (error) => done({ output: String(error) }))
    child.on("close", (code) => {
      clearTimeout(timer)
      done({ code, output })
    })
  })
}

// play lets an agent run two commands, the second a git push, and say that it is done.
async function play(gavel, name, { granted = true, gone = false } = {}) {
  const agent = agents[name]
  const top = mkdtempSync(join(tmpdir(), "gavel-agent-"))
  const [home, project, remote] = ["home", "project", "remote.git"].map((folder) => join(top, folder))
  const env = { PATH: process.env.PATH, HOME: home, TERM: "dumb" }
  const call = (program, ...args) => {
    const { status, stdout, stderr } = spawnSync(program, args, { cwd: project, env, encoding: "utf8" })
    if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${stdout}${stderr}`)
  }
  for (const folder of [home, project]) mkdirSync(folder)
  call("git", "init", "-q", "--bare", remote)
  call("git", "init", "-q", "-b", "main", project)
  call("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "first")
  call("git", "remote", "add", "origin", remote)
  for (const [file, value] of Object.entries(agent.settings ?? {})) writeFile(join(home, file), JSON.stringify(value))
  const config = join(top, "gavel", "gavel.yaml")
  writeFile(config, settings)
  writeFile(join(top, "gavel", "flow.yaml"), flow)
  const program = join(top, "gavel", "gavel")
  call("cp", gavel, program)
  call(program, "hook", "install", name, "--scope", "user", "--config", config, "--limit", "20s", "--yes")
  if (gone) rmSync(program)

  const [tool, member, more] = agent.shell
  const shell = (line) => ({ tool, input: { ...more, [member]: line } })
  const endpoint = await serveScript([shell("echo hello > made.txt"), shell("git push origin main"), { text: "All is done." }])
  const { command, env: own } = agent.run({ url: endpoint.url, granted, home })
  const { code, output } = await runProgram(command, { cwd: project, env: { ...env, ...own } })
  endpoint.close()
  const pushed = spawnSync("git", ["-C", remote, "rev-parse", "-q", "--verify", "main"]).status === 0
  const result = { code, output, made: existsSync(join(project, "made.txt")), pushed, told: endpoint.requests.join("\n"), requests: endpoint.requests.length }
  rmSync(top, { recursive: true, force: true })
  return result
}

const [gavel, ...names] = process.argv.slice(2)
if (!gavel) throw new Error("usage: node play.mjs GAVEL [AGENT...]")
let failures = 0
for (const name of names.length ? names : Object.keys(agents)) {
  const agent = agents[name]
  const check = (what, holds, played) => {
    console.log(`${name.padEnd(12)} ${holds ? "ok  " : "FAIL"} ${what}`)
    if (holds) return
    failures++
    console.log(`exit ${played.code}, ${played.requests} requests\n${played.output.slice(-2000)}`)
  }
  const played = await play(resolve(gavel), name)
  check("a command that no gate is about runs", played.made, played)
  check("git push is refused, and the agent reads why", !played.pushed && /git push[^"]* needs the state/.test(played.told), played)
  if (agent.sendsBack) {
    check("a stop before the workflow has ended is sent back, twice", played.requests === 5 && /is in [^.]*"writing[^.]*may end in/.test(played.told), played)
  }
  const strict = await play(resolve(gavel), name, { granted: false })
  check("the agent's own rules hold beside gavel's neutral answer", !strict.made && !strict.pushed, strict)
  const gone = await play(resolve(gavel), name, { gone: true })
  check(`without gavel, git push ${agent.gone ? "runs: it fails open" : "does not run"}`, gone.pushed === agent.gone, gone)
}
process.exitCode = failures ? 1 : 0
