#!/usr/bin/env node
// Starts the gavel of this platform and stays out of its way: the same stdin, stdout and
// stderr, the same signals, the same end. It downloads nothing and has no settings.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const fs = require('node:fs');
const path = require('node:path');
const { isatty } = require('node:tty');

const platform = `${process.platform}-${process.arch}`;
const file = process.platform === 'win32' ? 'gavel.exe' : 'gavel';

// binary is in this package, or in the optional dependency of this platform.
function binary() {
  const here = path.join(__dirname, '..', 'native', platform, file);
  if (fs.existsSync(here)) return here;
  try {
    return require.resolve(`gavel-mcp-${platform}/${file}`);
  } catch {
    fail(`There is no gavel for ${platform} in this installation.\n` +
      'Install again without --omit=optional, or build one: git clone https://github.com/gavel-mcp/gavel && make -C gavel build');
  }
}

function fail(message) {
  fs.writeSync(2, `gavel-mcp: ${message}\n`);
  process.exit(3); // could not find out
}

// Not process.stdin.isTTY and the like: to look at those makes Node open the streams, and
// a pipe that is shared with the child would stop blocking under it.
const terminal = [0, 1, 2].some((fd) => isatty(fd));

const child = spawn(binary(), process.argv.slice(2), { stdio: 'inherit' });
child.on('error', (err) => fail(`cannot start ${child.spawnfile}: ${err.message}`));

// What a terminal sends goes to the child as well as to us; passed on, it would arrive
// twice, and a second one means "at once".
const passed = { SIGTERM: true, SIGINT: !terminal, SIGHUP: !terminal, SIGQUIT: !terminal };
for (const [signal, pass] of Object.entries(passed)) {
  if (process.platform === 'win32' && signal !== 'SIGINT') continue; // there it would kill
  process.on(signal, () => { if (pass && process.platform !== 'win32') child.kill(signal); });
}

child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal); // end as it ended
  process.kill(process.pid, signal);
  setTimeout(() => process.exit(128 + constants.signals[signal]), 1000); // where that did not end us
});
