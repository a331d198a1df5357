(data, context, evidence) => {
  const { tests, changed, added } = evidence;
  const refuse = reason => ({ valid: false, reason });
  if (changed.exitCode !== 0) return refuse('Test files changed since they were committed. Restore them: git checkout ' + context.commit + ' -- ' + changed.output.slice(0, 500).trim().split('\n').join(' '));
  if (added.output.trim() !== '') return refuse('Test files were added since. Remove them: ' + added.output.slice(0, 500));
  if (tests.exitCode !== 0) return refuse('Tests fail: ' + tests.output.slice(-500));
  return { valid: true };
}
