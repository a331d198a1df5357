// One server of the chaining document on the TypeScript SDK: document-server.mjs NAME. Each call is a line of the file CALLS.
import { execFileSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { ListResourcesRequestSchema, ReadResourceRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const name = process.argv[2];
const server = new McpServer({ name, version: '1' });
const note = (called, args) => appendFileSync(process.env.CALLS, `${JSON.stringify({ name: called, arguments: args })}\n`);
// Code of the document may write files; here it writes none.
const RUN = 'import builtins, io, sys; builtins.open = lambda *a, **k: io.StringIO(); exec(sys.argv[1], {})';

/** tool registers a tool that answers with a text, and with isError where it throws. */
function tool(called, inputSchema, answer) {
  server.registerTool(called, { description: called, inputSchema }, (args) => {
    note(called, args);
    return { content: [{ type: 'text', text: answer(args) }] };
  });
}

/** prompt registers a prompt of one message. */
function prompt(called, argument, words) {
  server.registerPrompt(called, { description: called, argsSchema: { [argument]: z.string() } }, (args) => {
    note(called, args);
    return { messages: [{ role: 'user', content: { type: 'text', text: words + args[argument] } }] };
  });
}

const text = z.string().default('');
if (name === 'vision-agent-mcp') {
  let shots = 0;
  tool('navigate', { url: z.string() }, ({ url }) => {
    if (url.includes('down')) throw new Error('the site is down');
    return `at ${url}`;
  });
  tool('screenshot', {}, () => `/tmp/shot-${++shots}.png${shots > 1 ? ' Expected Text' : ''}`);
  tool('verify', { text, url: text, page: text, at: text, before: z.any().optional() }, (args) => (args.text === 'Error' ? 'the page has an Error' : `OK ${args.url || args.text || args.page}`));
  tool('fill_form', { url: z.string(), fields: z.record(z.string(), z.string()) }, ({ fields }) => `filled ${Object.keys(fields).length} fields`);
  tool('alert', { message: z.string() }, () => 'alerted');
  // McpServer takes no resource whose URI has no scheme, as that of the document; the server below it does.
  const uri = 'screenshots/latest';
  server.server.registerCapabilities({ resources: {} });
  server.server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [{ uri, name: 'latest' }] }));
  server.server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => {
    note(params.uri, {});
    return { contents: [{ uri: params.uri, text: 'page text' }] };
  });
  prompt('send_alert', 'message', 'ALERT ');
  prompt('analyze_dashboard', 'dashboard_url', 'Look at ');
  prompt('compare_multiple_sites', 'sites', 'Compare ');
} else if (name === 'code-mcp') {
  tool('execute', { code: z.string() }, ({ code }) => {
    try {
      return execFileSync('python3', ['-c', RUN, code], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
    } catch (e) {
      throw new Error(String(e.stderr).trim().split('\n').pop());
    }
  });
  tool('write_input', { uri: z.string(), data: z.string() }, () => 'written');
} else {
  prompt('summarize', 'text', 'In short: ');
}
await server.connect(new StdioServerTransport());
