// One chain over the servers filesystem, memory and everything, run by gavel serve: parallel, loop, condition, retry,
// fallback, and write_file behind a gate, which is refused before a person has approved and done after.
//
//   node chains.mjs GAVEL FOLDER
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { serve } from './serve.mjs';

const [gavel, folder] = process.argv.slice(2);
const server = (name) => ['node', fileURLToPath(new URL(`node_modules/@modelcontextprotocol/server-${name}/dist/index.js`, import.meta.url))];
const files = `${folder}/files`, report = `${files}/report.txt`, page = `${files}/page.txt`, late = `${files}/late.txt`;

const tool = (id, on, action, input, more) => ({ id, type: 'tool', server: on, action, arguments: input, ...more });
const entity = (name) => ({ entities: [{ name, entityType: 'city', observations: [] }] });
const chain = {
  name: 'weather-report',
  variables: { input: { city: 'New York', cities: ['Chicago', 'Los Angeles'], change: '' } },
  steps: [
    { id: 'look', type: 'parallel', tasks: [
      tool('weather', 'everything', 'get-structured-content', { location: '{{variables.input.city}}' }),
      tool('remember', 'memory', 'create_entities', entity('{{variables.input.city}}')),
      tool('sum', 'everything', 'get-sum', { a: 2, b: 40 }),
      { id: 'document', type: 'resource', server: 'everything', uri: 'demo://resource/static/document/architecture.md' },
      { id: 'ask', type: 'prompt', server: 'everything', prompt_name: 'args-prompt', arguments: { city: '{{variables.input.city}}' } },
    ] },
    { id: 'others', type: 'forEach', items: '{{variables.input.cities}}', maxConcurrent: 1, steps: [tool('other', 'memory', 'create_entities', entity('{{item}}'))] },
    { id: 'poll', type: 'loop', max_iterations: 200, delay_seconds: 0.1, until: "{{page.output.content}} contains 'ready'", steps: [
      tool('page', 'files', 'read_text_file', { path: page }),
    ] },
    tool('late', 'files', 'read_text_file', { path: late }, { retry: { max_attempts: 20, delay_seconds: 0.3 } }),
    tool('missing', 'files', 'read_text_file', { path: `${files}/missing.txt` }, { on_error: 'instead' }),
    tool('instead', 'everything', 'echo', { message: 'nothing was there' }),
    { id: 'warm', type: 'switch', cases: [{ when: '{{weather.output.temperature}} > 20', steps: [tool('warning', 'everything', 'echo', { message: 'it is warm' })] }],
      else: [tool('cold', 'everything', 'echo', { message: 'it is cold' })] },
    tool('write', 'files', 'write_file', {
      workflowId: '{{variables.input.change}}', path: report,
      content: '{{variables.input.city}}: {{weather.output.temperature}}, {{warm.output}}; {{late.output.content}}; {{missing.output}}',
    }),
    tool('tell', 'everything', 'echo', { message: 'the report is written' }, { save_output_to: 'variables.output.told' }),
    tool('known', 'memory', 'read_graph', {}, { save_output_to: 'variables.output.graph' }),
  ],
  conditionals: { told: { condition: "{{write.output.content}} contains 'Successfully'", if_true: ['tell'], if_false: [] } },
};

rmSync(folder, { recursive: true, force: true });
mkdirSync(files, { recursive: true });
writeFileSync(page, 'not yet');
writeFileSync(`${folder}/change.json`, JSON.stringify({
  name: 'change',
  initialState: 'planning',
  states: {
    planning: { transitions: { propose: { target: 'proposed', requiredFields: ['path'], freezes: ['/path'] } } },
    proposed: { transitions: { approve: { target: 'approved', roles: ['reviewer'] } } },
    approved: { transitions: { finish: 'done' } },
    done: { final: true, outcome: 'success' },
  },
}));
writeFileSync(`${folder}/chain.json`, JSON.stringify(chain));
const everything = [{ tools: ['*'], resources: ['*'], prompts: ['*'] }];
writeFileSync(`${folder}/gavel.yaml`, JSON.stringify({
  definitions: ['change.json'],
  upstreams: {
    files: { command: [...server('filesystem'), files], allow: everything },
    memory: { command: server('memory'), set: { MEMORY_FILE_PATH: `${folder}/memory.jsonl` }, allow: everything },
    everything: { command: server('everything'), allow: everything },
  },
  gates: [{ tool: 'files__write_file', workflow: 'change', states: ['approved'], bind: { '/path': '/path' }, maxCalls: 1 }],
  chains: { definitions: ['chain.json'], repeatable: ['files/read_text_file'] },
}));

