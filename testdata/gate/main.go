package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func main() {
	worker.Main(workflow.AnswerLintRequest) // a process that runs scripts ends here
	gate, err := gavel.Open(context.Background(), gavel.Config{Store: "gavel.db", Definitions: []string{"release.yaml"}})
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	handler, err := gate.Handler(gavel.HandlerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[1], handler))
}
