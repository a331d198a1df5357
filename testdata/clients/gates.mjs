// A gate before write_file of the filesystem server, walked by the TypeScript SDK over HTTP: what is
// refused and allowed in each state of a change, and who hears that the list of tools changed.
//
//   node gates.mjs GAVEL FOLDER
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { serve } from './serve.mjs';

const [gavel, folder] = process.argv.slice(2);
const server = fileURLToPath(new URL('node_modules/@modelcontextprotocol/server-filesystem/dist/index.js', import.meta.url));
const files = `${folder}/files`, planned = `${files}/planned.txt`, other = `${files}/other.txt`;
const tool = 'files__write_file';

/** connect returns a client that counts how often it is told that the tools changed. */
async function connect(url, token) {
  const client = new Client({ name: 'gates', version: '1' });
  const heard = { times: 0, wake: () => {} };
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => { heard.times++; heard.wake(); });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));
  const call = async (name, input) => {
    const { content, isError } = await client.callTool({ name, arguments: input });
    let json;
    try { json = JSON.parse(content[0].text); } catch { /* the server's own text */ }
    return { text: content[0].text, isError: isError ?? false, json };
  };
  return {
    call,
    heard,
    lists: async () => (await client.listTools()).tools.some((t) => t.name === tool),
    /** changed waits until the client has heard of more changes than before. */
    changed: async (before) => { while (heard.times <= before) await new Promise((resolve) => { heard.wake = resolve; }); },
    close: () => client.close(),
  };
}

async function refused(who, input, code) {
  const { isError, json, text } = await who.call(tool, input);
  assert(isError && json?.error?.code === code, `${code} was expected: ${text}`);
  return json.error;
}

async function allowed(who, input) {
  const { isError, text } = await who.call(tool, input);
  assert(!isError, text);
  assert.equal(readFileSync(input.path, 'utf8'), input.content);
}

async function advance(who, id, action, data) {
  const { isError, text } = await who.call('workflow.advance', { id, action, data });
  assert(!isError, text);
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(files, { recursive: true });
writeFileSync(`${folder}/change.json`, JSON.stringify({
  name: 'change',
  initialState: 'planning',
  states: {
    planning: { transitions: { propose: { target: 'proposed', requiredFields: ['path'], freezes: ['/path'] } } },
    proposed: { transitions: { approve: { target: 'approved', roles: ['operator'] } } },
    approved: { transitions: { finish: 'done' } },
    done: { final: true, outcome: 'success' },
  },
}));
writeFileSync(`${folder}/gavel.yaml`, JSON.stringify({
  definitions: ['change.json'],
  upstreams: { files: { command: ['node', server, files], allow: [{ tools: ['*'] }] } },
  gates: [{ tool, workflow: 'change', states: ['approved'], bind: { '/path': '/path' }, maxCalls: 2, list: 'legal' }],
}));
const pinned = spawnSync(gavel, ['upstream', 'pin', '--all', '--config', `${folder}/gavel.yaml`], { encoding: 'utf8' });
assert.equal(pinned.status, 0, pinned.stderr);
const { url, tokens } = await serve(gavel, folder, { ann: 'agent', bob: 'agent', olga: 'operator' });
const [ann, bob, olga] = await Promise.all([tokens.ann, tokens.bob, tokens.olga].map((token) => connect(url, token)));

const start = async (who) => (await who.call('workflow.start', { type: 'change' })).json.id;
const workflowId = await start(ann);
const write = { path: planned, content: 'one', workflowId };
assert.equal(await ann.lists(), false);
await refused(ann, write, 'gate_closed');
await advance(ann, workflowId, 'propose', { path: planned });
await refused(ann, write, 'gate_closed');
console.log('ok   refused until the plan is approved');

const before = ann.heard.times, bobBefore = bob.heard.times;
await advance(olga, workflowId, 'approve');
await ann.changed(before);
assert.deepEqual([await ann.lists(), await bob.lists()], [true, false]);
console.log('ok   the client is told that its list changed');

await refused(ann, { ...write, path: other }, 'call_refused');
assert.equal(existsSync(other), false);
await refused(bob, write, 'unknown_instance');
await allowed(ann, write);
await allowed(ann, { ...write, content: 'two' });
const usedUp = await refused(ann, { ...write, content: 'three' }, 'call_refused');
assert.equal(usedUp.workflow.nextTools, undefined);
assert.equal(readFileSync(planned, 'utf8'), 'two');
console.log('ok   allowed for the approved path only, maxCalls times');

const now = ann.heard.times;
await advance(ann, workflowId, 'finish');
await ann.changed(now);
await refused(ann, { ...write, content: 'four' }, 'gate_closed');
assert.equal(await ann.lists(), false);
console.log('ok   refused in the final state');

const his = await start(bob); // what he would have heard before comes before what he hears of his own
await advance(bob, his, 'propose', { path: planned });
await advance(olga, his, 'approve');
await bob.changed(bobBefore);
assert.equal(bob.heard.times, bobBefore + 1);
console.log('ok   another principal hears nothing');
await Promise.all([ann, bob, olga].map((who) => who.close()));
process.exit(0);
