package telemetry

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// runtimeValues are figures of the Go runtime under the names that dashboards know; a value is the sum of its sources.
var runtimeValues = []struct {
	name, help string
	kind       kind
	sources    []string
}{
	{"go_gc_gogc_percent", "Heap size target percentage, as GOGC sets it.", gauge, []string{"/gc/gogc:percent"}},
	{"go_gc_gomemlimit_bytes", "Memory limit of the Go runtime, as GOMEMLIMIT sets it.", gauge, []string{"/gc/gomemlimit:bytes"}},
	{"go_goroutines", "Number of goroutines that currently exist.", gauge, []string{"/sched/goroutines:goroutines"}},
	{"go_sched_gomaxprocs_threads", "Threads that can execute Go code at once (GOMAXPROCS).", gauge, []string{"/sched/gomaxprocs:threads"}},
	{"go_memstats_alloc_bytes", "Bytes allocated in heap and currently in use.", gauge, []string{"/memory/classes/heap/objects:bytes"}},
	{"go_memstats_alloc_bytes_total", "Bytes allocated in heap until now, even if released already.", counter, []string{"/gc/heap/allocs:bytes"}},
	{"go_memstats_buck_hash_sys_bytes", "Bytes used by the profiling bucket hash table.", gauge, []string{"/memory/classes/profiling/buckets:bytes"}},
	{"go_memstats_frees_total", "Heap objects freed.", counter, []string{"/gc/heap/frees:objects", "/gc/heap/tiny/allocs:objects"}},
	{"go_memstats_gc_sys_bytes", "Bytes used for garbage collection system metadata.", gauge, []string{"/memory/classes/metadata/other:bytes"}},
	{"go_memstats_heap_alloc_bytes", "Heap bytes allocated and currently in use, as go_memstats_alloc_bytes.", gauge, []string{"/memory/classes/heap/objects:bytes"}},
	{"go_memstats_heap_idle_bytes", "Heap bytes waiting to be used.", gauge, []string{"/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes"}},
	{"go_memstats_heap_inuse_bytes", "Heap bytes in use.", gauge, []string{"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes"}},
	{"go_memstats_heap_objects", "Objects currently allocated.", gauge, []string{"/gc/heap/objects:objects"}},
	{"go_memstats_heap_released_bytes", "Heap bytes released to the system.", gauge, []string{"/memory/classes/heap/released:bytes"}},
	{"go_memstats_heap_sys_bytes", "Heap bytes obtained from the system.", gauge, []string{
		"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes",
	}},
	{"go_memstats_mallocs_total", "Heap objects allocated, both live and collected.", counter, []string{"/gc/heap/allocs:objects", "/gc/heap/tiny/allocs:objects"}},
	{"go_memstats_mcache_inuse_bytes", "Bytes in use by mcache structures.", gauge, []string{"/memory/classes/metadata/mcache/inuse:bytes"}},
	{"go_memstats_mcache_sys_bytes", "Bytes obtained from the system for mcache structures.", gauge, []string{"/memory/classes/metadata/mcache/inuse:bytes", "/memory/classes/metadata/mcache/free:bytes"}},
	{"go_memstats_mspan_inuse_bytes", "Bytes in use by mspan structures.", gauge, []string{"/memory/classes/metadata/mspan/inuse:bytes"}},
	{"go_memstats_mspan_sys_bytes", "Bytes obtained from the system for mspan structures.", gauge, []string{"/memory/classes/metadata/mspan/inuse:bytes", "/memory/classes/metadata/mspan/free:bytes"}},
	{"go_memstats_next_gc_bytes", "Heap bytes at which the next garbage collection takes place.", gauge, []string{"/gc/heap/goal:bytes"}},
	{"go_memstats_other_sys_bytes", "Bytes used for other system allocations.", gauge, []string{"/memory/classes/other:bytes"}},
	{"go_memstats_stack_inuse_bytes", "Bytes in use by the stack allocator.", gauge, []string{"/memory/classes/heap/stacks:bytes"}},
	{"go_memstats_stack_sys_bytes", "Bytes obtained from the system for the stack allocator.", gauge, []string{"/memory/classes/heap/stacks:bytes", "/memory/classes/os-stacks:bytes"}},
	{"go_memstats_sys_bytes", "Bytes obtained from the system.", gauge, []string{"/memory/classes/total:bytes"}},
}

func (p page) tellRuntime() {
	for _, v := range runtimeValues {
		samples := make([]metrics.Sample, len(v.sources))
		for i, source := range v.sources {
			samples[i].Name = source
		}
		metrics.Read(samples)
		var sum float64
		for i := range samples {
			if samples[i].Value.Kind() == metrics.KindUint64 { // a later runtime may not know the name
				sum += float64(samples[i].Value.Uint64())
			}
		}
		p.tell(v.name, v.help, v.kind, sum)
	}
	threads, _ := runtime.ThreadCreateProfile(nil)
	p.tell("go_threads", "Number of threads created.", gauge, float64(threads))
	p.tell("go_info", "1, with the version of Go.", gauge, 1, "version", runtime.Version())

	pauses := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&pauses)
	last := 0.0
	if !pauses.LastGC.IsZero() {
		last = float64(pauses.LastGC.UnixNano()) / 1e9
	}
	p.tell("go_memstats_last_gc_time_seconds", "Seconds since 1970 of the last garbage collection.", gauge, last)
	for i, pause := range pauses.PauseQuantiles {
		p.tell("go_gc_duration_seconds", "Pauses of the whole program in garbage collections.", summary, pause.Seconds(), "quantile", formatValue(float64(i)/4))
	}
	whole := p["go_gc_duration_seconds"].series
	whole["_sum"] = &series{value: pauses.PauseTotal.Seconds()}
	whole["_count"] = &series{value: float64(pauses.NumGC)}
}

// tellProcess tells what Linux knows of the process; nothing elsewhere.
func (p page) tellProcess() {
	const ticks = 100 // USER_HZ, in which Linux tells CPU time on every platform of Go's
	stat, _ := os.ReadFile("/proc/self/stat")
	// The name in the second field may hold blanks and brackets.
	if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 21 {
		field := func(n int) float64 { // as proc(5) counts them
			v, _ := strconv.ParseFloat(fields[n-3], 64)
			return v
		}
		p.tell("process_cpu_seconds_total", "User and system CPU time spent in seconds.", counter, (field(14)+field(15))/ticks)
		p.tell("process_virtual_memory_bytes", "Virtual memory size in bytes.", gauge, field(23))
		p.tell("process_resident_memory_bytes", "Resident memory size in bytes.", gauge, field(24)*float64(os.Getpagesize()))
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.tell("process_open_fds", "Open file descriptors.", gauge, float64(len(files)-1)) // less the one that lists them
	}
	limits, _ := os.ReadFile("/proc/self/limits")
	for line := range strings.Lines(string(limits)) {
		for name, m := range map[string][2]string{
			"Max open files":    {"process_max_fds", "Most file descriptors that may be open."},
			"Max address space": {"process_virtual_memory_max_bytes", "Most virtual memory in bytes."},
		} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				most, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
				if err != nil {
					most = 1<<64 - 1 // unlimited
				}
				p.tell(m[0], m[1], gauge, float64(most))
			}
		}
	}
}
