// Drives a server behind gavel whose tools have gates with the TypeScript SDK, as an agent would that skips steps,
// retries and reads what it is told. Prints a line for each step, and exits 0 when all went as it should.
//
//   node deploy-walk.mjs FOLDER -- COMMAND ARGS...
//
// FOLDER has the SDK in its node_modules; COMMAND is gavel with the configuration of gavel demo gateway.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const require = createRequire(resolve(process.argv[2], 'x.js'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const [command, ...args] = process.argv.slice(4);

const client = new Client({ name: 'gates', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));

const { tools } = await client.listTools(); // from here on the SDK checks answers against their schemas
const deploy = tools.find((t) => t.name === 'infra__deploy');
assert.ok(deploy.inputSchema.required.includes('workflowId') && deploy.inputSchema.required.includes('version'), JSON.stringify(deploy));

const begun = await client.callTool({ name: 'workflow.start', arguments: { type: 'release' } });
const workflowId = JSON.parse(begun.content[0].text).id;

// step calls a tool and checks its text, or that it failed with a text that has a code and a hint.
async function step(tool, input, want, hint = '', failed = hint !== '') {
  const a = await client.callTool({ name: `infra__${tool}`, arguments: tool === 'deployed' ? {} : { ...input, workflowId } });
  const said = a.content.map((c) => c.text).join('\n');
  assert.ok(said.includes(want) && said.includes(hint) && (a.isError ?? false) === failed, `${tool}: ${said}, want ${want} ${hint}`);
  console.log(`${tool}: ${want}`);
}

const version = { version: '1.4.0' };
await step('deploy', version, 'gate_closed', 'Next: call infra__authenticate.');
await step('validate', version, 'gate_closed', 'Next: call infra__authenticate.');
await step('authenticate', { user: 'ada' }, 'ada is logged in');
await step('validate', { version: '2.0.0' }, 'there is no quota', '', true);
await step('deploy', version, 'gate_closed', 'Next: call infra__reset.'); // error blocks
await step('reset', {}, 'it is as it was');
await step('authenticate', { user: 'ada' }, 'ada is logged in');
await step('validate', version, 'the resources of 1.4.0 are there');
await Promise.all([0, 1, 2].map(() => client.callTool({ name: 'infra__deploy', arguments: { ...version, workflowId } })));
await step('deployed', {}, 'deployed so far: 1.4.0');
await step('deploy', version, 'gate_closed', 'Start another one');
await client.close();
console.log('as it should be');
