(data, context, evidence) => {
  const name = 'v' + context.version;
  const command = data.command.match(/^git tag (?:-[as] )?(\S+)(?: -m (?:"[^"$`\\]*"|'[^']*'))?$/);
  if (!command || command[1] !== name) return { valid: false, reason: 'Run "git tag ' + name + '" or "git tag -a ' + name + ' -m \'WORDS\'", and nothing else in that line.' };
  return { valid: evidence.head.output.trim() === context.commit, reason: 'The last commit is no longer ' + context.commit + ', which was checked. Restart.' };
}
