package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// files identifies the three files of an open store as they were when it was opened.
//
// They are checked by name only: opening and closing one of them would drop every POSIX lock that SQLite holds on it
// in this process.
type files map[string]fileID

func filesOf(path string, suffixes ...string) (files, error) {
	f := files{}
	for _, suffix := range suffixes {
		id, err := identifyFile(path + suffix)
		if err != nil {
			return nil, err
		}
		f[path+suffix] = id
	}
	return f, nil
}

// isSame reports whether a name still refers to the open file.
func (f files) isSame(name string) bool { return f.check(name) == nil }

// isOpen reports whether file is the one that was opened under a name.
func (f files) isOpen(name string, file *os.File) bool {
	was, ok := f[name]
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	id, err := idOf(info)
	return err == nil && was.isSame(id)
}

// checkPresent returns ErrGone unless every name still refers to the open file. SQLite would continue to write to
// files that have no name.
func (f files) checkPresent() error {
	for name := range f {
		if err := f.check(name); err != nil {
			return err
		}
	}
	return nil
}

func (f files) check(name string) error {
	was, ok := f[name]
	if !ok {
		return nil // this platform does not allow open files to be removed
	}
	now, err := identifyFile(name)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrGone, err)
	}
	if !was.isSame(now) {
		return fmt.Errorf("%w (%s is another file)", ErrGone, name)
	}
	return nil
}

// ErrLostFile is returned if the write-ahead log exists but its database is missing or empty. SQLite would delete the
// log and create a new database.
var ErrLostFile = errors.New("the database is missing or empty, but its write-ahead log exists; " +
	"restore the database, or replay the log with gavel repair")

// checkFiles rejects a database that is missing or empty next to a log. It checks the log first: a store that another
// process is creating gets its log last.
func checkFiles(path string) error {
	size := fileSize(path + "-wal")
	if size == 0 {
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return fmt.Errorf("%w (%s-wal, %d bytes)", ErrLostFile, path, size)
	}
	return nil
}

// IsOnlyLogLeft reports whether only the write-ahead log of a store is left.
func IsOnlyLogLeft(path string) bool { return checkFiles(path) != nil }

// watchEvery is how often an idle store checks that its files still exist. It limits how long writes since the last
// checkpoint are at risk when the log is deleted.
const watchEvery = 250 * time.Millisecond

// watch checks the files while no writes happen, until stop.
func (w *writer) watch() {
	defer close(w.watchEnded)
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.ending:
			return
		case <-ticker.C:
			if w.files.isSame(w.path + "-wal") {
				continue
			}
			w.mu.Lock()
			w.saveLog()
			w.mu.Unlock()
		}
	}
}

// saveLog checkpoints a log that has lost its name into the database, through the descriptors that are still open.
// Otherwise the writes that only the log holds would be lost when the process ends. Callers must hold turn. Readers
// may keep part of the log from being checkpointed; watch tries again.
func (w *writer) saveLog() {
	if w.files.isSame(w.path + "-wal") {
		w.isLogSaved = false
		return
	}
	if w.isLogSaved {
		return
	}
	if w.isLogSaved = w.checkpointWithin(longReaderWait, "FULL"); w.isLogSaved {
		w.log.Error("the write-ahead log was deleted or replaced while the store was open; its content is in the database, and the store no longer writes",
			"path", w.path, "hint", "restart the server")
	}
}
