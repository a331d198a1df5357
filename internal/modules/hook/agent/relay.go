package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// relayed is what gavel hook --server sends: the client's event, and what only the client's machine knows.
// The server opens, lists and resolves no file that an event names.
type relayed struct {
	Event    json.RawMessage `json:"event"`
	Project  string          `json:"project,omitempty"`
	Places   Places          `json:"places,omitzero"`
	Headless bool            `json:"headless,omitempty"`
	Said     *Said           `json:"said,omitempty"`
}

// EncodeRelayed encodes an event for a server, as the client wrote it and with what was looked up about it.
func EncodeRelayed(e Event, input []byte) ([]byte, error) {
	input = bytes.TrimLeft(input, "\ufeff") // like readInput
	return document.Marshal(relayed{Event: input, Project: e.Project, Places: e.Places, Headless: e.Headless, Said: e.Said})
}

// DecodeRelayed decodes the output of EncodeRelayed.
func (a *Adapter) DecodeRelayed(body []byte) (Event, error) {
	v, err := readInput(body)
	if err != nil {
		return Event{}, err
	}
	for name := range v.Members() {
		if !slices.ContainsFunc([]string{"event", "project", "places", "headless", "said"}, name.Is) {
			return Event{}, fmt.Errorf("unknown key %q; the gavel that sends the event and the server must be of the same version", name.Text())
		}
	}
	var r relayed
	if err := json.Unmarshal(v.Raw(), &r); err != nil {
		return Event{}, err
	}
	e, err := a.Decode(r.Event)
	if err == nil && filepath.IsAbs(r.Project) {
		e.Project = r.Project
	}
	e.Places, e.Headless, e.Said = r.Places, r.Headless, r.Said
	return e, err
}
