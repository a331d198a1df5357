(data, context, evidence) => {
  const { tests, head, code, changed, added } = evidence;
  const refuse = reason => ({ valid: false, reason });
  if (head.output.trim() !== data.commit) return refuse('The last commit is ' + head.output.trim() + '. Commit the failing test, and name that commit.');
  if (code.exitCode > 1) return refuse('Commit the failing test in a commit of its own, after another one: ' + code.output.slice(0, 500));
  if (code.exitCode !== 0) return refuse('Commit the failing test alone. Besides tests, the folder differs from the commit before in: ' + code.output.slice(0, 500));
  if (changed.exitCode !== 0) return refuse('Test files are not as they were committed: ' + changed.output.slice(0, 500));
  if (added.output.trim() !== '') return refuse('Test files are not committed: ' + added.output.slice(0, 500));
  if (tests.exitCode === 0) return refuse('All tests pass, so none shows the bug. Write one that fails because of it.');
  if (!tests.output.includes(data.test)) return refuse('The tests fail, but their output does not name ' + data.test + ': ' + tests.output.slice(-500));
  return { valid: true };
}
