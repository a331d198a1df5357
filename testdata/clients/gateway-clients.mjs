// The TypeScript SDK, over stdio and over HTTP, and the MCP inspector, over stdio (this version sends no token),
// with the servers behind gavel: each lists tools, calls one, reads a resource and gets a prompt; the SDK sees
// progress and cancels a call too.
//
//   node gateway-clients.mjs GAVEL CONFIG URL TOKEN
//
// CONFIG is gavel's, with server-everything as the upstream everything, which ann may use. TOKEN is hers.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [gavel, config, url, token] = process.argv.slice(2);
const args = ['mcp', '--config', config, '--principal', 'ann', '--store', 'memory'];
const uri = 'everything+demo://resource/static/document/features.md';

async function useSDK(transport) {
  const client = new Client({ name: 'gateway-clients', version: '1' });
  await client.connect(transport);
  const call = (name, input, options) => client.callTool({ name: `everything__${name}`, arguments: input }, undefined, options);
  const { tools } = await client.listTools();
  assert(tools.some((t) => t.name === 'everything__echo'));
  assert.equal((await call('echo', { message: 'hi' })).content[0].text, 'Echo: hi');
  const steps = [];
  await call('trigger-long-running-operation', { duration: 0.5, steps: 3 }, { onprogress: (p) => steps.push(p.progress) });
  assert.deepEqual(steps.slice(0, 2), [1, 2]); // the SDK loses one that comes in one piece with the answer
  const aborter = new AbortController();
  await assert.rejects(call('trigger-long-running-operation', { duration: 30, steps: 60 }, { onprogress: () => aborter.abort(), signal: aborter.signal }));
  assert.equal((await call('echo', { message: 'still' })).content[0].text, 'Echo: still');
  assert.equal((await client.readResource({ uri })).contents[0].uri, uri);
  assert.match(JSON.stringify((await client.getPrompt({ name: 'everything__args-prompt', arguments: { city: 'Bern' } })).messages), /Bern/);
  await client.close();
}

/** inspect runs the inspector once, and returns what it prints. */
async function inspect(target, ...words) {
  const child = spawn(fileURLToPath(new URL('node_modules/.bin/mcp-inspector', import.meta.url)), ['--cli', ...target, '--method', ...words]);
  let out = '', err = '';
  child.stdout.on('data', (d) => { out += d; });
  child.stderr.on('data', (d) => { err += d; });
  const status = await new Promise((resolve) => { child.on('close', resolve); });
  assert.equal(status, 0, `${words.join(' ')}: ${err}`);
  return out;
}

async function useInspector(target) {
  const outs = await Promise.all([
    inspect(target, 'tools/list'),
    inspect(target, 'tools/call', '--tool-name', 'everything__echo', '--tool-arg', 'message=hi'),
    inspect(target, 'resources/read', '--uri', uri),
    inspect(target, 'prompts/get', '--prompt-name', 'everything__args-prompt', '--prompt-args', 'city=Bern'),
  ]);
  [/"everything__echo"/, /Echo: hi/, /features\.md/, /Bern/].forEach((want, i) => assert.match(outs[i], want));
}

const folder = mkdtempSync(`${tmpdir()}/gateway-clients-`);
try {
  writeFileSync(`${folder}/mcp.json`, JSON.stringify({ mcpServers: { gavel: { command: gavel, args } } }));
  for (const [how, use] of [
    ['SDK, stdio', () => useSDK(new StdioClientTransport({ command: gavel, args, stderr: 'inherit' }))],
    ['SDK, HTTP', () => useSDK(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }))],
    ['inspector, stdio', () => useInspector(['--config', `${folder}/mcp.json`, '--server', 'gavel'])],
  ]) {
    await use();
    console.log(`ok   ${how}`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
