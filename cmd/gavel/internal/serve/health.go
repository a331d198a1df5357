package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/rest/client"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
)

// HealthCommand asks a server whether it is ready.
type HealthCommand struct {
	URL     string        `arg:"" name:"url" optional:"" help:"The server. Default: http:// and the address of GAVEL_LISTEN, or of 127.0.0.1:4285."`
	Timeout time.Duration `name:"timeout" env:"GAVEL_HEALTH_TIMEOUT" default:"3s" placeholder:"TIME" help:"How long the answer may take. Default: 3s."`
	CAFile  string        `name:"ca-file" env:"GAVEL_SERVER_CA_FILE" placeholder:"FILE" help:"Trust only these certificates (PEM) of the server."`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// Readiness is the JSON result of gavel health.
type Readiness struct {
	Server string `json:"server"` // the address of the server
	telemetry.Report
}

// Run prints the server's parts and their state.
func (c *HealthCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.Timeout <= 0 {
		return term.UsageErrorf("give a time such as 3s", "--timeout must be above 0")
	}
	server := c.URL
	if server == "" {
		var err error
		if server, err = serverAddress(os.Getenv("GAVEL_LISTEN")); err != nil {
			return err
		}
	}
	r, err := fetchReadiness(ctx, server, c.CAFile, c.Timeout)
	if err != nil {
		return err
	}
	err = con.Print(c.JSON, r, func() { con.Out.Printf("%s: %s\n", server, r.summary()) })
	return cmp.Or(err, cli.ExitBadUnless(r.Ready))
}

func (r Readiness) summary() string {
	switch {
	case r.Ready:
		return "ready" + r.limits()
	case r.Draining:
		return "not ready: shutting down"
	}
	var failing []string
	for _, p := range r.Parts {
		if !p.OK && !p.Optional {
			failing = append(failing, p.Name)
		}
	}
	return "not ready: " + strings.Join(failing, ", ")
}

// limits lists the optional parts that do not work.
func (r Readiness) limits() string {
	var text strings.Builder
	for _, p := range r.Parts {
		if p.OK {
			continue
		}
		fmt.Fprintf(&text, "; not working: %s", p.Name)
		if !p.Since.IsZero() {
			fmt.Fprintf(&text, " (since %s, %d decisions without it)", p.Since.UTC().Format(time.RFC3339), p.Decisions)
		}
	}
	return text.String()
}

// serverAddress returns the URL of a server on this machine, given its listen address ("" for the default).
func serverAddress(address string) (string, error) {
	address = cmp.Or(address, "127.0.0.1:4285")
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", term.UsageErrorf("give HOST:PORT, such as 127.0.0.1:4285, or the address of the server as argument", "GAVEL_LISTEN: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// maxReadiness limits the response, in bytes.
const maxReadiness = 64 << 10

func fetchReadiness(ctx context.Context, server, caFile string, timeout time.Duration) (Readiness, error) {
	at, err := client.ParseAddress(server)
	if err != nil {
		return Readiness{}, term.UsageErrorf("", "%w", err)
	}
	web, err := client.NewHTTP(caFile)
	if err != nil {
		return Readiness{}, term.UsageErrorf("", "--ca-file: %w", err)
	}
	defer web.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.JoinPath("readyz").String(), nil) //nolint:gosec // the user chooses the address
	if err != nil {
		return Readiness{}, term.UsageErrorf("", "the address of the server: %w", err)
	}
	answer, err := web.Do(request) //nolint:gosec // likewise
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		if hint := client.HintCertificate(err); hint != "" {
			return Readiness{}, term.UnknownErrorf(hint, "the certificate of %s is not trusted: %w", server, err)
		}
		return Readiness{}, term.UnknownErrorf("check that the server runs, and its address", "%s could not be reached: %w", server, err)
	}
	defer func() { _ = answer.Body.Close() }() // read only
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxReadiness))
	if err != nil {
		return Readiness{}, term.UnknownErrorf("", "the answer of %s could not be read: %w", server, err)
	}
	return parseReadiness(server, answer, raw)
}

// parseReadiness parses a response of /readyz. It rejects responses that do not come from gavel.
func parseReadiness(server string, answer *http.Response, raw []byte) (Readiness, error) {
	r := Readiness{Server: server}
	ready := answer.StatusCode == http.StatusOK
	if !ready && answer.StatusCode != http.StatusServiceUnavailable {
		return r, term.UnknownErrorf("check the address and any proxy", "%s answered %s", server, answer.Status)
	}
	if err := json.Unmarshal(raw, &r); err != nil || r.Ready != ready || r.Parts == nil {
		return r, term.UnknownErrorf("check the address and any proxy", "the server at %s is not gavel: %s", server, answer.Status)
	}
	r.Server = server
	return r, nil
}
