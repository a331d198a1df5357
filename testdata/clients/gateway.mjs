// Compares MCP servers asked directly with the same servers behind gavel, in both protocol eras:
// every definition and every result must be the same, but for the names that gavel puts in front.
// Clients reach gavel over stdio (gavel mcp), and over HTTP (gavel serve) as ann, who may use the whole of some, and
// as bob, who may use some tools of these.
//
//   node gateway.mjs GAVEL SERVERS.json FOLDER
//
// SERVERS.json: {name: {command: [...], set: {}, calls: [[tool, arguments, changes], ...], bob: [tool, ...],
//   http: [argument, ...], progress: [tool, arguments], cancel: [tool, arguments, other tool, arguments]}}. Changes are
// pairs of what differs from call to call, and what it is replaced with. With http, gavel reaches
// the server at an address: it is started with these arguments, and PORT. Those with bob are ann's too, and
// compared over HTTP.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import { awaitListening, freePort, serve } from './serve.mjs';

const [gavel, serversFile, folder] = process.argv.slice(2);
const servers = Object.fromEntries(Object.entries(JSON.parse(readFileSync(serversFile, 'utf8'))).filter(([, s]) => s.command.every((word) => word !== ''))); // one without its file is not here
const MODERN = '2026-07-28';
const patience = 120_000;
const client = { name: 'gateway-check', version: '1' };

let failures = 0, checks = 0;
function check(what, ok, ...details) {
  checks++;
  if (ok) return;
  failures++;
  console.log(`FAIL ${what}`, ...details.map((d) => JSON.stringify(d)?.slice(0, 1500)));
}

/** A connection over which JSON-RPC goes, as send of its subclass has it. */
class Connection {
  #next = 0; #waiting = new Map(); notes = []; answers = new Map(); log = '';

  constructor(modern) { this.modern = modern; }

  receive(text) {
    let m;
    try { m = JSON.parse(text); } catch { return; }
    if (m.method && m.id !== undefined) { // a question: there are no roots
      this.send(m.method === 'roots/list' ? { id: m.id, result: { roots: [] } } : { id: m.id, error: { code: -32601, message: 'not here' } });
    } else if (m.method) {
      this.notes.push(m);
    } else {
      this.answers.set(m.id, m);
      this.#waiting.get(m.id)?.(m);
    }
  }

  /** begin sends a request and returns its id and the promise of its answer. */
  begin(method, params = {}) {
    const id = ++this.#next;
    if (this.modern) {
      params = { ...params, _meta: { ...params._meta, 'io.modelcontextprotocol/protocolVersion': MODERN, 'io.modelcontextprotocol/clientInfo': client, 'io.modelcontextprotocol/clientCapabilities': {} } };
    }
    const answer = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`no answer to ${method} ${JSON.stringify(params).slice(0, 200)}\n${this.log.slice(-2000)}`)), patience);
      this.#waiting.set(id, (m) => { clearTimeout(late); resolve(m); });
    });
    answer.catch(() => {}); // nobody may wait for it: a cancelled one never comes
    this.send({ id, method, params });
    return { id, answer };
  }

  ask(method, params) { return this.begin(method, params).answer; }

  async hello() {
    if (this.modern) return;
    const a = await this.ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: client });
    this.capabilities = a.result.capabilities;
    this.send({ method: 'notifications/initialized' });
  }

  /** list returns a whole list, page by page. */
  async list(method, member) {
    const all = [];
    for (let cursor; ;) {
      const a = await this.ask(method, cursor ? { cursor } : {});
      if (a.error) return all;
      all.push(...a.result[member]);
      if (!(cursor = a.result.nextCursor)) return all;
    }
  }
}

/** A program, and a message on each line. */
class Program extends Connection {
  constructor(command, { env = {}, modern = false } = {}) {
    super(modern);
    this.child = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...env } });
    this.child.stderr.on('data', (d) => { this.log += d; });
    createInterface({ input: this.child.stdout }).on('line', (line) => this.receive(line));
  }

  send(m) { this.child.stdin.write(JSON.stringify({ jsonrpc: '2.0', ...m }) + '\n'); }

  async close() {
    const ended = new Promise((resolve) => this.child.on('exit', resolve));
    this.child.stdin.end();
    const late = setTimeout(() => this.child.kill('SIGTERM'), 3000);
    await ended;
    clearTimeout(late);
  }
}

/** An address, and a request for each message. */
class Remote extends Connection {
  #open = new Map();

  constructor(url, token, modern) {
    super(modern);
    this.url = url;
    this.headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
  }

