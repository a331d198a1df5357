// Plays the documented examples of the Generic DFA MCP server against a server that
// promises to keep its inputs and outputs field for field: "Complete Example Usage"
// (code-review) and "Document Review with Validation", with a restart in the middle.
//
//   node seed-walk.mjs -- COMMAND ARGS...
//   node seed-walk.mjs -- URL
//
// COMMAND is the server, or URL is where it listens; its store must be a file, and new.
// Prints one line for each
// step and closes with "N passed, N failed"; exits 0 when nothing failed.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import assert from 'node:assert/strict';

const [command, ...args] = process.argv.slice(process.argv.indexOf('--') + 1);
if (!command || !process.argv.includes('--')) {
  console.error('usage: node seed-walk.mjs -- (COMMAND ARGS... | URL)');
  process.exit(2);
}

// --- a session with the server -----------------------------------------------------

let client;
let log = ''; // what the server said on stderr, shown when something failed

async function connect() {
  let transport;
  if (/^https?:/.test(command)) {
    transport = new StreamableHTTPClientTransport(new URL(command));
  } else {
    transport = new StdioClientTransport({ command, args, stderr: 'pipe' });
    transport.stderr.on('data', (chunk) => { log += chunk; });
  }
  client = new Client({ name: 'seed-walk', version: '1.0.0' });
  await client.connect(transport);
  return (await client.listTools()).tools; // from here on the SDK checks answers against their schemas
}

async function disconnect() {
  const began = performance.now();
  await client.close(); // closes stdin, and sends a signal only after two seconds
  return performance.now() - began;
}

// call answers a tool call: the JSON in its text, as clients of the Generic DFA server read it. Structured
// content, where there is any, must be the same.
async function call(name, input, { refused = false } = {}) {
  const answer = await client.callTool({ name, arguments: input });
  const text = (answer.content ?? []).filter((c) => c.type === 'text').map((c) => c.text).join('\n');
  assert.equal(answer.isError ?? false, refused, `isError is ${answer.isError}: ${text}`);
  const json = JSON.parse(answer.content[0].text);
  if (answer.structuredContent !== undefined) assert.deepEqual(answer.structuredContent, json);
  return { ...json, text };
}

const refused = { refused: true };

// --- what the documentation promises of each answer ---------------------------------

const isActions = (v) => assert.ok(Array.isArray(v) && v.every((a) => typeof a === 'string'), `nextActions: ${JSON.stringify(v)}`);
const isText = (v, name) => assert.ok(typeof v === 'string' && v.length > 0, `${name}: ${JSON.stringify(v)}`);
const isTime = (v) => assert.match(v, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/, 'times are RFC 3339, UTC');

function isPosition(r, state, nextActions) {
  assert.equal(r.state, state);
  isActions(r.nextActions);
  assert.deepEqual([...r.nextActions].sort(), [...nextActions].sort());
  isText(r.progress, 'progress');
}

function isMove(r, state, nextActions, complete = false) {
  isPosition(r, state, nextActions);
  assert.equal(r.complete, complete);
}

function isJudgement(r, approved) {
  assert.equal(r.approved, approved);
  assert.ok(r.confidence >= 0 && r.confidence <= 1, `confidence: ${r.confidence}`);
  isText(r.reasoning, 'reasoning');
  assert.ok(Array.isArray(r.violations) && Array.isArray(r.suggestions));
  assert.equal(r.violations.length > 0, !approved, `violations: ${JSON.stringify(r.violations)}`);
}

function isRefusal(r, state, nextActions, pattern) {
  isMove(r, state, nextActions);
  assert.equal(r.decision.outcome, 'reject');
  assert.match(r.text, pattern);
}

// --- the steps ------------------------------------------------------------------------

let passed = 0;
let failed = 0;

async function step(name, run) {
  try {
    await run();
    passed++;
    console.log(`ok    ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL  ${name}: ${String(e?.message ?? e).replace(/\s+/g, ' ').slice(0, 500)}`);
  }
}

const codeReview = {
  name: 'code-review',
  description: 'Code review process',
  states: {
    submitted: { transitions: { assign: 'in_review' } },
    in_review: { transitions: { request_changes: 'changes_requested', approve: 'approved', reject: 'rejected' } },
    changes_requested: { transitions: { resubmit: 'in_review' } },
    approved: { final: true },
    rejected: { final: true },
  },
  initialState: 'submitted',
};

const documentReview = {
  name: 'document-review',
  description: 'Document review with strict validation',
  states: {
    draft: { transitions: { submit: 'reviewing' } },
    reviewing: { transitions: { approve: 'approved', reject: 'draft' } },
    approved: { final: true },
  },
  initialState: 'draft',
  judgeConfig: { enabled: true, strictMode: true, minConfidence: 0.8 },
  stateValidators: { reviewing: { requiredFields: ['documentId', 'reviewer'] } },
  transitionValidators: {
    approve: "(data, context) => ({ valid: data.comments?.length >= 20, confidence: 1.0, reason: 'Detailed comments required' })",
  },
};

