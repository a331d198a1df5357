// Package earlyworker serves as a script worker, where this process was started as one, before
// most of the program is initialised.
//
// Go initialises packages in the order of their paths, each as soon as what it imports is
// initialised. This one imports no more than what runs scripts and schemas, so that its turn
// comes before the stores, the metrics and the protocol with its JSON Schema library: half of
// what a worker's start cost. Package main imports it for that effect alone. It must never import
// more: TestWorkerStartsEarly names what came before it.
package earlyworker

import (
	"os"

	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func init() {
	if !script.IsWorker(os.Args) || os.Args[0] != script.WorkerName {
		return // what reads definitions needs the whole program
	}
	// Initialisers are tied to a thread, where each hand-off between goroutines would be one
	// between threads.
	go worker.Main()
	select {}
}