  async send(m) {
    if (this.modern && m.method === 'notifications/cancelled') return this.#open.get(m.params.requestId)?.abort();
    const aborter = new AbortController();
    if (m.id !== undefined) this.#open.set(m.id, aborter);
    const headers = { ...this.headers, ...(this.modern ? { 'MCP-Protocol-Version': MODERN, 'Mcp-Method': m.method } : {}) };
    const name = m.params?.name ?? m.params?.uri;
    if (this.modern && name) headers['Mcp-Name'] = name;
    try {
      const answer = await fetch(this.url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', ...m }), signal: aborter.signal });
      const session = answer.headers.get('mcp-session-id');
      if (session) this.headers['Mcp-Session-Id'] = session;
      if (!answer.headers.get('content-type')?.startsWith('text/event-stream')) return this.receive(await answer.text());
      for await (const line of createInterface({ input: Readable.fromWeb(answer.body) })) {
        if (line.startsWith('data:')) this.receive(line.slice('data:'.length));
      }
    } catch (e) {
      this.log += `${m.method}: ${e}\n`;
    }
    return undefined;
  }

  async close() { for (const request of this.#open.values()) request.abort(); }
}

const lists = [['tools/list', 'tools', 'name'], ['resources/list', 'resources', 'uri'], ['resources/templates/list', 'resourceTemplates', 'uriTemplate'], ['prompts/list', 'prompts', 'name']];
const publicName = (server, name) => `${server}__${name.replace(/[^A-Za-z0-9_-]/g, '_')}`;
const byKey = (key) => (a, b) => (a[key] < b[key] ? -1 : 1);

/** plain is a value without what gavel may add or rename, and without what differs from call to call. */
function plain(value, server, changes = []) {
  const prefix = `${server}+`;
  return JSON.parse(JSON.stringify(value), (key, v) => {
    if ((key === 'uri' || key === 'uriTemplate') && typeof v === 'string' && v.startsWith(prefix)) return v.slice(prefix.length);
    if (typeof v === 'string') for (const [from, to] of changes) v = v.replace(new RegExp(from, 'g'), to);
    return v;
  });
}

/** repaired is a tool with the schemas true and false of its arguments as gavel writes them: strict clients refuse a list with one. */
function repaired(tool) {
  const properties = tool.inputSchema?.properties;
  if (!properties) return tool;
  const written = Object.entries(properties).map(([name, schema]) => [name, schema === true ? {} : schema === false ? { not: {} } : schema]);
  return { ...tool, inputSchema: { ...tool.inputSchema, properties: Object.fromEntries(written) } };
}

/** result is an answer without the members that belong to the era of the connection. */
function result(answer, server, changes) {
  if (answer.error) return { error: plain(answer.error, server, changes) };
  const { resultType, ttlMs, cacheScope, _meta, ...rest } = answer.result;
  const { 'io.modelcontextprotocol/serverInfo': info, ...meta } = _meta ?? {};
  return plain(Object.keys(meta).length > 0 ? { ...rest, _meta: meta } : rest, server, changes);
}

async function compare(server, declared, through) {
  const era = `${through.modern ? MODERN : 'initialize'}, ${through.constructor.name}`;
  const what = (s) => `${server} (${era}): ${s}`;
  const direct = new Program(declared.command, { env: declared.set });
  try {
    await direct.hello();
    await through.hello();
    await new Promise((resolve) => { setTimeout(resolve, declared.settle ?? 0); }); // some list more a moment later
    const has = {};
    for (const [method, member, key] of lists) {
      const own = direct.capabilities[member === 'resourceTemplates' ? 'resources' : member] ? await direct.list(method, member) : [];
      const prefix = key === 'name' ? `${server}__` : `${server}+`;
      const theirs = (await through.list(method, member)).filter((i) => i[key].startsWith(prefix));
      const wanted = own.map((i) => ({ ...repaired(i), [key]: key === 'name' ? publicName(server, i.name) : prefix + i[key] }));
      for (const tool of wanted) if (!through.modern && tool.outputSchema && tool.outputSchema.type !== 'object') delete tool.outputSchema;
      check(what(method), isDeepStrictEqual(wanted.sort(byKey(key)), theirs.sort(byKey(key))), { direct: wanted.filter((i) => !theirs.some((t) => isDeepStrictEqual(i, t))), through: theirs.filter((i) => !wanted.some((t) => isDeepStrictEqual(i, t))) });
      has[member] = own;
    }
    let calls = 0;
    for (const [tool, args, changes] of declared.calls ?? []) {
      const a = await direct.ask('tools/call', { name: tool, arguments: args });
      const b = await through.ask('tools/call', { name: publicName(server, tool), arguments: args });
      check(what(`tools/call ${tool} ${JSON.stringify(args)}`), isDeepStrictEqual(result(a, server, changes), result(b, server, changes)), { direct: a.result ?? a.error, through: b.result ?? b.error });
      calls++;
    }
    for (const r of has.resources.slice(0, 5)) {
      const a = await direct.ask('resources/read', { uri: r.uri });
      const b = await through.ask('resources/read', { uri: `${server}+${r.uri}` });
      check(what(`resources/read ${r.uri}`), isDeepStrictEqual(result(a, server), result(b, server)), a, b);
    }
    for (const p of has.prompts) {
      const args = Object.fromEntries((p.arguments ?? []).map((x) => [x.name, '1']));
      const a = await direct.ask('prompts/get', { name: p.name, arguments: args });
      const b = await through.ask('prompts/get', { name: publicName(server, p.name), arguments: args });
      check(what(`prompts/get ${p.name}`), isDeepStrictEqual(result(a, server), result(b, server)), a, b);
    }
    if (declared.progress) await progress(what, server, declared.progress, direct, through);
    if (declared.cancel) await cancel(what, server, declared.cancel, through);
    console.log(`ok   ${what(`${has.tools.length} tools, ${has.resources.length} resources, ${has.resourceTemplates.length} templates, ${has.prompts.length} prompts, ${calls} calls`)}`);
  } finally {
    await Promise.all([direct.close(), through.close()]);
  }
}

async function progress(what, server, [tool, args], direct, through) {
  const seen = [];
  for (const [connection, name] of [[direct, tool], [through, publicName(server, tool)]]) {
    connection.notes.length = 0;
    const a = await connection.ask('tools/call', { name, arguments: args, _meta: { progressToken: 'p-1' } });
    const notes = connection.notes.filter((n) => n.method === 'notifications/progress').map((n) => n.params);
    seen.push({ notes, result: result(a, server) });
  }
  check(what(`progress of ${tool}`), seen[0].notes.length > 1 && isDeepStrictEqual(seen[0], seen[1]), ...seen);
}

// A cancelled call has no result, and what follows is answered. Over HTTP the request ends with an error.
async function cancel(what, server, [tool, args, other, otherArgs], through) {
  const { id } = through.begin('tools/call', { name: publicName(server, tool), arguments: args });
  await new Promise((resolve) => { setTimeout(resolve, 300); });
  through.send({ method: 'notifications/cancelled', params: { requestId: id, reason: 'enough' } });
  const after = await through.ask('tools/call', { name: publicName(server, other), arguments: otherArgs });
  check(what(`${other} after a cancelled ${tool}`), after.result && !after.result.isError, after);
  const late = through.answers.get(id);
  check(what(`the cancelled ${tool}`), !late || through instanceof Remote && late.result.isError && late.result.content[0].text.includes('"code":"cancelled"'), late);
}

/** bob sees and calls what is his; all else is to him as what does not exist. */
async function restrict(server, declared, bob) {
  const what = (s) => `${server} for bob: ${s}`;
  await bob.hello();
  for (const [method, member, key] of lists) {
    const seen = (await bob.list(method, member)).map((i) => i[key]).filter((name) => name.startsWith(`${server}__`) || name.startsWith(`${server}+`));
    const wanted = member === 'tools' ? declared.bob.map((name) => publicName(server, name)) : [];
    check(what(method), isDeepStrictEqual(wanted.sort(), seen.sort()), seen);
  }
  for (const [tool, args] of declared.calls) {
    const a = await bob.ask('tools/call', { name: publicName(server, tool), arguments: args });
    const nothing = await bob.ask('tools/call', { name: `${publicName(server, tool)}-x`, arguments: args });
    const unknown = isDeepStrictEqual(a.error?.code, nothing.error.code) && a.error?.message === nothing.error.message.replace(/-x"/g, '"');
    check(what(`tools/call ${tool}`), declared.bob.includes(tool) ? a.result : unknown, a, nothing);
  }
  await bob.close();
}

/** listening starts a server over HTTP and returns where it is. */
async function listening(declared) {
  const port = await freePort();
  return await awaitListening(spawn(declared.command[0], [...declared.command.slice(1), ...declared.http], { stdio: 'ignore', env: { ...process.env, PORT: port } }), port);
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const declared of Object.values(servers)) {
  if (declared.http) declared.url = await listening(declared);
}
writeFileSync(`${folder}/gavel.yaml`, JSON.stringify({
  upstreams: Object.fromEntries(Object.entries(servers).map(([name, s]) => [name, {
    ...(s.url ? { url: s.url, privateNetwork: true } : { command: s.command, ...(s.set ? { set: s.set } : {}) }), allow: [
      { tools: ['*'], resources: ['*'], prompts: ['*'], principals: s.bob ? ['local:agent', 'ann'] : ['local:agent'] },
      ...(s.bob ? [{ tools: s.bob, principals: ['bob'] }] : []),
    ],
  }])),
}));
const pinned = spawnSync(gavel, ['upstream', 'pin', '--all', '--config', `${folder}/gavel.yaml`], { encoding: 'utf8' });
check('gavel upstream pin', pinned.status === 0, pinned.stderr);
const { url, tokens } = await serve(gavel, folder, { ann: 'agent', bob: 'agent' });
await Promise.all(Object.entries(servers).map(async ([name, declared]) => {
  for (const modern of [false, true]) {
    try {
      await compare(name, declared, new Program([gavel, 'mcp', '--config', `${folder}/gavel.yaml`, '--store', 'memory'], { modern }));
      if (!declared.bob) continue;
      await compare(name, declared, new Remote(url, tokens.ann, modern));
      await restrict(name, declared, new Remote(url, tokens.bob, modern));
    } catch (e) {
      check(`${name}: ${e.message}`, false);
    }
  }
}));
console.log(`${checks} checks, ${failures} failed`);
process.exit(failures ? 1 : 0);
