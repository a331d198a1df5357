package worker

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// ProbeName is the name of a process that hardens itself like a worker and then attempts forbidden operations.
const ProbeName = "gavel-worker-probe"

// Environment variables of the probe: the only protection to apply, and the attempts to make, separated by
// commas.
const (
	ProbeOnly = "PROBE_ONLY"
	ProbeTry  = "PROBE_TRY"
)

// Probe is the output of the probe. Attempts maps each attempt to its error, "" for success.
type Probe struct {
	Missing  []string
	Env      []string
	Attempts map[string]string
}

func init() { ProbeMain = runProbe }

// HasRaceDetector reports whether the tests were built with the race detector.
var HasRaceDetector = hasRaceDetector

func runProbe() {
	if os.Args[0] != ProbeName {
		return
	}
	prepareProcess()
	if only := os.Getenv(ProbeOnly); only != "" {
		hardening = slices.DeleteFunc(hardening, func(p protection) bool { return p.name != only })
	}
	allocate := os.Getenv("PROBE_ALLOCATE") != ""
	try, only := os.LookupEnv(ProbeTry)
	setup := script.Setup{Soft: 50 * time.Millisecond, Hard: 200 * time.Millisecond, ScriptMemory: 32 << 20, WorkerMemory: 128 << 20}
	prepareRuntime(setup)
	newEvaluator(setup).warmUp()
	p := Probe{Missing: applyProtections(setup), Env: os.Environ(), Attempts: map[string]string{}}
	for name, attempt := range attempts {
		if only && !slices.Contains(strings.Split(try, ","), name) {
			continue
		}
		p.Attempts[name] = ""
		if err := attempt(); err != nil {
			p.Attempts[name] = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
		os.Exit(1)
	}
	if allocate {
		hog = make([]byte, 400<<20)
	}
	os.Exit(0)
}

var hog []byte

var attempts = map[string]func() error{
	"read a file":    func() error { _, err := os.ReadFile("/etc/passwd"); return err },
	"read a library": func() error { _, err := os.ReadDir("/usr/lib"); return err },
	"read itself":    func() error { _, err := os.ReadFile("/proc/self/environ"); return err },
	"write a file":   func() error { return os.WriteFile("/tmp/gavel-probe", []byte("x"), 0o600) },
	"remove a file":  func() error { return os.Remove("/tmp/gavel-probe-that-is-not-there/x") },
	"list a folder":  func() error { _, err := os.ReadDir("/"); return err },
	"TCP socket":     func() error { _, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0); return err },
	"UDP socket":     func() error { _, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0); return err },
	"unix socket":    func() error { _, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); return err },
	"dial": func() error {
		_, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", "127.0.0.1:9")
		return err
	},
	"start a process":   func() error { return exec.Command("/bin/true").Run() },
	"replace itself":    func() error { return syscall.Exec("/bin/true", []string{"true"}, nil) },
	"signal its parent": func() error { return syscall.Kill(os.Getppid(), 0) },
	"change its limits": func() error { return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: 1}) },
	"make a pipe":       func() error { var p [2]int; return syscall.Pipe(p[:]) },
	"change the folder": func() error { return os.Chdir("/tmp") },
	"executable memory": func() error {
		_, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		return err
	},
	"read a descriptor of its parent": func() error { _, err := syscall.Read(3, make([]byte, 1)); return err },
}
