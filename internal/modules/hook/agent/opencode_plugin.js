
import { spawn } from "node:child_process"

// ask gives gavel an event and returns its answer. Whatever goes wrong is an error, and so a tool does not run.
function ask(event) {
  return new Promise((resolve, reject) => {
    const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"], windowsHide: true })
    const timer = setTimeout(() => child.kill("SIGKILL"), limit)
    let out = ""
    let err = ""
    child.stdout.on("data", (data) => (out += data))
    child.stderr.on("data", (data) => (err += data))
    child.stdin.on("error", () => {})
    child.on("error", (e) => reject(new Error("gavel cannot be run: " + e.message)))
    child.on("close", (code) => {
      clearTimeout(timer)
      if (code !== 0) return reject(new Error(err.trim() || "gavel gave no answer in time"))
      try {
        resolve(out.trim() === "" ? {} : JSON.parse(out))
      } catch {
        reject(new Error("gavel's answer is not JSON"))
      }
    })
    child.stdin.end(JSON.stringify(event))
  })
}

// An event has the members of opencode's own, and "hook" is its name. An answer is {} or has one of "deny", "goOn" and "context".
export const Gavel = async ({ client, directory }) => {
  const continued = new Set() // sessions that go on because gavel did not let them stop
  const subagents = new Set() // sessions that another one began
  // listServers names the MCP servers as their tools' names begin, so that these are not unknown.
  const listServers = async () => Object.keys((await client.mcp.status().catch(() => ({}))).data ?? {}).map((name) => name.replace(/[^a-zA-Z0-9_-]/g, "_"))
  return {
    "tool.execute.before": async (input, output) => {
      const answer = await ask({ hook: "tool.execute.before", directory, ...input, args: output.args, servers: await listServers() })
      if (answer.deny) throw new Error(answer.deny)
    },
    "tool.execute.after": async (input, output) => {
      const answer = await ask({ hook: "tool.execute.after", directory, ...input, title: output.title, output: output.output, metadata: output.metadata, servers: await listServers() })
      if (answer.context) output.output += "\n" + answer.context
    },
    event: async ({ event }) => {
      if (event.type === "session.created") {
        const { id, parentID } = event.properties.info
        if (parentID) return void subagents.add(id)
        await ask({ hook: event.type, directory, sessionID: id })
      }
      if (event.type === "session.idle") {
        const { sessionID } = event.properties
        const answer = await ask({ hook: event.type, directory, sessionID, continued: continued.has(sessionID), subagent: subagents.has(sessionID) })
        continued.delete(sessionID)
        if (answer.goOn) {
          continued.add(sessionID)
          await client.session.prompt({ path: { id: sessionID }, body: { parts: [{ type: "text", text: answer.goOn }] } })
        }
      }
    },
  }
}
