(data, context, evidence) => {
  const { tests, head, uncommitted, changelog } = evidence;
  const refuse = reason => ({ valid: false, reason });
  if (head.output.trim() !== data.commit) return refuse('The last commit is ' + head.output.trim() + '. Release that one.');
  if (uncommitted.exitCode !== 0 || uncommitted.output.trim() !== '') return refuse('Commit or ignore: ' + uncommitted.output.slice(0, 500));
  const heading = line => line.startsWith('#') && line.split(/[^0-9.]+/).includes(context.version);
  if (changelog.exitCode !== 0 || !changelog.output.split('\n').some(heading)) return refuse('CHANGELOG.md of that commit has no heading for ' + context.version + '.');
  if (tests.exitCode !== 0) return refuse('Tests fail: ' + tests.output.slice(-500));
  return { valid: true };
}
