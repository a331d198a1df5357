// Package worker is the inside of the sandbox: a process that compiles and runs
// one stranger's script after the other and may be killed at any moment.
//
// It is the only package that contains a JavaScript interpreter. It promises that
// each script starts in a fresh runtime with the clock, random source and time
// zone of its request, and that nothing it returns is believed: the answer is
// read by a fixed contract and anything else is a fault. It must never be used in
// a process that has something to lose; [Main] is its only entry.
package worker
