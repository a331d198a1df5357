package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// fairCalls is the number of calls by the honest caller in each part: a sample in ordinary tests. make
// bench-fairness sets more.
var fairCalls = flag.Int("fairness.calls", 6, "calls of the honest caller in each part of TestNoisyNeighbour")

const (
	noisyCallers = 16                     // connections of the noisy caller
	maxSlowdown  = 10                     // maximum p95 next to a noisy caller, as a multiple of the quiet p95
	usualSlower  = 3                      // likewise p50; it is exceeded if the callers share one queue
	quietFloor   = 50 * time.Millisecond  // below it, ratios measure the machine
	modelTime    = 100 * time.Millisecond // the model's response time
	fairConns    = 128                    // maximum connections of the server; half as many concurrent requests
)

// sharedWorkflow is an operator's definition for all callers. Each action uses one shared resource.
const sharedWorkflow = `{"name":"shared","initialState":"a","states":{"a":{"transitions":{
	"plain":{"target":"a","requiredFields":["n"]},
	"script":{"target":"a","validator":"(data) => { let sum = 0; for (let i = 0; i < data.rounds; i++) sum += i; return { valid: sum >= 0 } }"},
	"quick":{"target":"a","evidence":[{"name":"fact","source":"quick"}]},
	"slow":{"target":"a","evidence":[{"name":"fact","source":"slow"}]},
	"model":{"target":"a","useLLM":true,"criteria":["The text says what was done"]},
	"stop":"end"}},"end":{"final":true}}}`

// neighbour is a shared resource, with the honest caller's use of it and the noisy caller's load on it.
type neighbour struct {
	shares string
	honest string // the data of a move; its member action names the action
	noise  func(f *fairness, ctx context.Context)
}

var neighbours = []neighbour{
	{"request slots", `{"action":"plain","data":{"n":1}}`, (*fairness).sendHalfRequests},
	{"sandbox", `{"action":"script","data":{"rounds":10}}`, validateNoise(`{"action":"script","data":{"rounds":500000}}`)},
	{"evidence", `{"action":"quick","data":{}}`, validateNoise(`{"action":"slow","data":{}}`)},
	{"readers", `{"action":"plain","data":{"n":1}}`, readNoise("/v1/events?after=0&limit=1000", "/v1/decisions?limit=1000")},
	{"statistics", `{"action":"plain","data":{"n":1}}`, readNoise("/v1/decisions/statistics")},
	{
		"model", `{"action":"model","data":{"text":"The pump of unit %d was replaced and tested for an hour."}}`,
		validateNoise(`{"action":"model","data":{"text":"The valve of unit %d was cleaned, and nobody has tested it."}}`),
	},
}

// fairness is a server with an honest and a noisy caller. Each is an agent with its own token.
type fairness struct {
	*served
	honest, noisy   string
	instance, other string // of the honest and the noisy caller
	calls           atomic.Int64
}

func startFairness(t *testing.T) *fairness {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "gavel.yaml")
	sources := "evidence: {sources: {quick: {readOnly: true, command: [sh, -c, 'echo fine']}, slow: {readOnly: true, command: [sh, -c, 'sleep 2; echo fine']}}}\n"
	if err := os.WriteFile(config, []byte(sources), 0o600); err != nil {
		t.Fatal(err)
	}
	model := llmtest.New(llmtest.OpenAI(), llmtest.Approver)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(modelTime): // it thinks
			model.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(provider.Close)
	f := &fairness{served: serveGavel(t, "--rate", "0", "--quota-bytes", "0", "--quota-instances", "0", "--config", config,
		"--max-conns", strconv.Itoa(fairConns), "--max-requests", strconv.Itoa(fairConns/2),
		"--llm-base-url", provider.URL, "--llm-model", "m", "--llm-structured", "json_schema", "--llm-rate", "1000", "--llm-token-rate", "0")}
	f.must(f.owner, http.MethodPost, "/v1/definitions", sharedWorkflow)
	f.untilReady()
	f.honest, f.noisy = f.token("honest"), f.token("noisy")
	f.instance, f.other = f.begin(f.honest, "shared"), f.begin(f.noisy, "shared")
	return f
}

// measure makes sequential moves of the honest caller. Each must succeed.
func (f *fairness) measure(n neighbour) (times []time.Duration) {
	f.t.Helper()
	for range *fairCalls {
		began := time.Now()
		status, answer, err := f.try(f.honest, http.MethodPost, "/v1/instances/"+f.instance+"/advance", f.fill(n.honest))
		times = append(times, time.Since(began))
		decision, _ := answer["decision"].(object)
		if err != nil || status != http.StatusOK || decision["applied"] != true {
			f.t.Fatalf("%s: the honest caller got %d %v %v", n.shares, status, answer, err)
		}
	}
	slices.Sort(times)
	return times
}

// fill makes each request body unique.
func (f *fairness) fill(body string) string {
	if !strings.Contains(body, "%d") {
		return body
	}
	return fmt.Sprintf(body, f.calls.Add(1))
}

