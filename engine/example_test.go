package engine_test

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

func ExampleEngine() {
	compiler := validators.NewCompiler(pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler})
	if err != nil {
		panic(err)
	}
	e, err := engine.New(engine.Config{
		Store: memory.New(), Judge: pipeline, Compiler: compiler,
		Digester: record.NewDigester([]byte("a key of 32 bytes for the example")),
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	ada := engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	if _, err := e.Define(ctx, ada, engine.DefineRequest{Source: "example", Document: []byte(documentReview)}); err != nil {
		panic(err)
	}
	s, err := e.Start(ctx, ada, engine.StartRequest{Type: "document-review"})
	if err != nil {
		panic(err)
	}
	for _, data := range []string{`{"documentId":"D-1"}`, `{"documentId":"D-1","reviewer":"rob"}`} {
		r, err := e.Advance(ctx, ada, engine.AdvanceRequest{ID: s.ID, Action: "submit", Data: document.ReadTrusted([]byte(data))})
		if err != nil {
			panic(err)
		}
		fmt.Println(r.State, r.Decision.Outcome, r.Decision.Confidence, r.Decision.Assurance, r.Decision.Violations)
	}
	// Output:
	// draft reject 1 structural ["reviewer" is required]
	// reviewing approve 1 structural []
}
