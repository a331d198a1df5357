// A proxy before gavel for clients that know fixed names: it puts the names of one server behind
// gavel in front of what they ask for, and takes them away in what they get. Items of other servers
// and of gavel itself are left out of lists. All else passes as it is.
//
//   node prefix-proxy.mjs PORT SERVER URL
import { createServer, request } from 'node:http';

const [port, server, url] = process.argv.slice(2);
const target = new URL(url);
const names = `${server}__`, uris = `${server}+`;

/** rename puts the prefix in front of what a request asks for. */
function rename({ method, params }) {
  if (method === 'tools/call' || method === 'prompts/get') add(params, 'name', names);
  if (method?.startsWith('resources/')) add(params, 'uri', uris);
  if (method === 'completion/complete') {
    add(params?.ref, 'name', names);
    add(params?.ref, 'uri', uris);
  }
}

function add(object, key, prefix) {
  if (typeof object?.[key] === 'string') object[key] = prefix + object[key];
}

/** renameHeader does the same for the header that repeats the name. */
function renameHeader(headers) {
  const name = headers['mcp-name'];
  if (name === undefined) return;
  const encoded = /^=\?base64\?(.*)\?=$/.exec(name);
  const prefix = headers['mcp-method']?.startsWith('resources/') ? uris : names;
  headers['mcp-name'] = encoded ? `=?base64?${Buffer.from(prefix + Buffer.from(encoded[1], 'base64')).toString('base64')}?=` : prefix + name;
}

/** restore takes the prefix away in a message to the client. */
function restore(text) {
  let message;
  try { message = JSON.parse(text); } catch { return text; }
  const { result } = message;
  for (const [list, key, prefix] of [['tools', 'name', names], ['prompts', 'name', names], ['resources', 'uri', uris], ['resourceTemplates', 'uriTemplate', uris]]) {
    if (!Array.isArray(result?.[list])) continue;
    result[list] = result[list].filter((item) => item[key].startsWith(prefix));
    for (const item of result[list]) item[key] = item[key].slice(prefix.length);
  }
  return JSON.stringify(message, (key, v) => (key === 'uri' && typeof v === 'string' && v.startsWith(uris) ? v.slice(uris.length) : v));
}

createServer((req, res) => {
  let body = '';
  req.setEncoding('utf8').on('data', (d) => { body += d; }).on('end', () => {
    try {
      const message = JSON.parse(body);
      rename(message);
      body = JSON.stringify(message);
    } catch { /* gavel says what is wrong with it */ }
    const headers = { ...req.headers };
    renameHeader(headers);
    delete headers['transfer-encoding'];
    if (body) headers['content-length'] = Buffer.byteLength(body);
    const out = request(target, { method: req.method, headers }, (answer) => {
      const { 'content-length': _, ...rest } = answer.headers;
      res.writeHead(answer.statusCode, rest);
      const lines = answer.headers['content-type']?.startsWith('text/event-stream');
      let held = '';
      res.flushHeaders();
      answer.setEncoding('utf8').on('data', (d) => {
        held += d;
        const end = lines ? held.lastIndexOf('\n') + 1 : 0;
        if (end === 0) return;
        res.write(held.slice(0, end).replace(/^data: ?(.+)$/gm, (_, data) => `data: ${restore(data)}`));
        held = held.slice(end);
      }).on('end', () => res.end(lines ? held : restore(held))).on('error', () => res.destroy());
    });
    out.on('error', () => res.destroy());
    res.on('close', () => out.destroy());
    out.end(body);
  });
}).listen(port, '127.0.0.1');
