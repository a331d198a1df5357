package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/operation"
)

func init() {
	if extra.services == nil {
		extra.services = map[string]any{}
	}
	extra.services[measure.LabelService] = measure.LabelReader(func(_ context.Context, _ operation.Call, req measure.LabelsRequest) (measure.LabelsResult, error) {
		return measure.LabelsResult{
			Cases: []json.RawMessage{json.RawMessage(`{"id":"dec-1"}`)}, Count: req.Limit, LeftOut: []measure.LeftOut{{Count: 2, Why: req.Workflow}}, NextCursor: "7",
		}, nil
	})
	extra.steps = append(extra.steps, step{"GET /v1/labels?workflow=paper&limit=1&since=2026-03-01T00:00:00Z", "", http.StatusOK})
}

// Those who are judged do not read what persons decided about others.
func TestAgentsReadNoLabels(t *testing.T) {
	a := newAPI(t)
	a.ask(agent, "GET /v1/labels", "").is(http.StatusForbidden)
}
