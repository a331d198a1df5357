// Every chain of the chaining document over its servers on the official SDKs, run by gavel serve: FastMCP in both eras
// of the protocol, and the TypeScript SDK.
//
//   node document-chains.mjs GAVEL FOLDER CHAINS PYTHON
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { serve } from './serve.mjs';

const [gavel, folder, chains, python] = process.argv.slice(2);
const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const sets = {
  'FastMCP, 2026-07-28': { command: [python, here('document_server.py')], protocol: '2026-07-28' },
  'FastMCP, initialize': { command: [python, here('document_server.py')], protocol: 'initialize' },
  'TypeScript SDK': { command: ['node', here('document-server.mjs')], protocol: 'initialize' },
};
const sites = [1, 2, 3].map((n) => `https://site${n}.com`);
const count = (calls, name) => calls.filter((c) => c.name === name).length;

// What each chain comes to: its status, and what is checked of its result and its calls.
const outcomes = {
  retry_strategies: { input: { url: 'https://down.example.org' }, holds: (run, calls) => {
    assert.deepEqual(run.steps.filter((s) => s.status === 'done').map((s) => s.key), ['step1!fallback_step']);
    assert.deepEqual(calls.filter((c) => c.name === 'navigate' && /example.org|backup/.test(c.arguments.url)).map((c) => c.arguments.url),
      [...Array(3).fill('https://down.example.org'), 'https://backup.example.com'], 'three attempts, and the fallback');
  } },
  wait_for_element: { holds: (run) => assert.deepEqual(run.steps.map((s) => s.key), ['wait_loop#1/check', 'wait_loop#1/extract', 'wait_loop#2/check', 'wait_loop#2/extract'], 'the loop ended') },
  check_and_alert: { holds: (_, calls) => assert.deepEqual(calls.at(-1), { name: 'send_alert', arguments: { message: 'Error detected!' } }, 'the alert is sent') },
  compare_sites: { holds: (_, calls) => {
    assert.deepEqual(calls.filter((c) => c.name === 'navigate').map((c) => c.arguments.url).sort(), sites);
    assert.deepEqual(calls.at(-1), { name: 'compare_multiple_sites', arguments: { sites: JSON.stringify(sites) } }, 'three sites are compared');
  } },
  // The document's code reads names that Python does not have, and is sent as it is.
  multi_site_check: { failed: ['aggregate', /name 'check_site1' is not defined/], holds: (_, calls) => {
    assert.deepEqual(calls.filter((c) => c.name === 'verify').map((c) => c.arguments.url).sort(), sites);
  } },
  daily_site_check: { failed: ['save', /name 'json' is not defined/], holds: (_, calls) => assert.equal(count(calls, 'analyze_dashboard'), 1) },
  form_test_workflow: { holds: (_, calls) => assert.deepEqual(calls.find((c) => c.name === 'fill_form').arguments.fields, { username: 'test', password: 'test' }) },
  fallback_steps: { holds: (_, calls) => assert.deepEqual(calls.map((c) => c.name), ['screenshot']) },
  cron_schedule: {}, interval_schedule: {}, once_schedule: {},
  error_callbacks: { failed: ['broken', /the site is down/], holds: (_, calls) => assert.match(calls.at(-1).arguments.message, /^Workflow failed at step broken: .*the site is down$/) },
  communication_models: { holds: (run, calls) => {
    assert.deepEqual(calls.find((c) => c.name === 'write_input').arguments, { uri: 'input/screenshot', data: 'page text' });
    assert.deepEqual(run.output.messages[0].content.text, 'In short: Look at ...');
  } },
  variable_types: { times: 2, holds: (_, calls, n) => {
    const { page, before } = calls.findLast((c) => c.name === 'verify').arguments;
    assert.equal(page, 'at https://example.com');
    assert.match(String(before), n === 0 ? /^null$/ : /^\/tmp\/shot-/, 'what the run before it saved');
  } },
};

/** command runs gavel, and returns what it prints. */
function command(...args) {
  const { status, stdout, stderr } = spawnSync(gavel, args, { encoding: 'utf8' });
  assert.equal(status, 0, `gavel ${args.join(' ')}: ${stdout}${stderr}`);
  return stdout;
}

/** play runs all chains over one set of servers. */
async function play(set, at) {
  mkdirSync(at, { recursive: true });
  const log = `${at}/calls.jsonl`, config = `${at}/gavel.yaml`;
  writeFileSync(log, '');
  const upstreams = {};
  for (const name of ['vision-agent-mcp', 'code-mcp', 'prompts-engine']) {
    upstreams[name] = { ...sets[set], command: [...sets[set].command, name], set: { CALLS: log }, allow: [{ tools: ['*'], resources: ['*'], prompts: ['*'] }] };
  }
  // Two chains of the document have one name.
  const files = readdirSync(chains).filter((name) => name !== 'simple.json').map((name) => `${chains}/${name}`);
  writeFileSync(config, JSON.stringify({ upstreams, chains: { definitions: files, writers: { 'code-mcp': { tool: 'write_input', uri: 'uri', data: 'data' } } } }));
  command('upstream', 'pin', '--all', '--config', config);
  const issues = JSON.parse(command('chain', 'lint', '--json', chains, '--config', config)).files.flatMap((f) => f.issues);
  assert.deepEqual([...new Set(issues.map((i) => i.rule))], ['schedule-past'], JSON.stringify(issues));
  const { url, tokens } = await serve(gavel, at, { ann: 'agent' });

  const ask = async (path, body) => {
    const answer = await fetch(url.replace(/mcp$/, `v1/${path}`), {
      method: body ? 'POST' : 'GET', body: body && JSON.stringify(body),
      headers: { Authorization: `Bearer ${tokens.ann}`, 'Content-Type': 'application/json' },
    });
    const json = await answer.json();
    assert(answer.ok, `${path}: ${JSON.stringify(json)}`);
    return json;
  };
  const calls = () => readFileSync(log, 'utf8').trim().split('\n').filter(Boolean).map((line) => JSON.parse(line));
  const end = async (chain, run, from, n = 0) => {
    const { failed, holds } = outcomes[chain];
    const ended = await ask(`runs/${run}/result?wait=60`);
    assert.equal(ended.status, failed ? 'failed' : 'done', `${chain}: ${JSON.stringify(ended)}`);
    if (failed) {
      assert.equal(ended.error.step, failed[0], `${chain}: ${JSON.stringify(ended)}`);
      assert.match(ended.error.message, failed[1]);
    }
    holds?.(ended, calls().slice(from), n);
  };
  const start = async (chain) => (await ask('runs', { chain, input: outcomes[chain].input ?? {} })).run;
  try {
    const [slow, ...others] = Object.keys(outcomes);
    const waiting = await start(slow); // it waits between its attempts
    for (const chain of others) {
      for (let n = 0; n < (outcomes[chain].times ?? 1); n++) {
        const from = calls().length;
        await end(chain, await start(chain), from, n);
      }
    }
    const { output } = JSON.parse(command('chain', 'run', `${chains}/simple.json`, '--config', config, '--json'));
    assert.match(output.screenshot_path, /^\/tmp\/shot-/);
    assert.deepEqual([output.screenshot_data, JSON.parse(output.analysis_result).status], ['page text', 'OK']);
    await end(slow, waiting, 0);
  } catch (e) {
    e.message = `${set}: ${e.message}`;
    throw e;
  }
  console.log(`ok   every chain of the document: ${set}`);
}

rmSync(folder, { recursive: true, force: true });
await Promise.all(Object.keys(sets).map((set, n) => play(set, `${folder}/${n}`)));
process.exit(0);