// repeat sends the noisy caller's requests over several connections until ctx ends.
func (f *fairness) repeat(ctx context.Context, client *http.Client, call func(number int) (method, path, body string)) {
	var all sync.WaitGroup
	for number := range noisyCallers {
		all.Go(func() {
			for ctx.Err() == nil {
				method, path, body := call(number)
				r, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
				if err != nil {
					f.t.Error(err)
					return
				}
				r.Header = http.Header{"Authorization": {"Bearer " + f.noisy}, "Content-Type": {"application/json"}}
				if res, err := client.Do(r); err == nil {
					buffer := make([]byte, 64<<10)
					for err == nil {
						_, err = res.Body.Read(buffer)
					}
					_ = res.Body.Close()
				}
			}
		})
	}
	all.Wait()
}

func noisyClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: noisyCallers}}
}

// validateNoise generates load by validating a move.
func validateNoise(body string) func(*fairness, context.Context) {
	return func(f *fairness, ctx context.Context) {
		client := noisyClient()
		defer client.CloseIdleConnections()
		f.repeat(ctx, client, func(int) (string, string, string) {
			return http.MethodPost, "/v1/instances/" + f.other + "/validate", f.fill(body)
		})
	}
}

// readNoise generates load by reading.
func readNoise(paths ...string) func(*fairness, context.Context) {
	return func(f *fairness, ctx context.Context) {
		client := noisyClient()
		defer client.CloseIdleConnections()
		f.repeat(ctx, client, func(number int) (string, string, string) {
			return http.MethodGet, paths[number%len(paths)], ""
		})
	}
}

// sendHalfRequests keeps open more requests with missing bodies than the server has slots, and as many idle
// connections.
func (f *fairness) sendHalfRequests(ctx context.Context) {
	address := strings.TrimPrefix(f.url, "http://")
	head := "POST /v1/decide HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + f.noisy +
		"\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	var all sync.WaitGroup
	for number := range 2 * fairConns {
		all.Go(func() {
			for ctx.Err() == nil {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				if number%2 == 0 {
					_, _ = io.WriteString(conn, head)
				}
				_, _ = io.Copy(io.Discard, conn) // until the server closes it
				stop()
				_ = conn.Close()
			}
		})
	}
	all.Wait()
}

// TestNoisyNeighbour lets one caller use as much as it can of each shared resource while another makes sequential
// calls. The other is never refused. Its response times stay within ten times the quiet time, most of them within
// three times.
//
// A busy machine can delay any call of a sample, but unfairness shows every time. So one good measurement of
// several is enough. Without GAVEL_LONG=1, the test covers two resources. make bench-fairness prints the figures
// of more calls.
func TestNoisyNeighbour(t *testing.T) {
	f := startFairness(t)
	for range 500 { // data to read
		f.must(f.noisy, http.MethodPost, "/v1/instances/"+f.other+"/advance", `{"action":"plain","data":{"n":1}}`)
	}
	t.Logf("%-14s %10s %10s %10s %10s %6s", "shared", "p50 quiet", "p95 quiet", "p50 noisy", "p95 noisy", "ratio")
	for _, n := range neighbours {
		if !storetest.Long() && n.shares != "sandbox" && n.shares != "readers" {
			continue
		}
		f.measure(n) // warm up
		for try := 1; ; try++ {
			before := f.measure(n)
			noisy := f.measureBesideNoise(t, n)
			after := f.measure(n) // shows in both if the machine became busy
			quiet := before
			if percentile(after, 95) > percentile(before, 95) {
				quiet = after
			}
			ratio := float64(percentile(noisy, 95)) / float64(percentile(quiet, 95))
			t.Logf("%-14s %10v %10v %10v %10v %6.1f", n.shares, percentile(quiet, 50), percentile(quiet, 95), percentile(noisy, 50), percentile(noisy, 95), ratio)
			if percentile(noisy, 95) <= maxSlowdown*max(percentile(quiet, 95), quietFloor/2) &&
				percentile(noisy, 50) <= usualSlower*max(percentile(quiet, 50), quietFloor) {
				break
			}
			if try == 6 {
				t.Errorf("%s: the honest caller waits %v beside a noisy one, %v without (p95: %v, %v)", n.shares,
					percentile(noisy, 50), percentile(quiet, 50), percentile(noisy, 95), percentile(quiet, 95))
				break
			}
		}
	}
}

// measureBesideNoise returns the sorted times of the honest caller while the noisy caller uses as much as it can.
func (f *fairness) measureBesideNoise(t *testing.T, n neighbour) []time.Duration {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.noise(f, ctx) }()
	defer func() { stop(); <-ended }()
	f.measure(n) // let the noise reach its full level
	times := f.measure(n)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _ := f.ask("", http.MethodGet, path, ""); status != http.StatusOK {
			t.Errorf("%s: %s answers %d", n.shares, path, status)
		}
	}
	return times
}
