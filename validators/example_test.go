package validators_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

func Example() {
	// A program whose main begins with worker.Main() is its own sandbox.
	pool, err := script.NewPool(script.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	compiler := validators.NewCompiler(pool, validators.Options{})

	set, problems, err := compiler.Compile(context.Background(), "agent-7", validators.Owner{ID: "operator", Trusted: true}, validators.Checks{
		RequiredFields: []string{"comments", "document.id"},
		Schema:         json.RawMessage(`{"properties": {"score": {"type": "integer", "maximum": 5}}}`),
		Validators: []script.Script{{
			Name: "long enough", Kind: script.Validator,
			Source: `(data) => ({ valid: data.comments.length >= 20, reason: "say what you reviewed" })`,
		}},
	})
	if err != nil || len(problems) > 0 {
		fmt.Println(problems, err)
		return
	}
	data := json.RawMessage(`{"comments": "fine", "score": 7}`)
	for _, f := range set.CheckFields(document.ReadTrusted(data)) {
		fmt.Println(f.Code, f.Path, f.Message)
	}
	report, err := set.CheckSchema(context.Background(), "agent-7", document.ReadTrusted(data))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		fmt.Println(f.Code, f.Path, f.Message)
	}
	reply, err := set.RunScripts(context.Background(), validators.Input{Caller: "agent-7", Data: data})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Results[0].Valid, reply.Results[0].Reason)
	// Output:
	// required_field /document/id "document.id" is required
	// schema /score "/score" must be at most 5
	// false say what you reviewed
}
