(data, context, evidence) => {
  const name = 'v' + context.version;
  const command = data.command.match(/^git push (?:--atomic )?origin (?:[\w./-]+ )?(\S+)$/);
  if (!command || command[1] !== name) return { valid: false, reason: 'Run "git push origin ' + name + '" or "git push origin BRANCH ' + name + '", and nothing else in that line.' };
  const same = [evidence.head, evidence.tag].every(e => e.exitCode === 0 && e.output.trim() === context.commit);
  return { valid: same, reason: 'The last commit and the tag ' + name + ' are no longer ' + context.commit + ', which was checked. Withdraw the release.' };
}
