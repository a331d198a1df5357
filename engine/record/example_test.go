package record_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
)

// A history is sealed event by event. Each event has the hash of the previous one, so a later
// change is detected and located.
func Example() {
	var instance record.Instance
	var history []record.Event
	for _, e := range []record.Event{
		{Kind: record.Started, Instance: "wf-1", Workflow: "doc", Version: 1, To: "draft", Patch: json.RawMessage(`{"title":"A"}`)},
		{Kind: record.KindCancelled, Reason: "not needed"},
	} {
		e.Principal, e.Time = "local:agent", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		sealed, next, err := record.Seal(instance, e, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		history, instance = append(history, sealed), next
	}
	fmt.Println(instance.State, instance.Status, string(instance.Context))
	fmt.Println(record.Verify(each(history)))

	forged := slices.Clone(history)
	forged[1].Principal = "somebody:else"
	fmt.Println(record.Verify(each(forged)))
	// Output:
	// draft cancelled {"title":"A"}
	// <nil>
	// broken history: instance wf-1, event 2: its fields differ from its bytes
}
