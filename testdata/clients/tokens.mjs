// Counts what a server costs a model in tokens: its list of tools and some answers.
//
//   node tokens.mjs [--before COMMAND] -- COMMAND
//
// COMMAND is a gavel program. Prints the table of docs/benchmarks.md: with --before, beside the
// figures of an older program. Exits 1 where a goal is missed.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ListToolsResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';

const at = process.argv.indexOf('--');
const now = process.argv[at + 1];
const older = process.argv.indexOf('--before');
const before = older > 0 && older < at ? process.argv[older + 1] : undefined;
if (at < 0 || !now) {
  console.error('usage: node tokens.mjs [--before COMMAND] -- COMMAND');
  process.exit(2);
}

// Nearly the definition of gavel init.
const documentReview = {
  name: 'document-review',
  initialState: 'draft',
  states: {
    draft: { transitions: { submit: 'reviewing' } },
    reviewing: {
      transitions: {
        approve: {
          target: 'approved',
          requiredFields: ['comments'],
          validator: "(data, context) => ({ valid: data.comments.length >= 20, reason: 'Say what was reviewed.' })",
        },
        reject: 'draft',
      },
    },
    approved: { final: true, outcome: 'success' },
  },
  stateValidators: { reviewing: { requiredFields: ['documentId', 'reviewer'] } },
  judgeConfig: { strictMode: true, minConfidence: 0.8 },
};

const sum = (texts) => texts.reduce((n, text) => n + countTokens(text), 0);
const text = (answer) => sum(answer.content.map((c) => c.text));
const structured = (answer) => (answer.structuredContent ? countTokens(JSON.stringify(answer.structuredContent)) : 0);

// connect starts a server whose client sees every tool: reviews are on, and it may resolve them. Definitions are an
// operator's, as those of --definitions.
async function connect(command, flags) {
  const transport = new StdioClientTransport({ command, args: ['mcp', '--store', 'memory', '--role', 'operator', ...flags], stderr: 'ignore' });
  const client = new Client({ name: 'tokens', version: '1.0.0' });
  await client.connect(transport);
  return client;
}

async function listTools(command, flags) {
  const client = await connect(command, flags);
  const { tools } = await client.request({ method: 'tools/list' }, ListToolsResultSchema);
  await client.close();
  return { count: tools.length, tokens: countTokens(JSON.stringify(tools)) };
}

// playAnswers plays the steps, and counts the text and the structured content of each answer.
async function playAnswers(command, flags) {
  const client = await connect(command, flags);
  const call = (name, input) => client.callTool({ name, arguments: input });
  const json = (answer) => answer.structuredContent ?? JSON.parse(answer.content[0].text);
  await call('workflow.define', documentReview);
  const start = await call('workflow.start', { type: 'document-review' });
  const { id } = json(start);
  const answers = {
    start,
    'refusal, two findings': await call('workflow.advance', { id, action: 'submit' }),
    'refusal, wrong state': await call('workflow.advance', { id, action: 'approve' }),
    move: await call('workflow.advance', { id, action: 'submit', data: { documentId: 'DOC-7', reviewer: 'ada' } }),
    'refusal by the validator': await call('workflow.advance', { id, action: 'approve', data: { comments: 'LGTM' } }),
    question: await call('workflow.judge.validate', { id, action: 'approve', data: { comments: 'LGTM' } }),
    status: await call('workflow.status', { id }),
    history: await call('workflow.judge.history', { id }),
  };
  await client.close();
  return Object.fromEntries(Object.entries(answers).map(([name, answer]) => [name, { text: text(answer), structured: structured(answer) }]));
}

const rows = [];
const missed = [];
function row(what, figure, goal, old) {
  rows.push([what, old ?? '', figure, goal ? `under ${goal}` : '']);
  if (goal && !(figure < goal)) missed.push(what);
}

for (const [set, goal] of [['core', 2500], ['seed', 4500], ['all', 7000]]) {
  const listed = await listTools(now, ['--toolset', set]);
  row(`\`tools/list\`, \`--toolset ${set}\` (${listed.count} tools)`, listed.tokens, goal);
}
row('`tools/list`, all, `--output-schemas`', (await listTools(now, ['--output-schemas'])).tokens, 0, before && (await listTools(before, [])).tokens);
const was = before && (await playAnswers(before, []));
const json = await playAnswers(now, []);
const goals = { start: 150, 'refusal, two findings': 180, 'refusal, wrong state': 180, 'refusal by the validator': 180 };
for (const name of Object.keys(json)) {
  const all = ({ text: t, structured: s }) => t + s;
  row(`${name}, whole answer`, all(json[name]), goals[name], was && all(was[name]));
}

console.log(`| | ${before ? 'before | ' : ''}tokens | goal |`);
console.log(`|---|${before ? '--:|' : ''}--:|---|`);
for (const [what, old, figure, goal] of rows) {
  console.log(`| ${[what, ...(before ? [old] : []), figure, goal].join(' | ')} |`);
}
if (missed.length > 0) {
  console.error(`missed: ${missed.join('; ')}`);
  process.exit(1);
}
