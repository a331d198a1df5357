// Checks tarballs of pack.mjs as a user meets them: installs them into a new folder
// without any network, and runs gavel through npx.
//
//   node packaging/npm/check.mjs --binary FILE [--walk SCRIPT] TARBALL...
//
// SCRIPT is a client that gets the server's command after --, such as
// testdata/clients/seed-walk.mjs.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';

const LONG = 60_000; // for what should take no second
const { values, positionals: tarballs } = parseArgs({ options: { binary: { type: 'string' }, walk: { type: 'string' } }, allowPositionals: true });
const dir = mkdtempSync(path.join(tmpdir(), 'gavel-npx-'));
const env = { ...process.env, npm_config_offline: 'true', npm_config_loglevel: 'error', npm_config_update_notifier: 'false' };
const npx = (...args) => ['npx', ['--no', '--', ...args]];

// A server is the first of a process group, to be ended with all that it started.
const bounded = { detached: process.platform !== 'win32', timeout: LONG, killSignal: 'SIGKILL' };
const started = [];
let checks = 0;
function check(what, ok, seen) {
  checks++;
  if (!ok) throw new Error(`${what}${seen === undefined ? '' : `: ${JSON.stringify(seen)}`}`);
}

function run([command, args]) {
  return new Promise((resolve) => {
    execFile(command, args, { cwd: dir, env, timeout: LONG }, (err, stdout, stderr) =>
      resolve({ code: err ? err.code : 0, signal: err?.signal ?? null, stdout, stderr }));
  });
}

async function install() {
  writeFileSync(path.join(dir, 'package.json'), '{"private":true}\n');
  const done = await run(['npm', ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...tarballs.map((t) => path.resolve(t))]]);
  check('npm install', done.code === 0, done);
  check('the commands are there', existsSync(path.join(dir, 'node_modules', '.bin', 'gavel-mcp')));
}

// What the binary prints and how it ends comes out the same.
async function same(...args) {
  const [through, direct] = [await run(npx('gavel', ...args)), await run([path.resolve(values.binary), args])];
  check(`gavel ${args.join(' ')}`, through.stdout === direct.stdout && through.code === direct.code, { through, direct });
}

// A client's first exchange, as npx in a client's configuration has it: without arguments.
async function handshake() {
  const [command, args] = npx('gavel-mcp');
  const server = spawn(command, args, { cwd: dir, env: { ...env, GAVEL_STORE: 'memory' }, stdio: ['pipe', 'pipe', 'inherit'], ...bounded });
  started.push(server);
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  const send = (message) => server.stdin.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n');
  const ask = async (id, method, params) => {
    send({ id, method, params });
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new Error(`gavel ended before it answered ${method}`);
      const message = JSON.parse(value);
      if (message.id === id) return message.result ?? message;
    }
  };
  const hello = await ask(1, 'initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'npm-check', version: '1' } });
  check('initialize', hello.serverInfo?.name === 'gavel', hello);
  send({ method: 'notifications/initialized' });
  const { tools } = await ask(2, 'tools/list', {});
  check('tools', tools?.some((t) => t.name === 'workflow.advance'), tools);
  const flow = { initialState: 'open', states: { open: { transitions: { close: 'closed' } }, closed: { final: true } } };
  await ask(3, 'tools/call', { name: 'workflow.define', arguments: { name: 'ticket', ...flow } });
  const listed = await ask(4, 'tools/call', { name: 'workflow.list', arguments: {} });
  check('a workflow is defined', JSON.stringify(listed).includes('ticket'), listed);
  server.stdin.end();
  const [code, signal] = await once(server, 'exit');
  check('it ends with its input', code === 0, { code, signal });
  return tools.length;
}

// The launcher passes SIGTERM on, waits for what gavel still does, and ends as it did.
async function signals() {
  const launcher = path.join(dir, 'node_modules', 'gavel-mcp', 'bin', 'gavel.js');
  const args = [launcher, 'serve', '--auth', 'none', '--listen', '127.0.0.1:0', '--store', 'memory'];
  const server = spawn(process.execPath, args, { cwd: dir, env, stdio: ['ignore', 'pipe', 'pipe'], ...bounded });
  started.push(server);
  server.stdout.resume();
  let address = '';
  for await (const line of createInterface({ input: server.stderr })) {
    address = line.match(/http:\/\/127\.0\.0\.1:\d+/)?.[0] ?? '';
    if (address) break;
  }
  check('it says where it listens', address);
  check('it answers', (await fetch(`${address}/healthz`)).ok);
  server.kill('SIGTERM');
  const [code, signal] = await once(server, 'exit');
  check('SIGTERM ends it as it ends gavel', code === 0, { code, signal });
  check('nobody listens any more', await fetch(`${address}/healthz`).then(() => false, () => true));
}

// A foreign client's walk through the tools.
async function walk(script) {
  const done = await run([process.execPath, [path.resolve(script), '--', ...npx('gavel-mcp', 'mcp', '--store', 'walk.db').flat()]]);
  check('the walk', done.code === 0, done);
}

try {
  await install();
  await same('version');
  await same('version', '--json');
  await same('lint', 'no-such-file.json');
  await same('lint');
  const tools = await handshake();
  await signals();
  if (values.walk) await walk(values.walk);
  console.log(`ok: ${checks} checks, ${tools} tools over npx`);
} catch (err) {
  console.error(`FAIL ${err.message}`);
  process.exitCode = 1;
} finally {
  for (const server of started) {
    try { process.kill(bounded.detached ? -server.pid : server.pid, 'SIGKILL'); } catch { /* it ended by itself */ }
  }
  rmSync(dir, { recursive: true, force: true });
}
