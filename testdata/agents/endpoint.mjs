// A model endpoint that plays a script, in the four protocols that coding agents speak.
import { createServer } from "node:http"

// serveScript answers each request of the main conversation (those with tools) with the next step: {tool, input},
// {text}, or {patch} for the apply_patch of Codex. After the last it says "Done." requests collects the bodies of these requests.
export async function serveScript(script) {
  let step = 0
  const requests = []
  const server = createServer((request, response) => {
    const chunks = []
    request.on("data", (chunk) => chunks.push(chunk))
    request.on("end", () => {
      let body = {}
      try {
        body = JSON.parse(Buffer.concat(chunks).toString())
      } catch {}
      const protocol = protocols.find((p) => p.path.test(request.url))
      if (!protocol) return response.writeHead(200, { "content-type": "application/json" }).end('{"data":[],"models":[],"input_tokens":1,"totalTokens":1}')
      const main = body.tools?.length > 0
      if (main) requests.push(JSON.stringify(body))
      const say = main ? (script[step++] ?? { text: "Done." }) : { text: "{}" }
      protocol.answer(response, body, say, step, /stream/i.test(request.url) || body.stream)
    })
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  return { url: `http://127.0.0.1:${server.address().port}`, requests, close: () => server.close() }
}

const writeJSON = (response, value) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value))

function writeEvents(response, events, end = "") {
  response.writeHead(200, { "content-type": "text/event-stream" })
  for (const event of events) response.write(`${event.type ? `event: ${event.type}\n` : ""}data: ${JSON.stringify(event)}\n\n`)
  response.end(end)
}

const protocols = [
  {
    path: /^\/v1\/messages(\?|$)/,
    answer(response, body, say, step, stream) {
      const usage = { input_tokens: 1, output_tokens: 1, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 }
      const stop_reason = say.tool ? "tool_use" : "end_turn"
      const message = { id: `msg_${step}`, type: "message", role: "assistant", model: body.model, content: [], stop_reason: null, stop_sequence: null, usage }
      const block = say.tool ? { type: "tool_use", id: `toolu_${step}`, name: say.tool, input: say.input } : { type: "text", text: say.text }
      if (!stream) return writeJSON(response, { ...message, content: [block], stop_reason })
      const empty = say.tool ? { ...block, input: {} } : { ...block, text: "" }
      const delta = say.tool ? { type: "input_json_delta", partial_json: JSON.stringify(say.input) } : { type: "text_delta", text: say.text }
      writeEvents(response, [
        { type: "message_start", message },
        { type: "content_block_start", index: 0, content_block: empty },
        { type: "content_block_delta", index: 0, delta },
        { type: "content_block_stop", index: 0 },
        { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage },
        { type: "message_stop" },
      ])
    },
  },
  {
    path: /enerateContent/,
    answer(response, _, say, __, stream) {
      const parts = [say.tool ? { functionCall: { name: say.tool, args: say.input } } : { text: say.text }]
      const value = { candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }], usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 } }
      return stream ? writeEvents(response, [value]) : writeJSON(response, value)
    },
  },
  {
    path: /\/responses/,
    answer(response, _, say, step) {
      const id = `resp_${step}`
      const item = say.patch
        ? { type: "custom_tool_call", id: `ctc_${step}`, call_id: `call_${step}`, name: "apply_patch", input: say.patch }
        : say.tool
        ? { type: "function_call", id: `fc_${step}`, call_id: `call_${step}`, name: say.tool, arguments: JSON.stringify(say.input) }
        : { type: "message", id: `msg_${step}`, role: "assistant", content: [{ type: "output_text", text: say.text }] }
      const usage = { input_tokens: 1, input_tokens_details: null, output_tokens: 1, output_tokens_details: null, total_tokens: 2 }
      writeEvents(response, [
        { type: "response.created", response: { id } },
        { type: "response.output_item.done", output_index: 0, item },
        { type: "response.completed", response: { id, usage } },
      ])
    },
  },
  {
    path: /\/chat\/completions/,
    answer(response, body, say, step, stream) {
      const base = { id: `c${step}`, created: 1, model: body.model }
      const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
      const finish_reason = say.tool ? "tool_calls" : "stop"
      const call = say.tool && { index: 0, id: `call_${step}`, type: "function", function: { name: say.tool, arguments: JSON.stringify(say.input) } }
      const message = { role: "assistant", content: say.text ?? null, ...(call && { tool_calls: [call] }) }
      if (!stream) return writeJSON(response, { ...base, object: "chat.completion", choices: [{ index: 0, finish_reason, message }], usage })
      const chunk = { ...base, object: "chat.completion.chunk" }
      writeEvents(
        response,
        [
          { ...chunk, choices: [{ index: 0, delta: message, finish_reason: null }] },
          { ...chunk, choices: [{ index: 0, delta: {}, finish_reason }], usage },
        ],
        "data: [DONE]\n\n",
      )
    },
  },
]
