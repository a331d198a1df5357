package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// BenchmarkHook measures hooks with a warm store. It alternates them with gavel version and with one write to the
// disk, so that other load on the machine affects all three equally.
func BenchmarkHook(b *testing.B) {
	gavel, err := exec.LookPath("gavel")
	if err != nil {
		b.Fatal(err)
	}
	dir := hookProject(b)
	ask := func(input []byte) string {
		cmd := exec.CommandContext(b.Context(), gavel, "hook", "claude-code", "--config", filepath.Join(dir, "gavel.yaml"))
		cmd.Env, cmd.Stdin = cli.WithoutSettings(os.Environ()), bytes.NewReader(input)
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		return string(out)
	}
	if out := ask(claudeEvent(dir, "SessionStart", nil)); !strings.Contains(out, "is in") {
		b.Fatal(out)
	}
	probe, err := os.OpenFile(filepath.Join(dir, "probe"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer probe.Close()
	block := make([]byte, 4096)
	figures := map[string][]time.Duration{}
	measure := func(name, want string, f func() string) {
		began := time.Now()
		out := f()
		figures[name] = append(figures[name], time.Since(began))
		if want == "" && out != "" || !strings.Contains(out, want) {
			b.Fatalf("%s: %s", name, out)
		}
	}
	bash := func(name, id, command string) []byte {
		return claudeTool(dir, name, id, "Bash", map[string]any{"command": command}, map[string]any{})
	}
	s, client := beginHookServer(b, dir)
	post := func(input []byte) string {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s, bytes.NewReader(input))
		if err != nil {
			b.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%d %s %v", resp.StatusCode, text, err)
		}
		return string(text)
	}
	neutral := bash("PreToolUse", "n", "ls -l | head")
	edit := claudeTool(dir, "PreToolUse", "e", "Edit", map[string]any{"file_path": filepath.Join(dir, "src", "a.go")})
	for i := range b.N {
		measure("version", "gavel", func() string {
			out, err := exec.CommandContext(b.Context(), gavel, "version").Output()
			if err != nil {
				b.Fatal(err)
			}
			return string(out)
		})
		measure("fdatasync", "", func() string {
			if _, err := probe.WriteAt(block, 0); err != nil {
				b.Fatal(err)
			}
			if err := syscall.Fdatasync(int(probe.Fd())); err != nil {
				b.Fatal(err)
			}
			return ""
		})
		measure("neutral", "", func() string { return ask(neutral) })
		measure("plain", "", func() string { return ask(edit) })
		measure("refused", "deny", func() string { return ask(bash("PreToolUse", fmt.Sprint("r", i), "git push")) })
		measure("http-neutral", "", func() string { return post(neutral) })
		measure("http-plain", "", func() string { return post(edit) })
		measure("http-refused", "deny", func() string { return post(bash("PreToolUse", fmt.Sprint("h", i), "git push")) })
	}
	for name, all := range figures {
		slices.Sort(all)
		b.ReportMetric(float64(percentile(all, 50).Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(percentile(all, 99).Microseconds())/1000, name+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// beginHookServer serves hooks from the same store, without authentication.
func beginHookServer(b *testing.B, dir string) (address string, client *http.Client) {
	b.Helper()
	cmd := exec.Command("gavel", "serve", "--listen", "127.0.0.1:0", "--auth", "none", "--config", filepath.Join(dir, "gavel.yaml"))
	cmd.Env = cli.WithoutSettings(os.Environ())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line := make([]byte, 4096)
	n, err := stderr.Read(line)
	said := servingLine.FindStringSubmatch(string(line[:n]))
	if err != nil || said == nil {
		b.Fatalf("%v: %s", err, line[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return strings.TrimSpace(said[1]) + "/v1/hooks/claude-code", &http.Client{Timeout: patience}
}
