package face_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// reporting has one tool, which reports its progress.
type reporting struct{}

const each = 5

func (reporting) List(context.Context, engine.Principal) ([]mcp.Tool, error) {
	return []mcp.Tool{mcp.NewTool("work")}, nil
}

func (reporting) Call(ctx context.Context, _ engine.Principal, c wire.Call) (*mcp.CallToolResult, error) {
	var meta mcp.Meta
	if err := json.Unmarshal(c.Meta, &meta); err != nil {
		return nil, err
	}
	for i := range each {
		if err := wire.Notify(ctx, string(mcp.MethodNotificationProgress), map[string]any{"progressToken": meta.ProgressToken, "progress": i}); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("done"), nil
}

func (reporting) Changed(engine.Principal) <-chan struct{} { return nil }

// No notification between a call and its answer is lost, and the answer comes last.
func TestHTTPLosesNoProgress(t *testing.T) {
	wire, err := wire.New(wire.Config{Info: mcp.Implementation{Name: "progress", Version: "1"}, Tools: reporting{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for era, ask := range map[string]func(s *site) func(n int) *http.Request{
		"2025-11-25": func(s *site) func(int) *http.Request {
			ann := s.hello()
			return func(n int) *http.Request {
				return ann.request(http.MethodPost, `{"jsonrpc":"2.0","id":`+strconv.Itoa(n)+`,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":"p`+strconv.Itoa(n)+`"}}}`, ann.headers...)
			}
		},
		"2026-07-28": func(s *site) func(int) *http.Request {
			return func(n int) *http.Request {
				r := s.modernRequest(strconv.Itoa(n), "tools/call", "work", `,"name":"work"`)
				body := `{"jsonrpc":"2.0","id":` + strconv.Itoa(n) + `,"method":"tools/call","params":{` + modernMeta + `,"progressToken":"p` + strconv.Itoa(n) + `"},"name":"work"}}`
				out := s.request(http.MethodPost, body)
				out.Header = r.Header
				return out
			}
		},
	} {
		t.Run(era, func(t *testing.T) {
			site := newSite(t, wire.Handler())
			request := ask(site)
			const calls = 60
			var all sync.WaitGroup
			for n := range calls {
				r := request(n)
				all.Go(func() {
					a := site.do(r)
					events := strings.Split(strings.TrimSpace(string(a.body)), "\n\n")
					if len(events) == 0 || !strings.Contains(events[len(events)-1], `"result":`) {
						t.Errorf("call %d does not end with its answer: %d %s", n, a.status, a.body)
					}
					if got := strings.Count(string(a.body), `"progressToken":"p`+strconv.Itoa(n)+`"`); got != each {
						t.Errorf("call %d: %d of %d frames", n, got, each)
					}
				})
				if era == "2025-11-25" { // concurrent calls share the streams of their session
					all.Wait()
				}
			}
			all.Wait()
		})
	}
}

// A client that accepts only JSON gets its answer as JSON, without notifications before it.
func TestHTTPAnswersJSONAlone(t *testing.T) {
	wire, err := wire.New(wire.Config{Info: mcp.Implementation{Name: "progress", Version: "1"}, Tools: reporting{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ann := newSite(t, wire.Handler()).hello("Accept", "application/json")
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":"p"}}}`
	a := ann.do(ann.request(http.MethodPost, call, append(ann.headers, "Accept", "application/json")...))
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" || !strings.Contains(string(a.body), `"text":"done"`) || strings.Contains(string(a.body), "progressToken") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	const listen = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + modernMeta + `}}}`
	a = ann.site.do(ann.site.request(http.MethodPost, listen, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen", "Accept", "application/json"))
	if a.status != http.StatusNotAcceptable {
		t.Errorf("a stream for a client that reads none: %d %s", a.status, a.body)
	}
}
