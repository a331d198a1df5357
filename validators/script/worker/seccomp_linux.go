//go:build linux && (amd64 || arm64)

package worker

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gavel-mcp/gavel/validators/script"
)

// allowed lists all system calls that the Go runtime needs to compute, to allocate memory and to use open
// pipes. They also suffice for the C library's threads in builds that link it.
var allowed = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_READV, unix.SYS_WRITEV,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MREMAP,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_FUTEX, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_FCNTL,
	unix.SYS_GETRANDOM, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_GETRUSAGE,
}, map[string][]uint32{ // by number: calls that exist only on one architecture
	"amd64": {158, 232}, // arch_prctl, epoll_wait
	"arm64": {73},       // ppoll
}[runtime.GOARCH]...)

// auditArch is the kernel's constant for this processor's system call table.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// Offsets into struct seccomp_data. Both architectures are little endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // 8 bytes each; the low half comes first
)

// filterSystemCalls allows only the listed system calls, on all threads. All others fail with EPERM: opening
// files, sockets, executing, tracing, making memory executable, starting processes, signalling other
// processes.
func filterSystemCalls(script.Setup) error {
	runtime.LockOSThread() // TSYNC copies this thread's no_new_privs to the others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := seccompProgram(uint32(unix.Getpid()))                         //nolint:gosec // a process id
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // some 100
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	switch {
	case e != 0:
		return e
	case thread != 0: // the id of a thread that could not be synchronised
		return unix.ESRCH
	}
	return nil
}

// seccompProgram returns the filter as BPF instructions.
func seccompProgram(pid uint32) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		anyBit = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
	)
	refuse := func(e unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(e)} //nolint:gosec // below 4096
	}
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	f := []unix.SockFilter{
		{Code: load, K: offArch},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS}, // a foreign system call table
		{Code: load, K: offNumber},
	}
	for _, number := range allowed {
		f = append(f, unix.SockFilter{Code: equal, K: number, Jf: 1}, allow)
	}
	// Calls that are allowed with some arguments: five instructions each.
	conditional := func(number, argument uint32, test unix.SockFilter) {
		f = append(f, unix.SockFilter{Code: equal, K: number, Jf: 4},
			unix.SockFilter{Code: load, K: offArgs + 8*argument}, test, allow, refuse(unix.EPERM))
	}
	conditional(unix.SYS_CLONE, 0, unix.SockFilter{Code: anyBit, K: unix.CLONE_THREAD, Jf: 1}) // threads, not processes
	conditional(unix.SYS_MMAP, 2, unix.SockFilter{Code: anyBit, K: unix.PROT_EXEC, Jt: 1})
	conditional(unix.SYS_MPROTECT, 2, unix.SockFilter{Code: anyBit, K: unix.PROT_EXEC, Jt: 1})
	conditional(unix.SYS_TGKILL, 0, unix.SockFilter{Code: equal, K: pid, Jf: 1}) // the runtime preempts threads by signal
	return append(f,
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1}, refuse(unix.ENOSYS), // the C library then uses clone
		refuse(unix.EPERM))
}
