// The TypeScript SDK, in both its generations, with the server of odd-server.mjs behind gavel: it takes every list whole
// and calls every tool; a server that began anew is used again, and an answer that cannot be used fails its call at once.
//
//   node strict-clients.mjs GAVEL FOLDER
//
// FOLDER gets the configuration, with which strict_clients.py goes on.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Client as Client2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioTransport2 } from '@modelcontextprotocol/client/stdio';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { awaitListening, freePort } from './serve.mjs';

const [gavel, folder] = process.argv.slice(2);
const file = (name) => fileURLToPath(new URL(name, import.meta.url));
const odd = JSON.parse(readFileSync(file('odd.json'), 'utf8'));
const all = { tools: ['*'], prompts: ['*'], resources: ['*'] };

/** wanted are the names that clients see of a kind, sorted. */
const wanted = (kind, key, prefix) => odd[kind].filter((d) => d.is !== 'left out').map((d) => prefix + d.definition[key]).sort();
const seen = (list, key, prefix) => list.map((i) => i[key]).filter((name) => name.startsWith(prefix)).sort();

/** lists compares what a client makes of each list with what there is. */
async function checkLists(client) {
  const { tools } = await client.listTools();
  assert.deepEqual(seen(tools, 'name', 'odd__'), wanted('tool', 'name', 'odd__'));
  assert.deepEqual(seen((await client.listPrompts()).prompts, 'name', 'odd__'), wanted('prompt', 'name', 'odd__'));
  assert.deepEqual(seen((await client.listResources()).resources, 'uri', 'odd+'), wanted('resource', 'uri', 'odd+'));
  assert.deepEqual(seen((await client.listResourceTemplates()).resourceTemplates, 'uriTemplate', 'odd+'), wanted('template', 'uriTemplate', 'odd+'));
  return tools.filter((t) => t.name.startsWith('odd__'));
}

async function use(client, transport) {
  await client.connect(transport);
  const call = async (name, how) => (await client.callTool({ name, arguments: how ? { how } : {} }));
  for (const { name, outputSchema } of await checkLists(client)) {
    if (!outputSchema) assert.equal((await call(name)).content[0].text, name.slice('odd__'.length));
  }
  assert.equal((await client.getPrompt({ name: 'odd__plain', arguments: { a: '1' } })).messages[0].content.text, 'plain');
  assert.equal((await client.readResource({ uri: 'odd+odd://no-name' })).contents[0].text, 'read');
  for (const [how, says] of [['stray', /matches no call: .*somebody-else/], ['list', /the result is an array/], ['twice', /duplicate key .*isError/]]) {
    const began = Date.now();
    const result = await call('odd__no-schema', how);
    assert.match(result.content[0].text, says);
    assert(result.isError && Date.now() - began < 20_000, `${how} took ${Date.now() - began} ms`); // callTimeout is a minute
  }
  for (const how of ['400', '404', '410', '422', 'init']) {
    await call('again__no-schema', how); // the server begins anew
    assert.equal((await call('again__no-schema')).content[0].text, 'no-schema', how);
  }
  await client.close();
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const port = await freePort();
const http = spawn(process.execPath, [file('odd-server.mjs'), port], { stdio: 'inherit' });
try {
  const config = `${folder}/gavel.yaml`;
  const url = await awaitListening(http, port);
  writeFileSync(config, JSON.stringify({ upstreams: {
    odd: { command: [process.execPath, file('odd-server.mjs')], allow: [all] },
    again: { url, privateNetwork: true, allow: [all] },
  } }));
  const pinned = spawnSync(gavel, ['upstream', 'pin', '--all', '--json', '--config', config], { encoding: 'utf8' });
  assert.equal(pinned.status, 0, pinned.stderr);
  for (const { name, notes } of JSON.parse(pinned.stdout).upstreams) {
    for (const kind of Object.keys(odd)) {
      const count = (is) => odd[kind].filter((d) => d.is === is).length;
      const of = notes.filter((n) => n.kind === kind && (n.leftOut || n.name));
      assert.equal(of.filter((n) => n.leftOut).length, count('left out'), `${name}: ${kind}s left out`);
      assert.equal(new Set(of.filter((n) => !n.leftOut).map((n) => n.name)).size, count('repaired'), `${name}: ${kind}s repaired`);
    }
  }
  const server = { command: gavel, args: ['mcp', '--config', config, '--store', 'memory'], stderr: 'inherit' };
  const info = { name: 'strict-clients', version: '1' };
  for (const [how, run] of [
    ['SDK 1', () => use(new Client(info), new StdioClientTransport(server))],
    ['SDK 2, initialize', () => use(new Client2(info, { versionNegotiation: { mode: 'legacy' } }), new StdioTransport2(server))],
    ['SDK 2, 2026-07-28', () => use(new Client2(info, { versionNegotiation: { mode: { pin: '2026-07-28' } } }), new StdioTransport2(server))],
  ]) {
    await run();
    console.log(`ok   ${how}`);
  }
} finally {
  http.kill();
}
