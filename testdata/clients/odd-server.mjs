// A server with every oddity that gavel has to live with: the definitions of odd.json, with lists that end in odd ways,
// and answers and restarts as they occur.
//
//   node odd-server.mjs              over stdio
//   node odd-server.mjs PORT         over HTTP
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const odd = JSON.parse(readFileSync(new URL('odd.json', import.meta.url), 'utf8'));
const definitions = (kind) => odd[kind].map((d) => d.definition);
const text = (s) => ({ content: [{ type: 'text', text: s }] });

// Each list ends in a way of its own.
const lists = {
  'tools/list': (cursor) => (cursor ? { tools: definitions('tool').slice(20), nextCursor: '' } : { tools: definitions('tool').slice(0, 20), nextCursor: 'more' }),
  'prompts/list': () => ({ prompts: definitions('prompt'), nextCursor: null }),
  'resources/list': () => ({ resources: definitions('resource'), nextCursor: 'again' }),
  'resources/templates/list': () => ({ resourceTemplates: definitions('template') }),
};

/** answer is the answer to a request: its result, and what else is in the message. */
function answer({ method, params = {} }) {
  if (lists[method]) return { result: lists[method](params.cursor) };
  switch (method) {
    case 'initialize': return { result: { protocolVersion: '2025-06-18', capabilities: { tools: {}, prompts: {}, resources: {} }, serverInfo: { name: 'odd', version: '1' } } };
    case 'tools/call': return { result: text(params.name), error: null };
    case 'prompts/get': return { result: { messages: [{ role: 'user', content: { type: 'text', text: params.name } }] } };
    case 'resources/read': return { result: { contents: [{ uri: params.uri, text: 'read' }] } };
    default: return { result: undefined, error: { code: -32601, message: 'no such method' } };
  }
}

function serveStdio() {
  const send = (m) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...m })}\n`);
  createInterface({ input: process.stdin }).on('line', (line) => {
    const m = JSON.parse(line);
    if (m.id === undefined) return;
    const how = m.params?.arguments?.how;
    if (how === 'stray') send({ id: 'somebody-else', result: text('stray') });
    else if (how === 'list') send({ id: m.id, result: [] });
    else if (how === 'twice') process.stdout.write(`{"jsonrpc":"2.0","id":${m.id},"result":{"content":[],"isError":true,"isError":false}}\n`);
    else send({ id: m.method === 'tools/call' ? String(m.id) : m.id, ...answer(m) });
  });
}

// What a server says of a session that it does not know, since it began anew.
const forgotten = {
  400: [400, { error: { code: -32000, message: 'Bad Request: No valid session ID provided' }, id: null }],
  404: [404, { error: { code: -32001, message: 'Session not found' }, id: null }],
  410: [410, 'gone'],
  422: [422, { detail: 'unknown session' }],
  init: [200, { error: { code: -32002, message: 'Server not initialized' } }],
};

function serveHTTP(port) {
  let sessions = new Set(), restarted;
  createServer(async (request, response) => {
    const answerWith = (status, body, headers = {}) => {
      const json = typeof body === 'object';
      response.writeHead(status, { 'Content-Type': json ? 'application/json' : 'text/plain', ...headers });
      response.end(json ? JSON.stringify(body) : body);
    };
    let body = '';
    for await (const part of request) body += part;
    if (request.method !== 'POST') return answerWith(405, 'no');
    const m = JSON.parse(body);
    if (m.method === 'initialize') {
      const session = crypto.randomUUID();
      sessions.add(session);
      return answerWith(200, { jsonrpc: '2.0', id: m.id, ...answer(m) }, { 'Mcp-Session-Id': session });
    }
    if (!sessions.has(request.headers['mcp-session-id'])) {
      const [status, said] = forgotten[restarted];
      return answerWith(status, said.error ? { jsonrpc: '2.0', id: m.id, ...said } : said);
    }
    if (m.id === undefined) return answerWith(202, '');
    answerWith(200, { jsonrpc: '2.0', id: m.id, ...answer(m) });
    if (m.params?.arguments?.how in forgotten) [sessions, restarted] = [new Set(), m.params.arguments.how];
    return undefined;
  }).listen(port, '127.0.0.1');
}

if (process.argv[2]) serveHTTP(Number(process.argv[2]));
else serveStdio();
