// An OpenAI-compatible server for one small model, on the loopback interface: llama.cpp through node-llama-cpp.
//
//   node server.mjs MODEL.gguf NAME PORT      PORT 0 takes a free one; the first line of output is the address
//
// It answers one request at a time. What the prompt shares with an earlier one is not computed again.
// THREADS (1) bounds the processor; GPU=auto takes an accelerator where llama.cpp finds one.
import http from "node:http";
import { getLlama, LlamaGrammarEvaluationState, LlamaLogLevel } from "node-llama-cpp";

const [file, name, port = "0"] = process.argv.slice(2);
const threads = Number(process.env.THREADS ?? 1);
const CONTEXT = 8192; // tokens of a prompt with its answer
const KEPT = 6; // prompts whose state is kept

const llama = await getLlama({
  gpu: process.env.GPU || false,
  build: "never",
  maxThreads: threads,
  logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({ contextSize: CONTEXT, sequences: KEPT, threads });
const kept = Array.from({ length: KEPT }, () => context.getSequence());

class BadRequest extends Error {
  constructor(message, code = "invalid_value") {
    super(message);
    this.code = code;
  }
}

const text = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");

// The template of the Qwen2.5 models.
function render(messages, tools) {
  let system = "";
  const rest = messages.filter((m, i) => i > 0 || m.role !== "system" || !((system = text(m.content)), true));
  if (tools?.length) {
    system +=
      "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>" +
      tools.map((tool) => "\n" + JSON.stringify(tool)).join("") +
      "\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
      '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>';
  }
  return [{ role: "system", content: system || "You are a helpful assistant." }, ...rest]
    .map((m) => `<|im_start|>${m.role}\n${text(m.content)}<|im_end|>\n`)
    .join("") + "<|im_start|>assistant\n";
}

// demandedTool is the function that the request insists on, if any.
function demandedTool({ tools = [], tool_choice: choice = "auto" }) {
  if (choice === "auto" || choice === "none") return undefined;
  const wanted = choice.function?.name;
  const found = wanted ? tools.find((tool) => tool.function.name === wanted) : tools[0];
  if (!found || (!wanted && tools.length > 1)) throw new BadRequest("tool_choice must lead to exactly one of the tools");
  return found.function;
}

async function grammarFor(format, tool) {
  if (tool) return llama.createGrammarForJsonSchema(tool.parameters);
  switch (format?.type ?? "text") {
    case "json_schema":
      return llama.createGrammarForJsonSchema(format.json_schema.schema);
    case "json_object":
      return llama.getGrammarFor("json");
    case "text":
      return undefined;
  }
  throw new BadRequest(`response_format ${format.type} is not known`);
}

// closest picks the kept state that shares most with the prompt; the one used longest ago where none shares much.
function closest(tokens) {
  const shared = (sequence) => {
    const known = sequence.contextTokens;
    let n = 0;
    while (n < known.length && known[n] === tokens[n]) n++;
    return n;
  };
  const [most, best] = kept.map((sequence) => [shared(sequence), sequence]).sort((a, b) => b[0] - a[0])[0];
  return most > 64 ? best : kept[0];
}

const isWhole = (answer) => {
  try {
    return typeof JSON.parse(answer) === "object";
  } catch {
    return false;
  }
};

async function complete(request, isGone) {
  const tool = demandedTool(request);
  const grammar = await grammarFor(request.response_format, tool);
  let prompt = render(request.messages, request.tools);
  if (tool) prompt += `<tool_call>\n{"name": "${tool.name}", "arguments": `;
  const tokens = model.tokenize(prompt, true);
  const most = request.max_tokens ?? request.max_completion_tokens ?? 1024;
  if (tokens.length + most > CONTEXT) {
    throw new BadRequest(
      `This model's maximum context length is ${CONTEXT} tokens, but the prompt has ${tokens.length} and asks for ${most} more.`,
      "context_length_exceeded",
    );
  }
  const sequence = closest(tokens);
  kept.push(...kept.splice(kept.indexOf(sequence), 1)); // the last one used is the last to be replaced
  await sequence.adaptStateToTokens(tokens.slice(0, -1), false);
  const cached = sequence.nextTokenIndex;
  const rest = tokens.slice(cached);
  const usage = (written) => ({
    prompt_tokens: tokens.length,
    completion_tokens: written,
    total_tokens: tokens.length + written,
    prompt_tokens_details: { cached_tokens: cached },
  });

  if (request.logprobs) {
    if (most !== 1 || grammar) throw new BadRequest("logprobs are given for one free token: set max_tokens to 1");
    const input = rest.slice(0, -1).concat([[rest.at(-1), { generateNext: { probabilities: true } }]]);
    const { probabilities } = (await sequence.controlledEvaluate(input)).at(-1).next;
    const top = [...probabilities]
      .sort((a, b) => b[1] - a[1])
      .slice(0, Math.max(1, request.top_logprobs ?? 1))
      .map(([token, p]) => ({ token: model.detokenize([token]), logprob: Math.log(p) }));
    const message = { role: "assistant", content: top[0].token };
    return { message, reason: "length", usage: usage(1), logprobs: { content: [{ ...top[0], top_logprobs: top }] } };
  }

  const written = [];
  let answer = "";
  let reason = "length";
  const state = grammar && new LlamaGrammarEvaluationState({ model, grammar });
  const options = {
    temperature: request.temperature ?? 0,
    grammarEvaluationState: state,
    yieldEogToken: true,
    repeatPenalty: { penalty: 1.1, punishTokens: () => written.slice(-64) }, // without it small models repeat themselves to the end
  };
  for await (const token of sequence.evaluate(rest, options)) {
    if (isGone()) return undefined;
    if (!model.isEogToken(token)) {
      written.push(token);
      answer = model.detokenize(written);
    }
    // A grammar ends with line breaks that nobody needs.
    if (model.isEogToken(token) || (grammar && answer.trimEnd().endsWith("}") && isWhole(answer))) {
      reason = "stop";
      break;
    }
    if (written.length >= most) break;
  }
  if (!tool) return { message: { role: "assistant", content: answer }, reason, usage: usage(written.length) };
  const call = { id: "call_1", type: "function", function: { name: tool.name, arguments: answer } };
  const message = { role: "assistant", content: null, tool_calls: [call] };
  return { message, reason: reason === "stop" ? "tool_calls" : reason, usage: usage(written.length) };
}

async function answer(body, isGone) {
  let request;
  try {
    request = JSON.parse(body);
  } catch {
    throw new BadRequest("the body is not JSON");
  }
  if (!Array.isArray(request.messages) || request.messages.length === 0) throw new BadRequest("messages are missing");
  const began = Date.now();
  const done = await complete(request, isGone);
  if (!done) return undefined;
  const { message, reason: finish_reason, usage, logprobs = null } = done;
  console.log(`${Date.now() - began} ms, ${usage.prompt_tokens} (${usage.prompt_tokens_details.cached_tokens} kept) + ${usage.completion_tokens} tokens, ${finish_reason}`);
  return {
    id: "chatcmpl-1",
    object: "chat.completion",
    created: Math.floor(began / 1000),
    model: name,
    choices: [{ index: 0, finish_reason, message, logprobs }],
    usage,
  };
}

let last = Promise.resolve();
const server = http.createServer((req, res) => {
  const send = (status, value) => {
    res.writeHead(status, { "content-type": "application/json" });
    res.end(JSON.stringify(value));
  };
  if (req.url.endsWith("/models")) return send(200, { object: "list", data: [{ id: name, object: "model" }] });
  if (req.method !== "POST" || !req.url.endsWith("/chat/completions")) {
    return send(404, { error: { message: `${req.method} ${req.url} is not served`, type: "invalid_request_error" } });
  }
  const chunks = [];
  req.on("data", (chunk) => chunks.push(chunk));
  req.on("end", () => {
    last = last
      .then(() => (res.destroyed ? undefined : answer(Buffer.concat(chunks).toString(), () => res.destroyed)))
      .then((value) => value && send(200, value))
      .catch((error) => {
        const mine = error instanceof BadRequest;
        console.error(mine ? error.message : error);
        send(mine ? 400 : 500, { error: { message: error.message, type: mine ? "invalid_request_error" : "server_error", code: error.code } });
      });
  });
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
