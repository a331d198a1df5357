package script_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/validators/script"
)

func Example() {
	pool, err := script.NewPool(script.Config{}) // main began with worker.Main()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	reply, err := pool.Run(context.Background(), script.Batch{
		Caller: "docs", Owner: script.Owner{ID: "docs"},
		Data: json.RawMessage(`{"comments": "ok"}`),
		Validators: []script.Script{
			{Name: "comments", Kind: script.Validator, Source: "(data) => ({ valid: data.comments.length >= 20, reason: 'say more' })"},
			{Name: "endless", Kind: script.Validator, Source: "(data) => { for (;;); }"},
		},
	})
	if err != nil {
		fmt.Println(err) // the sandbox itself failed: try again
		return
	}
	for _, r := range reply.Results {
		fmt.Println(r.Name, r.Code, r.Valid, r.Reason)
	}
	// Output:
	// comments ok false say more
	// endless timeout false
}
