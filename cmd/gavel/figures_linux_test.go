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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var figuresFlag = flag.Bool("figures", false, "measure start, memory and size of a release binary")

// What the figures may come to. Times are ten times what is aimed at: see docs/benchmarks.md.
const (
	mostStart  = 800 * time.Millisecond
	mostMemory = 60 << 20
	mostBinary = 45 << 20
	starts     = 11
)

// TestReleaseFigures measures a binary built as for a release: make figures.
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
	var memory, worker []int64
	for range starts {
		m := measureServe(t, binary)
		healthy, ready = append(healthy, m.healthy), append(ready, m.ready)
		memory, worker = append(memory, m.memory), append(worker, m.worker)
		speaks = append(speaks, measureMCP(t, binary))
	}
	t.Logf("binary                                  %d MB", info.Size()>>20)
	t.Logf("gavel serve: start to first answer      p50 %v", median(healthy).Round(100*time.Microsecond))
	t.Logf("gavel serve: start to ready             p50 %v, with the first worker of the sandbox", median(ready).Round(100*time.Microsecond))
	t.Logf("gavel mcp:   start to first answer      p50 %v", median(speaks).Round(100*time.Microsecond))
	t.Logf("gavel serve: resident when idle         p50 %d MB, and %d MB of its one worker", median(memory)>>20, median(worker)>>20)
	if median(ready) > mostStart || median(speaks) > mostStart || median(memory) > mostMemory || info.Size() > mostBinary {
		t.Error("a figure is over its bound")
	}
}

func median[T time.Duration | int64](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

type measured struct {
	healthy, ready time.Duration
	memory, worker int64 // bytes
}

// measureServe starts a server with a store of its own, and ends it.
func measureServe(t *testing.T, binary string) (m measured) {
	t.Helper()
	var free net.ListenConfig
	l, err := free.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	cmd := exec.CommandContext(t.Context(), binary, "serve", "--listen", at, "--store", storeIn(t))
	cmd.Env, cmd.Stdout, cmd.Stderr = withoutSettings(os.Environ()), io.Discard, io.Discard
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.healthy = answersAfter(t, began, "http://"+at+"/healthz")
	m.ready = answersAfter(t, began, "http://"+at+"/readyz")
	m.memory = resident(t, cmd.Process.Pid)
	for _, child := range childrenOfProcess(cmd.Process.Pid) {
		if pid, err := strconv.Atoi(child); err == nil {
			m.worker += resident(t, pid)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return m
}

// answersAfter asks until the answer is 200.
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

// measureMCP is how long a server over stdin takes to its first answer.
func measureMCP(t *testing.T, binary string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "mcp", "--store", storeIn(t))
	cmd.Env = withoutSettings(os.Environ())
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
	for lines.Scan() { // until it ends, as its input did
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return took
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

func resident(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	m := residentLine.FindSubmatch(raw)
	if m == nil {
		t.Fatalf("process %d does not say how large it is", pid)
	}
	kB, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
