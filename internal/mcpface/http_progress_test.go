package mcpface_test

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/internal/mcpface"
)

// Not one notification between a call and its answer is lost, and the answer is last. The
// library, left alone, loses the last one now and then.
func TestHTTPLosesNoProgress(t *testing.T) {
	const each = 5
	s := server.NewMCPServer("progress", "1", server.WithToolCapabilities(false))
	s.AddTool(mcp.NewTool("work"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range each {
			if err := s.SendNotificationToClient(ctx, string(mcp.MethodNotificationProgress), map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i}); err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText("done"), nil
	})
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
			site := newSite(t, mcpface.NewEndpoint(s, mcpface.Config{Logger: slog.New(slog.DiscardHandler)}))
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
				if era == "2025-11-25" { // in which calls at the same time share the streams of their session
					all.Wait()
				}
			}
			all.Wait()
		})
	}
}
