// Servers that end with this program.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** freePort returns a port of this machine that nobody listens at. */
export async function freePort() {
  return await new Promise((resolve) => {
    const s = createServer().listen(0, '127.0.0.1', () => { const { port } = s.address(); s.close(() => resolve(port)); });
  });
}

/** awaitListening returns the address of a server that was started, once it listens. */
export async function awaitListening(child, port) {
  process.on('exit', () => child.kill());
  const url = `http://127.0.0.1:${port}/mcp`;
  for (let tries = 0; tries < 300; tries++) {
    try { await fetch(url); return url; } catch { await new Promise((resolve) => { setTimeout(resolve, 100); }); }
  }
  throw new Error(`${child.spawnargs.join(' ')} does not listen`);
}

/** serve starts gavel serve with FOLDER/gavel.yaml, and returns its address and the tokens of
 *  principals, given with their roles. */
export async function serve(gavel, folder, roles) {
  const tokens = {};
  const file = ['--tokens', `${folder}/gavel.tokens`];
  for (const [name, role] of Object.entries(roles)) {
    const out = `${folder}/${name}.token`;
    const made = spawnSync(gavel, ['token', 'create', name, '--principal', name, '--role', role, '--out', out, ...file], { encoding: 'utf8' });
    assert.equal(made.status, 0, made.stderr);
    tokens[name] = readFileSync(out, 'utf8').trim();
  }
  const port = await freePort();
  const command = ['serve', '--listen', `127.0.0.1:${port}`, '--store', `${folder}/gavel.db`, '--config', `${folder}/gavel.yaml`, ...file];
  return { url: await awaitListening(spawn(gavel, command, { stdio: 'inherit' }), port), tokens };
}
