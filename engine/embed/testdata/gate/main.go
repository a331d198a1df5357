package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/gavel-mcp/gavel/engine/embed"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func main() {
	worker.Main(workflow.AnswerLintRequest) // a process that runs scripts ends here
	gate, err := embed.Open(context.Background(), embed.Config{Store: "gavel.db", Definitions: []string{"release.yaml"}})
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	handler, err := gate.Handler(embed.HandlerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[1], handler))
}
