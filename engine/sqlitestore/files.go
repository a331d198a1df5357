package sqlitestore

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// files are the three files of an open store as they were when it was opened.
//
// They are looked at by name only: to open and close one of them would drop every
// POSIX lock that SQLite holds on it in this process.
type files map[string]fs.FileInfo

func filesOf(path string) (files, error) {
	f := files{}
	if runtime.GOOS == "windows" {
		return f, nil // an open file can be neither moved nor deleted there
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		f[name] = info
	}
	return f, nil
}

// isSame reports whether a name still leads to the file that is open.
func (f files) isSame(name string) bool {
	was, ok := f[name]
	if !ok {
		return true // where files cannot be taken away
	}
	now, err := os.Stat(name)
	return err == nil && os.SameFile(was, now)
}

// checkPresent returns ErrGone unless each name still leads to the file that is open.
// SQLite would go on writing into files that have no name.
func (f files) checkPresent() error {
	for name, was := range f {
		now, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("%w (%w)", ErrGone, err)
		}
		if !os.SameFile(was, now) {
			return fmt.Errorf("%w (%s is another file)", ErrGone, name)
		}
	}
	return nil
}
