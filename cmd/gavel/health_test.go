package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// TestHealthOfServer checks a real server without a token, named in each possible way.
func TestHealthOfServer(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  string
		args []string
	}{
		"its address":              {"GAVEL_LISTEN=", []string{s.url}},
		"a slash after it":         {"GAVEL_LISTEN=", []string{s.url + "/"}},
		"where it listens":         {"GAVEL_LISTEN=127.0.0.1:" + port, nil},
		"it listens on all":        {"GAVEL_LISTEN=0.0.0.0:" + port, nil},
		"it listens on any":        {"GAVEL_LISTEN=:" + port, nil},
		"the argument comes first": {"GAVEL_LISTEN=127.0.0.1:1", []string{s.url}},
	} {
		needsProgram(t)
		cmd := exec.CommandContext(t.Context(), "gavel", append([]string{"health", "--timeout", "1m"}, c.args...)...)
		cmd.Env = append(cli.WithoutSettings(os.Environ()), c.env)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), ": ready\n") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
	var r serve.Readiness
	if err := json.Unmarshal(runGavel(t, "health", s.url, "--json", "--timeout", "1m"), &r); err != nil || !r.Ready || r.Server != s.url || len(r.Parts) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestHealthExitCodes shows that "not ready" and "no response" have different exit codes.
func TestHealthExitCodes(t *testing.T) {
	t.Parallel()
	answering := func(code int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
				t.Errorf("it asks %s with %v", r.URL, r.Header)
			}
			w.Header().Set("Location", "https://elsewhere.invalid/")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hanging.Close)
	const broken = `{"ready":false,"parts":[{"name":"store","ok":false},{"name":"model","ok":false,"optional":true}]}`
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a part is broken":    {[]string{answering(503, broken)}, term.ExitBad, "not ready: store\n"},
		"broken, as JSON":     {[]string{answering(503, broken), "--json"}, term.ExitBad, `"ready": false`},
		"it is ending":        {[]string{answering(503, `{"ready":false,"draining":true,"parts":[]}`)}, term.ExitBad, "shutting down"},
		"nobody there":        {[]string{"http://127.0.0.1:1"}, term.ExitUnknown, "could not be reached"},
		"no answer in time":   {[]string{hanging.URL, "--timeout", "100ms"}, term.ExitUnknown, "could not be reached"},
		"a proxy's 503":       {[]string{answering(503, "no upstream")}, term.ExitUnknown, "is not gavel"},
		"another server":      {[]string{answering(200, `{"status":"ok"}`)}, term.ExitUnknown, "is not gavel"},
		"it says two things":  {[]string{answering(200, broken)}, term.ExitUnknown, "is not gavel"},
		"not found":           {[]string{answering(404, "")}, term.ExitUnknown, "404"},
		"led elsewhere":       {[]string{answering(302, "")}, term.ExitUnknown, "302"},
		"no address":          {[]string{"gavel.example"}, term.ExitUsage, "must be like"},
		"no time":             {[]string{"http://127.0.0.1:1", "--timeout", "0s"}, term.ExitUsage, "above 0"},
		"no file of the CA":   {[]string{"https://127.0.0.1:1", "--ca-file", "nothing.pem"}, term.ExitUsage, "--ca-file"},
		"no certificates yet": {[]string{"https://127.0.0.1:1", "--ca-file", "health_test.go"}, term.ExitUsage, "no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := gavelFails(t, nil, append([]string{"health", "--timeout", "1m"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("%d, want %d and %q: %s", code, c.code, c.says, out)
			}
		})
	}
	if out, code := gavelFails(t, []string{"GAVEL_LISTEN=4285"}, "health"); code != term.ExitUsage || !strings.Contains(out, "GAVEL_LISTEN") {
		t.Errorf("no address to listen on: %d %s", code, out)
	}
}
