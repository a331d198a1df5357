package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// TestAdvance: a refused move is an answer, a made one moves.
func TestAdvance(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := a.start(agent)
	refused := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"submit"}`).is(http.StatusOK))
	if refused.Decision.Applied || refused.State != "draft" || len(refused.Decision.Violations) == 0 {
		t.Errorf("a refused move: %+v", refused)
	}
	moved := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"submit","data":{"title":"T"}}`).is(http.StatusOK))
	if !moved.Decision.Applied || moved.State != "reviewing" {
		t.Errorf("a made move: %+v", moved)
	}
	parked := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"publish"}`).is(http.StatusOK))
	if parked.Review == nil || parked.State != "reviewing" {
		t.Errorf("a parked move: %+v", parked)
	}
	a.ask(stranger, "GET /v1/instances/"+id, "").is(http.StatusNotFound).problem(engine.CodeUnknownInstance)
	a.ask(agent, "GET /v1/instances/"+id, "").is(http.StatusOK)
}
