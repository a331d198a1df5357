package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/script"
)

// page documents the metrics for operators.
const page = "../../docs/reference/metrics.md"

var (
	pageRow  = regexp.MustCompile("(?m)^\\| `(gavel_[a-z_]+)` \\| ([a-z]+) \\| ([a-z_, ]*)\\|")
	typeLine = regexp.MustCompile(`(?m)^# TYPE (gavel_[a-z_]+) ([a-z]+)$`)
	labels   = regexp.MustCompile(`([a-z_]+)="`)
)

// TestEveryMetricIsOnThePage guards names, kinds and labels, which are an interface: renaming one breaks users'
// alerts.
func TestEveryMetricIsOnThePage(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, row := range pageRow.FindAllStringSubmatch(string(raw), -1) {
		want = append(want, row[1]+" "+row[2]+" "+sorted(strings.Fields(strings.ReplaceAll(row[3], ",", " "))))
	}
	text := scrape(t, everything())
	var got []string
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		got = append(got, m[1]+" "+m[2]+" "+labelsOf(text, m[1]))
	}
	slices.Sort(want)
	slices.Sort(got)
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s does not say: %s", page, name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s says what there is not: %s", page, name)
		}
	}
}

// everything returns a registry in which every metric has a value.
func everything() *telemetry.Metrics {
	m := telemetry.NewMetrics("v0", telemetry.Sources{
		Model: func() llm.Stats {
			return llm.Stats{Errors: map[llm.Class]int{"timeout": 1}, Models: []llm.ModelStats{{Name: "m", Breaker: "closed"}}}
		},
		Health:        func() []telemetry.PartReport { return []telemetry.PartReport{{Name: "store", OK: true}} },
		Sandbox:       func() script.Stats { return script.Stats{} },
		Store:         func() store.Stats { return store.Stats{Failures: map[string]uint64{"disk_full": 1}} },
		Reviews:       func() (telemetry.ReviewStats, bool) { return telemetry.ReviewStats{}, true },
		ValuesRefused: func() int64 { return 0 },
		Streams:       func() int { return 0 },
		StreamLag:     func() (int64, time.Duration) { return 1, time.Second },
		Listener:      func() telemetry.ListenerStats { return telemetry.ListenerStats{} },
	})
	m.Committed(context.Background(), []record.Event{{Kind: record.Started, Decision: &record.Decision{Verdict: judge.Verdict{
		Outcome: judge.Approve, Opinions: []judge.Opinion{{Layer: judge.LayerScript, Outcome: judge.Approve}},
	}}}, {Kind: record.Settled, Call: &record.Call{Outcome: record.CallOK}}})
	m.Changed(context.Background(), record.Instance{})
	m.Instrument(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	return m
}

// labelsOf returns the label names of a metric, without those that a histogram adds.
func labelsOf(text, name string) string {
	var names []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.ContainsAny(rest[:1], "{_ ") && !strings.HasPrefix(rest, "_total_") {
			if rest[0] == '_' && !strings.HasPrefix(rest, "_bucket{") {
				continue // another, longer name
			}
			for _, l := range labels.FindAllStringSubmatch(rest, -1) {
				if l[1] != "le" && !slices.Contains(names, l[1]) {
					names = append(names, l[1])
				}
			}
		}
	}
	return sorted(names)
}

func sorted(names []string) string {
	slices.Sort(names)
	return strings.Join(names, " ")
}
