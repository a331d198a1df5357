// Package earlyworker runs the script worker before most of the program is initialised, if the process was started
// as one.
//
// Go initialises packages in the order of their paths, each as soon as its imports are initialised. This package
// imports only what runs scripts and schemas. So it runs before the stores, the metrics and the MCP protocol with
// its JSON Schema library are initialised. That halves a worker's start-up time. Package main imports it only for
// this effect.
//
// It must never import more; TestWorkerStartsEarly checks that.
package earlyworker

import (
	"os"

	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func init() {
	if !script.IsWorker(os.Args) || os.Args[0] != script.WorkerName {
		return // a worker that reads definitions needs more packages: it runs from main
	}
	// Initialisers are locked to a thread. There, each switch between goroutines would be a switch between
	// threads.
	go worker.Main()
	select {}
}
