package main

import (
	"bufio"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
)

var figuresFlag = flag.Bool("figures", false, "measure start, memory and size of a release binary")

// Limits of the figures. Times are ten times the target; see docs/benchmarks.md.
const (
	maxStart  = 800 * time.Millisecond
	maxMemory = 60 << 20
	maxBinary = 64 << 20
	starts    = 11
)

// TestReleaseFigures measures a binary built like a release (make figures).
func TestReleaseFigures(t *testing.T) {
	if !*figuresFlag {
		t.Skip("measured with -figures only")
	}
	binary := filepath.Join(t.TempDir(), "gavel")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	var healthy, ready, speaks []time.Duration
	var memory, worker, both []int64
	for range starts {
		m := measureServe(t, binary)
		healthy, ready = append(healthy, m.healthy), append(ready, m.ready)
		memory, worker, both = append(memory, m.memory), append(worker, m.worker), append(both, m.both)
		speaks = append(speaks, measureMCP(t, binary))
	}
	t.Logf("binary                                  %d MB", info.Size()>>20)
	t.Logf("gavel serve: start to first answer      p50 %v", median(healthy).Round(100*time.Microsecond))
	t.Logf("gavel serve: start to ready             p50 %v, with the first worker of the sandbox", median(ready).Round(100*time.Microsecond))
	t.Logf("gavel mcp:   start to first answer      p50 %v", median(speaks).Round(100*time.Microsecond))
	t.Logf("gavel serve: resident when idle         p50 %d MB, %d MB of a worker that ran a script; both, shared pages once: %d MB",
		median(memory)>>20, median(worker)>>20, median(both)>>20)
	if median(ready) > maxStart || median(speaks) > maxStart || median(memory) > maxMemory || info.Size() > maxBinary {
		t.Error("a figure is over its bound")
	}
}

type measured struct {
	healthy, ready time.Duration
	memory, worker int64 // resident bytes
	both           int64 // resident bytes of both, with shared pages counted once
}

// measureServe starts a server with its own store, measures it, and stops it.
func measureServe(t *testing.T, binary string) (m measured) {
	t.Helper()
	var free net.ListenConfig
	l, err := free.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	cmd := exec.CommandContext(t.Context(), binary, "serve", "--listen", at, "--auth", "none", "--store", storeIn(t))
	cmd.Env, cmd.Stdout, cmd.Stderr = cli.WithoutSettings(os.Environ()), io.Discard, io.Discard
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.healthy = answersAfter(t, began, "http://"+at+"/healthz")
	m.ready = answersAfter(t, began, "http://"+at+"/readyz")
	m.memory = resident(t, cmd.Process.Pid)
	runOneScript(t, "http://"+at, cmd.Process.Pid)
	m.both = memoryOf(t, cmd.Process.Pid, "Pss")
	for _, child := range childrenOfProcess(cmd.Process.Pid) {
		if pid, err := strconv.Atoi(child); err == nil {
			m.worker += resident(t, pid)
			m.both += memoryOf(t, pid, "Pss")
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return m
}

// answersAfter polls a URL until it returns 200.
func answersAfter(t *testing.T, began time.Time, url string) time.Duration {
	t.Helper()
	again := time.NewTicker(500 * time.Microsecond)
	defer again.Stop()
	for time.Since(began) < 2*patience {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(began)
			}
		}
		<-again.C
	}
	t.Fatalf("%s does not answer", url)
	return 0
}

// measureMCP returns the time until a server over stdin first responds.
func measureMCP(t *testing.T, binary string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "mcp", "--store", storeIn(t))
	cmd.Env = cli.WithoutSettings(os.Environ())
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("no answer")
	}
	took := time.Since(began)
	for lines.Scan() { // until it ends after its input
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return took
}

// runOneScript runs a script and returns once its worker is the only one left. The worker that checked the
// definition has then ended.
func runOneScript(t *testing.T, server string, pid int) {
	t.Helper()
	post := func(path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); err != nil || resp.StatusCode/100 != 2 {
			t.Fatalf("%s: %s %s", path, resp.Status, answer)
		}
	}
	post("/v1/definitions", `{"name":"scripted","initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","validator":"(data) => data.ok"}}}}}`)
	post("/v1/decide", `{"workflow":"scripted","state":"a","action":"go","data":{"ok":true}}`)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); len(childrenOfProcess(pid)) != 1; <-again.C {
		if time.Since(began) > 2*patience {
			t.Fatal("the worker that checked the definition stays")
		}
	}
}

// resident returns the resident memory of a process, in bytes.
func resident(t *testing.T, pid int) int64 { return memoryOf(t, pid, "Rss") }

// memoryOf returns a sum from /proc/PID/smaps_rollup in bytes: Rss or Pss. In Pss, each of n processes that share
// a page counts 1/n of it.
func memoryOf(t *testing.T, pid int, sum string) int64 {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\n"+sum+":")
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[1] != "kB" {
		t.Fatalf("process %d does not say how large it is", pid)
	}
	kB, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
