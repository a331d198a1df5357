// Prepares a case that takes long to judge: defines a workflow whose routes together
// keep the sandbox busy for a tenth of a second or so, within every limit, and starts an instance.
//
//   node slow-case.mjs -- COMMAND ARGS...
//
// COMMAND is the server, with a store that is kept. Prints the arguments with which
// workflow.judge.validate is slow.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [command, ...args] = process.argv.slice(process.argv.indexOf('--') + 1);
const client = new Client({ name: 'slow-case', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));

async function call(name, input) {
  const answer = await client.callTool({ name, arguments: input });
  if (answer.isError) throw new Error(answer.content[0].text);
  return JSON.parse(answer.content[0].text);
}

// Counting, because the sandbox's clock stands still during a call. Many short conditions instead of a few
// long ones: each must end within 50 ms on a busy machine too.
const busy = '((n) => { while (n > 0) n--; return false; })(50000)';
await call('workflow.define', {
  name: 'slow-case',
  initialState: 'waiting',
  states: {
    waiting: { transitions: { go: [...Array(31).fill({ condition: busy, target: 'waiting' }), { condition: 'true', target: 'done' }] } },
    done: { final: true },
  },
});
const { id } = await call('workflow.start', { type: 'slow-case' });
await client.close();
console.log(JSON.stringify({ id, action: 'go' }));
