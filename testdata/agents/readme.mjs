// Does in Claude Code what README says: node readme.mjs GAVEL
//
// Claude Code is the real program, offline; what its model says is a script. Both three-minute parts of README are
// done in new folders with a fresh HOME: the prompt is typed, the first refusal is read. Codex lists the server that
// gavel init configures for it.
import { spawn, spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { serveScript } from "./endpoint.mjs"

const bin = (name) => join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", name)
const gavel = resolve(process.argv[2])
const top = mkdtempSync(join(tmpdir(), "readme-"))
const home = join(top, "home")
mkdirSync(home)
const env = { PATH: `${dirname(gavel)}:${process.env.PATH}`, HOME: home, TERM: "dumb", NO_COLOR: "1" }

let failures = 0
function check(what, holds, seen) {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
  if (holds) return
  failures++
  console.log(String(seen).slice(-3000))
}

function call(folder, program, ...args) {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: folder, env, encoding: "utf8" })
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${stdout}${stderr}`)
  return stdout
}

function newFolder(name) {
  mkdirSync(join(top, name))
  return join(top, name)
}

// ask types a prompt into Claude Code and returns the bodies of the requests to its model.
async function ask(folder, prompt, script) {
  const endpoint = await serveScript(script)
  const child = spawn(bin("claude"), ["-p", prompt, "--allowedTools", "mcp__gavel"], {
    cwd: folder, stdio: ["ignore", "inherit", "inherit"],
    env: { ...env, ANTHROPIC_BASE_URL: endpoint.url, ANTHROPIC_API_KEY: "none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" },
  })
  const timer = setTimeout(() => child.kill("SIGKILL"), 120_000)
  await new Promise((done) => child.on("close", done))
  clearTimeout(timer)
  endpoint.close()
  return endpoint.requests
}

try {
  const shop = newFolder("shop")
  call(shop, "git", "init", "-q")
  writeFileSync(join(shop, "go.mod"), "module example.org/shop\n")
  call(shop, gavel, "init", "--template", "bugfix")
  call(shop, gavel, "hook", "install", "claude-code", "--yes")
  let requests = await ask(shop, "Say that the bug is fixed.", [{ text: "The bug is fixed." }])
  check("an agent that says it is done is sent back", /Stop hook feedback:\\nThe workflow \\"bugfix\\" is in \\"reproducing\\"; an agent may end in \\"fixed\\"/.test(requests[1]), requests[1])

  const review = newFolder("review")
  const printed = call(review, gavel, "init")
  const prompt = /^ {2}(\/mcp__gavel__.*)$/m.exec(printed)?.[1]
  check("gavel init says what to type", prompt === "/mcp__gavel__follow-workflow document-review", printed)
  let id
  const tool = (name, input) => ({ tool: `mcp__gavel__workflow_${name}`, input })
  requests = await ask(review, prompt, [
    tool("start", { type: "document-review" }),
    { tool: "mcp__gavel__workflow_list", input: {} },
  ])
  id = /wf-[0-9a-f-]{36}/.exec(requests[1])?.[0]
  check("the prompt is gavel's", /Follow the workflow \\"document-review\\"/.test(requests[0]), requests[0])
  const listed = JSON.parse(requests[0]).tools.map((t) => t.name).filter((name) => name.startsWith("mcp__gavel__"))
  check("six tools are in the first prompt", listed.length === 6, listed)
  requests = await ask(review, prompt.replace("document-review", `"" ${id}`), [
    tool("advance", { id, action: "submit", data: { documentId: "DOC-7", reviewer: "ada" } }),
    tool("advance", { id, action: "approve", data: { comments: "LGTM" } }),
  ])
  check("an approval without a comment is refused", /Say in a sentence what was checked\./.test(requests[2]), requests[2])
  check("the refusal is on record", /refused approve/.test(call(review, gavel, "instances", "timeline", id)), id)

  const project = newFolder("project")
  call(project, gavel, "init", "--client", "codex")
  mkdirSync(join(home, ".codex"))
  writeFileSync(join(home, ".codex", "config.toml"), `[projects.${JSON.stringify(project)}]\ntrust_level = "trusted"\n`)
  const servers = call(project, bin("codex"), "mcp", "list")
  check("Codex finds the server in a folder that it trusts", /^gavel .*--tool-names underscore/m.test(servers), servers)
} finally {
  rmSync(top, { recursive: true, force: true })
}
process.exitCode = failures ? 1 : 0
