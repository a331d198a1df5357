// Package evidence fetches facts from where an operator said that they are: a
// command that runs here, an address that is read. It is the judge's Fetcher.
//
// It promises that whoever asks for a move chooses arguments and nothing else. A
// command has the arguments that its operator wrote, as many as he wrote, and no
// shell ever reads them; an argument that came from outside never becomes an
// option. An address keeps its scheme, host, path and query keys, whatever is put
// into it, and by default leads to no private network, however a name resolves and
// wherever a redirect points: the check is at the dial. Everything is bounded: time,
// memory, what is read, how many run at once. A command runs in a session of its own,
// without a terminal and without a file of gavel's, and what it starts and leaves in its
// process group ends with it, also when this process is killed (see Watch).
//
// What cannot be had is a judge.Fetched with a Failure, in one sentence without
// values of arguments and without what was fetched. Any exit code is a result: a
// failing test is evidence.
//
// It must never log, pass on an environment variable or a header that no operator
// named, or take a half-fetched JSON value for a whole one.
package evidence
