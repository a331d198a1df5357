package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrLostFile says that the write-ahead log is there and the database that it belongs to is missing
// or empty. SQLite would delete the log and begin a new database.
var ErrLostFile = errors.New("the database is missing or empty, but its write-ahead log is there; " +
	"put the database back, or replay the log with gavel repair")

// checkFiles refuses a database that is missing or empty next to a log. It looks at the log
// first: a store that another process is creating gets its log last.
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

// IsLogAlone reports whether all that is left of a store is its write-ahead log.
func IsLogAlone(path string) bool { return checkFiles(path) != nil }
