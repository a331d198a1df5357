package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// canaryValue is in every sensitive value of these tests. It must leave a server only in responses to authorised
// readers.
const canaryValue = "canary-4471"

// sealedFlow fails with a reason that contains the sensitive value, and parks with it.
const sealedFlow = `{"name":"sealed","initialState":"a","sensitive":["/token","/customer/ssn"],"states":{
	"a":{"transitions":{
		"note":"a",
		"fail":{"target":"a","validator":"(data, context) => ({valid: false, confidence: 1, reason: 'saw ' + data.token + ' and ' + context.token})"},
		"throw":{"target":"a","validator":"(data) => { throw new Error('no ' + data.token) }"},
		"ask":{"target":"b","requireAssurance":"human"}}},
	"b":{"final":true,"outcome":"success"}}}`

// sealedData returns the data of a move, with n in plain text.
func sealedData(n int) string {
	return fmt.Sprintf(`{"token":%q,"customer":{"ssn":"%s-ssn"},"n":%d}`, sealedToken(n), canaryValue, n)
}

func sealedToken(n int) string { return fmt.Sprintf("%s-token-%d", canaryValue, n) }

// bodies is a webhook receiver that keeps the bodies.
type bodies struct {
	mu   sync.Mutex
	all  []string
	came chan struct{} // receives a value for each body if a test waits for it
}

func (b *bodies) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	b.all = append(b.all, string(raw)+fmt.Sprint(r.Header))
	b.mu.Unlock()
	b.came <- struct{}{}
}

func (b *bodies) waitFor(t *testing.T, n int) {
	t.Helper()
	for end := time.After(patience); n > 0; n-- {
		select {
		case <-b.came:
		case <-end:
			t.Fatalf("%d messages did not come", n)
		}
	}
}

// Nothing that a server sends, logs or stores contains a sensitive value, whatever happens to the value and at
// every log level.
func TestServedValuesStaySealed(t *testing.T) {
	t.Parallel()
	receiver := &bodies{came: make(chan struct{}, 100)}
	at := httptest.NewServer(receiver)
	t.Cleanup(at.Close)
	dir := t.TempDir()
	flow, config := filepath.Join(dir, "flow.json"), filepath.Join(dir, "gavel.yaml")
	put(t, flow, sealedFlow)
	put(t, filepath.Join(dir, "secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	put(t, config, fmt.Sprintf("webhooks: {audit: {url: %q, privateNetwork: true, secretFiles: secret, from: start}}\n", at.URL))
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			s := serveGavel(t, "--definitions", flow, "--config", config, "--log-level", "debug", "--log-format", format, "--reviews")
			advance := func(id, action, data string) (int, object) {
				return s.ask(s.owner, http.MethodPost, "/v1/instances/"+id+"/advance", fmt.Sprintf(`{"action":%q,"data":%s}`, action, data))
			}
			started := s.must(s.owner, http.MethodPost, "/v1/instances", fmt.Sprintf(`{"type":"sealed","context":%s}`, sealedData(0)))
			id, _ := started["id"].(string)
			for n, action := range []string{"note", "fail", "throw", "ask", "nothing"} {
				if status, answer := advance(id, action, sealedData(n+1)); status == http.StatusOK && answer["revision"] == nil {
					t.Fatalf("%s: %v", action, answer)
				}
			}
			// Errors about a request do not repeat its content.
			for _, data := range []string{`{"token":"` + canaryValue, `{"token":"` + canaryValue + `","token":"twice"}`, `["` + canaryValue + `"]`, `{"token":"gavel:sealed:1:` + canaryValue + `"}`} {
				if status, _ := advance(id, "note", data); status/100 != 4 {
					t.Errorf("%s: %d", data, status)
				}
			}
			call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":%q,"action":"note","data":%s,"more":%s},
				"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, id, sealedData(9), sealedData(10))
			if _, _, err := s.tryWith(s.owner, http.MethodPost, "/mcp", call, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "workflow.advance"); err != nil {
				t.Fatal(err)
			}
			s.ask(s.owner, http.MethodGet, "/v1/decisions?text="+canaryValue, "")
			seen := s.must(s.owner, http.MethodGet, "/v1/instances/"+id, "")
			if !strings.Contains(fmt.Sprint(seen), canaryValue+"-token-1") {
				t.Fatalf("the operator does not see the value: %v", seen)
			}
			seq, _ := seen["seq"].(float64)
			receiver.waitFor(t, int(seq))
			_, figures := s.figures(s.owner)
			s.stop()
			receiver.mu.Lock()
			sent := strings.Join(receiver.all, "\n")
			receiver.all = nil
			receiver.mu.Unlock()
			for kind, text := range map[string]string{"a webhook": sent, "the log": s.stderr.String(), "the metrics": figures} {
				if i := strings.Index(text, canaryValue); i >= 0 {
					t.Errorf("%s holds the value: ...%s", kind, text[max(0, i-200):min(len(text), i+100)])
				}
			}
			if !strings.Contains(sent, "workflow.refused") || !strings.Contains(sent, "workflow.escalated") || !strings.Contains(strings.ToLower(s.stderr.String()), "debug") {
				t.Errorf("the test shows nothing: %s\n%s", sent, s.stderr)
			}
			for _, file := range holding(t, filepath.Dir(s.store), canaryValue) {
				t.Errorf("%s holds the value", file)
			}
		})
	}
}

// holding returns the files below a folder that contain a text.
func holding(t *testing.T, folder, text string) (found []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files in %s: %v", files, folder, err)
	}
	slices.Sort(found)
	return found
}
