// Command gavel judges the moves of agents through workflows, before they happen,
// and keeps a record of every judgement.
//
// This package promises to be thin: it reads arguments and environment, wires the
// parts of the module together, and prints. It must never decide anything about a
// workflow itself. Results go to stdout and everything else to stderr, both through
// package term, which cleans them and names the exit codes. Under `gavel mcp` stdout belongs to the protocol alone.
package main

import (
	"context"
	"os"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func main() {
	worker.Main(workflow.AnswerLintRequest)
	if evidence.Watch(os.Args, os.Stdin) {
		return
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
