//go:build unix

package evidence_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wantGone waits until the process whose id is in the file has ended.
func wantGone(t *testing.T, file string) {
	t.Helper()
	pid := number(t, file)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-time.After(20 * time.Millisecond) {
		if syscall.Kill(pid, 0) != nil || defunct(pid) {
			return
		}
	}
	syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d still runs", pid)
}

// defunct reports whether a process has ended but was not waited for.
func defunct(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(after, "Z")
}

// end kills the process whose id is in the file. A test started it.
func end(t *testing.T, file string) {
	t.Helper()
	if err := syscall.Kill(number(t, file), syscall.SIGKILL); err != nil {
		t.Errorf("the process that escaped is not there: %v", err)
	}
}

func number(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