const documented = ['define', 'list', 'start', 'advance', 'status', 'checkpoint', 'rollback', 'listCheckpoints',
  'judge.validate', 'judge.config', 'judge.history'].map((n) => `workflow.${n}`);

async function codeReviewWalk() {
  const author = { pr_number: 123, author: 'developer@example.com', files_changed: 5 };
  const inReview = ['approve', 'reject', 'request_changes'];
  let id;
  let checkpoint;
  let assigned;

  await step('code-review: define', async () => { await call('workflow.define', codeReview); });
  await step('code-review: list', async () => {
    const r = await call('workflow.list', {});
    assert.equal(r.count, r.workflows.length);
    const found = r.workflows.find((w) => w.name === codeReview.name);
    assert.equal(found?.description, codeReview.description);
  });
  await step('code-review: start', async () => {
    const r = await call('workflow.start', { type: 'code-review', context: author });
    ({ id } = r);
    assert.match(id, /^wf-/);
    isPosition(r, 'submitted', ['assign']);
  });
  await step('code-review: assign', async () => {
    assigned = { reviewer: 'senior@example.com', assigned_at: new Date().toISOString() };
    isMove(await call('workflow.advance', { id, action: 'assign', data: assigned }), 'in_review', inReview);
  });
  await step('code-review: status holds the merged context', async () => {
    const r = await call('workflow.status', { id });
    isMove(r, 'in_review', inReview);
    assert.deepEqual(r.context, { ...author, ...assigned });
  });
  await step('code-review: checkpoint', async () => {
    checkpoint = await call('workflow.checkpoint', { id, description: 'Before review decision', metadata: { by: 'seed-walk', round: 1 } });
    isText(checkpoint.checkpointId, 'checkpointId');
    assert.equal(checkpoint.workflowId, id);
    assert.equal(checkpoint.state, 'in_review');
    assert.equal(checkpoint.description, 'Before review decision');
    isTime(checkpoint.timestamp);
  });
  await step('code-review: request changes', async () => {
    const data = { comments: ['Please add tests', 'Update documentation'] };
    isMove(await call('workflow.advance', { id, action: 'request_changes', data }), 'changes_requested', ['resubmit']);
  });
  await step('code-review: an action of another state is refused', async () => {
    isRefusal(await call('workflow.advance', { id, action: 'approve' }, refused), 'changes_requested', ['resubmit'], /resubmit/);
  });
  await step('code-review: listCheckpoints, newest first', async () => {
    await call('workflow.checkpoint', { id });
    const r = await call('workflow.listCheckpoints', { id });
    assert.equal(r.workflowId, id);
    assert.equal(r.count, 2);
    assert.deepEqual(r.checkpoints.map((c) => c.state), ['changes_requested', 'in_review']);
    assert.equal(r.checkpoints[1].checkpointId, checkpoint.checkpointId);
    assert.deepEqual(r.checkpoints[1].metadata, { by: 'seed-walk', round: 1 });
  });
  await step('code-review: rollback', async () => {
    const r = await call('workflow.rollback', { id, checkpointId: checkpoint.checkpointId });
    isPosition(r, 'in_review', inReview);
    assert.deepEqual(r.context, { ...author, ...assigned });
    isText(r.message, 'message');
  });
  await step('code-review: approve instead', async () => {
    const data = { approved_at: new Date().toISOString(), merge_strategy: 'squash' };
    isMove(await call('workflow.advance', { id, action: 'approve', data }), 'approved', [], true);
  });
  await step('code-review: a finished instance refuses', async () => {
    const r = await call('workflow.advance', { id, action: 'reject' }, refused);
    isMove(r, 'approved', [], true);
    assert.equal(r.decision.outcome, 'reject');
  });
  await step('code-review: history', async () => {
    const r = await call('workflow.judge.history', { id });
    assert.equal(r.workflowId, id);
    assert.equal(r.count, r.decisions.length);
    const moves = r.decisions.filter((d) => d.action && d.outcome).map((d) => `${d.action} ${d.outcome}`);
    assert.deepEqual(moves, ['assign approve', 'request_changes approve', 'approve reject', 'approve approve', 'reject reject']);
  });
}

