package telemetry_test

import (
	"bytes"
	"flag"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/judge/llm"
)

var update = flag.Bool("update", false, "write testdata")

// parse parses a page as Prometheus does.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus could not read this: %v\n%s", err, text)
	}
	return families
}

// TestPageIsTheSame guards gavel's names, kinds, help texts, labels and buckets, which are an interface. It ignores
// values that depend on the machine.
func TestPageIsTheSame(t *testing.T) {
	text := scrape(t, everything())
	for name, family := range parse(t, text) {
		if family.GetHelp() == "" || family.GetType() == dto.MetricType_UNTYPED {
			t.Errorf("%s has kind %v and help %q", name, family.GetType(), family.GetHelp())
		}
	}
	text = regexp.MustCompile(`(?m)^(# \w+ )?(go|process)_.*\n`).ReplaceAllString(text, "")
	got := regexp.MustCompile(`(?m)^(gavel_http_request_seconds\S+) \S+$`).ReplaceAllString(text, "$1")
	golden := filepath.Join("testdata", "page.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(got)) {
		t.Errorf("%s differs (see with -update and git diff):\n%s", golden, got)
	}
}

// Prometheus reads labels and numbers unchanged, whatever they contain.
func TestPageOfOddValues(t *testing.T) {
	names := []string{"plain", `a"b`, `back\slash`, "two\nlines", `\n`, "}", "", "ü,{", "\xff"}
	m := telemetry.NewMetrics(`v"1\`, telemetry.Sources{
		Model: func() llm.Stats {
			s := llm.Stats{CostUSD: math.Inf(1), PromptTokens: math.MaxInt64}
			for _, name := range names {
				s.Models = append(s.Models, llm.ModelStats{Name: name})
			}
			return s
		},
	})
	families := parse(t, scrape(t, m))
	var got []string
	for _, one := range families["gavel_model_latched"].GetMetric() {
		got = append(got, one.GetLabel()[0].GetValue())
	}
	want := append(slices.Clone(names[:len(names)-1]), "\uFFFD")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the models %q came out as %q", want, got)
	}
	if cost := families["gavel_model_cost_usd_total"].GetMetric()[0].GetCounter().GetValue(); !math.IsInf(cost, 1) {
		t.Errorf("an endless cost came out as %v", cost)
	}
	if version := families["gavel_build_info"].GetMetric()[0].GetLabel()[0].GetValue(); version != `v"1\` {
		t.Errorf("the version came out as %q", version)
	}
}

// With concurrent updates, counts are right and every page is complete.
func TestManyCountAtOnce(t *testing.T) {
	const each, counting = 500, 8
	m := telemetry.NewMetrics("", telemetry.Sources{})
	served := m.Instrument(http.NotFoundHandler())
	var all sync.WaitGroup
	for range counting {
		all.Go(func() {
			for i := range each {
				served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/mcp", nil))
				if i%100 == 0 {
					parse(t, scrape(t, m))
				}
			}
		})
	}
	all.Wait()
	families := parse(t, scrape(t, m))
	h := families["gavel_http_request_seconds"].GetMetric()[0].GetHistogram()
	last := h.GetBucket()[len(h.GetBucket())-1]
	if n := families["gavel_http_requests_total"].GetMetric()[0].GetCounter().GetValue(); n != each*counting || h.GetSampleCount() != each*counting || last.GetCumulativeCount() != each*counting {
		t.Errorf("%d requests were counted as %v, with %d times and %d in the last bucket", each*counting, n, h.GetSampleCount(), last.GetCumulativeCount())
	}
}

// A value on a bucket's bound belongs to that bucket.
func TestBoundsBelongToTheirBuckets(t *testing.T) {
	m := telemetry.NewMetrics("", telemetry.Sources{})
	for _, size := range []int{64, 65, 1 << 20, 1<<20 + 1} {
		m.Changed(t.Context(), record.Instance{Context: make([]byte, size)})
	}
	wantLines(t, scrape(t, m),
		`gavel_context_bytes_bucket{le="64"} 1`, `gavel_context_bytes_bucket{le="256"} 2`, `gavel_context_bytes_bucket{le="1.048576e+06"} 3`,
		`gavel_context_bytes_bucket{le="+Inf"} 4`, `gavel_context_bytes_count 4`, `gavel_context_bytes_sum 2.097282e+06`)
}
