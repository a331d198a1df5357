package script

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"
)

// Config configures a Pool. A zero field means its default. The defaults withstand every known hostile
// script on a two-core machine.
type Config struct {
	// WorkerPath is the binary that is started as a worker; its main begins with worker.Main(). Default: the
	// running program.
	WorkerPath string
	// Workers is the maximum number of worker processes that evaluate scripts, 1..256. They start on first
	// use. Default 3: one caller can keep two processors busy and still leave a worker for another caller.
	Workers int
	// PerCaller is how many workers one caller may use concurrently, 1..Workers. Default: all but one.
	PerCaller int
	// Queue is how many calls of all callers together may wait for a worker. A single caller may fill it. When
	// another caller arrives, the newest call of the caller with the most waiting calls fails with
	// ErrUnavailable. Default 2048.
	Queue int
	// Wait is how long a call may wait for a worker before it fails with ErrUnavailable. Default 10s.
	Wait time.Duration
	// Soft is how long one script may run before it is interrupted. Default 50ms.
	Soft time.Duration
	// Hard is how long one script may run before its worker is killed, which also ends scripts that cannot be
	// interrupted. At least 2*Soft. Default 200ms.
	Hard time.Duration
	// Total limits the time of one Batch. Scripts that have not started by then are not run and end with
	// Timeout. Default 1s.
	Total time.Duration
	// Read is how long a worker may take to read a document. Default 5s: 256 KiB take 100ms on an idle
	// machine.
	Read time.Duration
	// Start limits the start of a worker, until its greeting. Default 10s; 3ms is typical.
	Start time.Duration
	// ScriptMemory is how many bytes of heap one script may add before it is interrupted, at least 4 MiB.
	// Default 32 MiB.
	ScriptMemory int64
	// WorkerMemory is how many bytes a worker may grow before it exits, at least twice ScriptMemory. Default
	// 128 MiB.
	WorkerMemory int64
	// MaxSource is the maximum length of a source in bytes. Default 16 KiB. A source of 64 KiB can make a
	// parser use 200 MB.
	MaxSource int
	// MaxSchema is the maximum length of a JSON Schema in bytes. Default 64 KiB.
	MaxSchema int
	// MaxInput is the maximum length in bytes of each of Data, Context, Evidence and the arguments of a Call.
	// Default 1 MiB.
	MaxInput int
	// MaxScripts is the maximum number of scripts in one Batch. Default 64.
	MaxScripts int
	// Recycle is the number of calls after which a worker is replaced. Default 10000.
	Recycle int
	// ScriptStrikes and OwnerStrikes limit how many workers one script, or all scripts of one owner, may
	// kill within StrikeWindow. At the limit the script, or the owner, is quarantined for QuarantineFor.
	//
	// If the owner is trusted or is not the caller, strikes count against the caller whose data caused them.
	// Those scripts are then not run for that caller, for CallerQuarantineFor. Defaults 3, 10, 10min, 1h,
	// 1min.
	ScriptStrikes, OwnerStrikes                      int
	StrikeWindow, QuarantineFor, CallerQuarantineFor time.Duration
	// IdleTime is how long an idle worker is kept, LastIdleTime how long the last one is kept. The next call
	// then starts a new worker, which takes about 10ms. Defaults 10s, 5min.
	IdleTime, LastIdleTime time.Duration
	// Warm makes NewPool start the first worker in the background.
	Warm bool
	// Logger logs missing protections and lost workers. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock for quarantine, and the clock that scripts see if Batch.Now is zero. Default: time.Now.
	Now func() time.Time
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	setDefault(&c.Workers, 3)
	setDefault(&c.PerCaller, max(1, c.Workers-1))
	setDefault(&c.Queue, 2048)
	setDefault(&c.Wait, 10*time.Second)
	setDefault(&c.Soft, 50*time.Millisecond)
	setDefault(&c.Hard, 200*time.Millisecond)
	setDefault(&c.Total, time.Second)
	setDefault(&c.Read, 5*time.Second)
	setDefault(&c.Start, 10*time.Second)
	setDefault(&c.ScriptMemory, 32<<20)
	setDefault(&c.WorkerMemory, 128<<20)
	setDefault(&c.MaxSource, 16<<10)
	setDefault(&c.MaxSchema, 64<<10)
	setDefault(&c.MaxInput, 1<<20)
	setDefault(&c.MaxScripts, 64)
	setDefault(&c.Recycle, 10_000)
	setDefault(&c.ScriptStrikes, 3)
	setDefault(&c.OwnerStrikes, 10)
	setDefault(&c.StrikeWindow, 10*time.Minute)
	setDefault(&c.QuarantineFor, time.Hour)
	setDefault(&c.CallerQuarantineFor, time.Minute)
	setDefault(&c.IdleTime, 10*time.Second)
	setDefault(&c.LastIdleTime, 5*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports all invalid settings. It expects defaults to be set.
func (c Config) validate() error {
	var errs []error
	within := func(name string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("script: %s is %d, must be %d to %d", name, v, low, high))
		}
	}
	ms := func(d time.Duration) int64 { return int64(d / time.Millisecond) }
	within("Workers", int64(c.Workers), 1, 256)
	within("PerCaller", int64(c.PerCaller), 1, int64(c.Workers))
	within("Queue", int64(c.Queue), 1, 1<<20)
	within("Wait in ms", ms(c.Wait), 1, 3_600_000)
	within("Soft in ms", ms(c.Soft), 1, 60_000)
	within("Hard in ms", ms(c.Hard), 2*ms(c.Soft), 600_000)
	within("Total in ms", ms(c.Total), ms(c.Hard), 3_600_000)
	within("Read in ms", ms(c.Read), 1, 600_000)
	within("Start in ms", ms(c.Start), 1, 600_000)
	within("ScriptMemory", c.ScriptMemory, 4<<20, 16<<30)
	within("WorkerMemory", c.WorkerMemory, 2*c.ScriptMemory, 64<<30)
	within("MaxSource", int64(c.MaxSource), 1, 1<<20)
	within("MaxSchema", int64(c.MaxSchema), 1, 4<<20)
	within("MaxInput", int64(c.MaxInput), 2, 16<<20)
	within("MaxScripts", int64(c.MaxScripts), 1, 4096)
	within("Recycle", int64(c.Recycle), 1, 1<<40)
	within("IdleTime in ms", ms(c.IdleTime), 1, 1<<40)
	within("LastIdleTime in ms", ms(c.LastIdleTime), ms(c.IdleTime), 1<<40)
	within("ScriptStrikes", int64(c.ScriptStrikes), 1, 1<<30)
	within("OwnerStrikes", int64(c.OwnerStrikes), 1, 1<<30)
	within("StrikeWindow in ms", ms(c.StrikeWindow), 1, 1<<40)
	within("QuarantineFor in ms", ms(c.QuarantineFor), 1, 1<<40)
	within("CallerQuarantineFor in ms", ms(c.CallerQuarantineFor), 1, 1<<40)
	return errors.Join(errs...)
}

// workerPath returns the configured path or that of the running program. On Linux it is the kernel's link
// (/proc/self/exe), which survives an upgrade of the file, so both ends of the protocol are the same build.
func workerPath(configured string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if runtime.GOOS == "linux" {
		const self = "/proc/self/exe"
		if _, err := os.Stat(self); err == nil {
			return self, nil
		}
	}
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("script: find the program to start as a worker: %w", err)
	}
	return path, nil
}