/** command runs gavel, and returns what it prints. */
function command(...args) {
  const { status, stdout, stderr } = spawnSync(gavel, args, { encoding: 'utf8' });
  assert.equal(status, 0, `gavel ${args.join(' ')}: ${stdout}${stderr}`);
  return stdout;
}

command('upstream', 'pin', '--all', '--config', `${folder}/gavel.yaml`);
command('chain', 'lint', `${folder}/chain.json`, '--config', `${folder}/gavel.yaml`, '--repeatable', 'files/read_text_file', '--strict');
const { url, tokens } = await serve(gavel, folder, { ann: 'agent', rita: 'reviewer', olga: 'operator' });

/** ask asks the REST interface as somebody. */
async function ask(who, path, body) {
  const answer = await fetch(url.replace(/mcp$/, `v1/${path}`), {
    method: body ? 'POST' : 'GET', body: body && JSON.stringify(body),
    headers: { Authorization: `Bearer ${tokens[who]}`, 'Content-Type': 'application/json' },
  });
  const json = await answer.json();
  assert(answer.ok, `${path}: ${JSON.stringify(json)}`);
  return json;
}

/** until asks where a run is until something holds of its steps. */
async function until(run, what, holds) {
  for (let tries = 0; tries < 300; tries++) {
    const now = await ask('ann', `runs/${run}`);
    if (holds((now.steps ?? []).map((s) => s.key))) return;
    assert.equal(now.status, 'running', `${what}: ${JSON.stringify(now)}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  throw new Error(`never: ${what}`);
}

const change = await ask('ann', 'instances', { type: 'change' });
await ask('ann', `instances/${change.id}/advance`, { action: 'propose', data: { path: report } });

const { run } = await ask('ann', 'runs', { chain: 'weather-report', input: { change: change.id } });
await until(run, 'the page is read a second time', (keys) => keys.includes('poll#2/page'));
writeFileSync(page, 'ready');
await until(run, 'what is late is tried a third time', (keys) => keys.includes('late~2'));
writeFileSync(late, 'late, but there');
const refused = await ask('ann', `runs/${run}/result?wait=30`);
assert.equal(refused.status, 'failed', JSON.stringify(refused));
assert.deepEqual([refused.error.step, refused.error.code], ['write', 'gate_closed'], JSON.stringify(refused.error));
assert.equal(existsSync(report), false);
const keys = refused.steps.map((s) => s.key);
for (const key of [
  'look/weather', 'look/remember', 'look/sum', 'look/document', 'look/ask', 'others#1/other', 'others#2/other', 'poll#2/page', 'late~3', 'missing!instead', 'warm/warning',
]) {
  assert(keys.includes(key), `${key} has not ended: ${keys}`);
}
console.log('ok   parallel, forEach, loop, retry, fallback and switch over three servers');
console.log('ok   write_file is refused before the approval');

await ask('rita', `instances/${change.id}/advance`, { action: 'approve', data: {} });
const again = await ask('olga', `runs/${run}/redrive`, { reason: 'The change is approved.' });
const done = await ask('olga', `runs/${again.run}/result?wait=30`);
assert.equal(done.status, 'done', JSON.stringify(done));
assert.equal(readFileSync(report, 'utf8'), 'New York: 33, Echo: it is warm; late, but there; Echo: nothing was there');
assert.equal(done.output.told, 'Echo: the report is written');
assert.deepEqual(done.output.graph.entities.map((e) => e.name).sort(), ['Chicago', 'Los Angeles', 'New York']);
console.log('ok   done after it, from the step that failed');

const log = readFileSync(`${folder}/memory.jsonl`, 'utf8').trim().split('\n');
assert.equal(log.length, 3, log.join('\n'));
// A run that was run again and done is not run again: its steps would be done twice.
assert.equal((await ask('olga', `runs/${run}/redrive`, { reason: 'Once more.' })).run, again.run);
console.log('ok   it is run again once');
command('verify', '--store', `${folder}/gavel.db`);
console.log('ok   the record of the runs verifies');
process.exit(0);
