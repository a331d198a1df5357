package worker

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/gavel-mcp/gavel/validators/script"
)

var hardening = []protection{{protectJob, joinJob}, {name: protectLandlock}, {name: protectSeccomp}}

func prepareProcess() {}

// joinJob puts this process into a new job object, which limits its memory, forbids child processes, and ends
// the process when the last handle is closed.
func joinJob(setup script.Setup) error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_PROCESS_MEMORY | windows.JOB_OBJECT_LIMIT_ACTIVE_PROCESS |
				windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION,
			ActiveProcessLimit: 1,
		},
		// The Go runtime commits some memory before this point.
		ProcessMemoryLimit: uintptr(setup.WorkerMemory + 64<<20),
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		return errors.Join(err, windows.CloseHandle(job))
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return errors.Join(err, windows.CloseHandle(job))
	}
	return nil // the handle stays open until the process ends
}

// processorTime is not implemented on Windows, so no script counts as starved.
func processorTime() time.Duration { return 0 }