async function documentReviewWalk() {
  const submitted = { documentId: 'doc-7', reviewer: 'ada@example.com' };
  const reviewing = ['approve', 'reject'];
  const good = { comments: 'Checked the figures in section 2 against the source; they agree.' };
  let id;
  let checkpoint;

  await step('document-review: define', async () => { await call('workflow.define', documentReview); });
  await step('document-review: start', async () => {
    const r = await call('workflow.start', { type: 'document-review' });
    ({ id } = r);
    isPosition(r, 'draft', ['submit']);
  });
  await step('document-review: validate submit without its fields', async () => {
    const r = await call('workflow.judge.validate', { id, action: 'submit', data: {} });
    isJudgement(r, false);
    for (const field of ['documentId', 'reviewer']) {
      assert.ok(r.violations.some((v) => v.includes(field)), `no violation names ${field}: ${JSON.stringify(r.violations)}`);
    }
    assert.ok(r.suggestions.length > 0, 'a refusal suggests what to do');
  });
  await step('document-review: submit without its fields is refused', async () => {
    const r = await call('workflow.advance', { id, action: 'submit', data: {} }, refused);
    isRefusal(r, 'draft', ['submit'], /documentId[^]*reviewer|reviewer[^]*documentId/);
  });
  await step('document-review: validate submit with its fields', async () => {
    const r = await call('workflow.judge.validate', { id, action: 'submit', data: submitted });
    isJudgement(r, true);
    assert.equal(r.confidence, 1);
  });
  await step('document-review: validating moved nothing', async () => {
    const r = await call('workflow.status', { id });
    isMove(r, 'draft', ['submit']);
    assert.deepEqual(r.context, {});
  });
  await step('document-review: submit', async () => {
    isMove(await call('workflow.advance', { id, action: 'submit', data: submitted }), 'reviewing', reviewing);
  });
  await step('document-review: checkpoint', async () => {
    checkpoint = await call('workflow.checkpoint', { id, description: 'Before the verdict' });
    assert.equal(checkpoint.state, 'reviewing');
  });
  await step('document-review: approve without comments is refused', async () => {
    isRefusal(await call('workflow.advance', { id, action: 'approve', data: {} }, refused), 'reviewing', reviewing, /Detailed comments required/);
  });
  await step('document-review: approve with short comments is refused', async () => {
    isRefusal(await call('workflow.advance', { id, action: 'approve', data: { comments: 'LGTM' } }, refused), 'reviewing', reviewing, /Detailed comments required/);
  });

  await step('restart: the server ends by itself when its input ends', async () => {
    const ms = await disconnect();
    assert.ok(ms < 1800, `it took ${ms.toFixed(0)} ms and a signal`);
  });
  await step('restart: a new server answers', async () => { await connect(); });
  await step('restart: definitions, state, context and checkpoints are there', async () => {
    const list = await call('workflow.list', {});
    for (const name of ['code-review', 'document-review']) {
      assert.ok(list.workflows.some((w) => w.name === name), `${name} is gone`);
    }
    const r = await call('workflow.status', { id });
    isMove(r, 'reviewing', reviewing);
    assert.deepEqual(r.context, submitted);
    const c = await call('workflow.listCheckpoints', { id });
    assert.equal(c.checkpoints[0].checkpointId, checkpoint.checkpointId);
    assert.equal(c.checkpoints[0].timestamp, checkpoint.timestamp);
  });

  await step('document-review: validate approve with good comments', async () => {
    const r = await call('workflow.judge.validate', { id, action: 'approve', data: good });
    isJudgement(r, true);
    assert.equal(r.confidence, 1);
  });
  await step('document-review: approve with good comments', async () => {
    isMove(await call('workflow.advance', { id, action: 'approve', data: good }), 'approved', [], true);
  });
  await step('document-review: rollback to before the restart', async () => {
    const r = await call('workflow.rollback', { id, checkpointId: checkpoint.checkpointId });
    isPosition(r, 'reviewing', reviewing);
    assert.deepEqual(r.context, submitted);
    isText(r.message, 'message');
  });
  await step('document-review: judge.config', async () => {
    const r = await call('workflow.judge.config', { name: 'document-review', enabled: true, strictMode: false, minConfidence: 0.5 });
    assert.equal(r.success, true);
    isText(r.message, 'message');
    const { enabled, strictMode, minConfidence } = r.config;
    assert.deepEqual({ enabled, strictMode, minConfidence }, { enabled: true, strictMode: false, minConfidence: 0.5 });
  });
  await step('document-review: judge.config changes only what is given', async () => {
    const r = await call('workflow.judge.config', { name: 'document-review', enabled: true, minConfidence: 0.9 });
    const { enabled, strictMode, minConfidence } = r.config;
    assert.deepEqual({ enabled, strictMode, minConfidence }, { enabled: true, strictMode: false, minConfidence: 0.9 });
  });
  await step('document-review: history, oldest first, across the restart', async () => {
    const r = await call('workflow.judge.history', { id });
    assert.equal(r.workflowId, id);
    assert.equal(r.count, r.decisions.length);
    const told = r.decisions.filter((d) => d.action && d.outcome).map((d) => `${d.precheck ? 'validate ' : ''}${d.action} ${d.outcome}`);
    assert.deepEqual(told, [
      'validate submit reject', 'submit reject', 'validate submit approve', 'submit approve',
      'approve reject', 'approve reject', 'validate approve approve', 'approve approve',
    ]);
  });
}

try {
  const tools = await connect();
  await step('the documented tools are listed under their names', async () => {
    const names = tools.map((t) => t.name);
    assert.deepEqual(documented.filter((n) => !names.includes(n)), []);
  });
  await codeReviewWalk();
  await documentReviewWalk();
  await step('names with underscores are accepted too', async () => {
    assert.ok((await call('workflow_list', {})).count >= 2);
  });
} catch (e) {
  failed++;
  console.log(`FAIL  ${e?.message ?? e}`);
}
await disconnect().catch(() => {});
if (failed > 0 && log) console.log(`the server said:\n${log.slice(-4000)}`);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
