// Package script runs what strangers wrote: the validators and route conditions
// of workflow definitions.
//
// It is the host half of the sandbox. It promises that no script can make this
// process hang, crash, grow, read a file or leak into the next call, and that
// anything but a clean answer from a script blocks the transition (fail closed).
// It keeps the promise by never looking inside a script: after a cheap [gate] of
// size and shape, source and input go to a worker process with hard limits, and
// what comes back is checked again. The interpreter lives in the package worker
// and must never be called from here.
//
// The worker is a re-execution of a binary whose main (or TestMain) begins with
// worker.Main(). By default that is the running program itself:
//
//	func main() {
//		worker.Main() // serves and exits when started as a worker, else returns at once
//		...
//	}
//
//	func TestMain(m *testing.M) {
//		worker.Main() // the test binary is its own worker
//		os.Exit(m.Run())
//	}
//
// A program that cannot do so sets [Config].WorkerPath to a binary that can,
// for example gavel itself.
//
// [gate]: the checks of source length, encoding and nesting in this package
package script
