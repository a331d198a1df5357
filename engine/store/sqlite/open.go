package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

const driverName = "sqlite"

// applicationID is the SQLite application id of stores ("gavl").
const applicationID = 0x6761766c

// minSize is the smallest page size. SQLite treats a smaller file as empty and would overwrite it.
const minSize = 512

//go:embed schema.sql
var schemaScript string

// schemaVersion is the version of schema.sql. It is stored in user_version, and files with another version are
// rejected.
const schemaVersion = 1

// prepareFile checks that the file is regular and on a suitable disk, creates it if it is missing, and returns its
// absolute path.
//
// It never opens an existing file: closing it would drop every POSIX lock that SQLite holds on it in this process.
func prepareFile(cfg Config) (string, error) {
	if cfg.Path == "" {
		return "", errors.New("no path")
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if name := cfg.fileSystem(dir); name != "" {
		return "", fmt.Errorf("%w (%s)", ErrNetworkFS, name)
	}
	if err := checkFiles(path); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return path, errors.Join(f.Sync(), f.Close(), record.SyncDir(dir))
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%w (not a regular file)", ErrNotAStore)
	case info.Size() > 0 && info.Size() < minSize:
		return "", fmt.Errorf("%w (%d bytes)", ErrNotAStore, info.Size())
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		cfg.Logger.Warn("others can read the store; chmod 600 keeps it private",
			"path", path, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return path, nil
}

func dataSourceName(path string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas}
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + q.Encode()
}

// writerDSN leaves busy_timeout at 0: the writer waits for the lock itself, so that direct writes and Close need not
// wait for it. eraseKeyRemnants removes the data keys that secure_delete misses.
func writerDSN(cfg Config) string {
	return dataSourceName(cfg.Path, "synchronous(FULL)", "wal_autocheckpoint("+strconv.Itoa(cfg.autocheckpoint)+")", "cache_size(-32000)",
		"journal_size_limit(67108864)", "temp_store(memory)", "foreign_keys(ON)", "secure_delete(FAST)")
}

// checkpointerDSN also leaves busy_timeout at 0.
func checkpointerDSN(cfg Config) string {
	return dataSourceName(cfg.Path, "synchronous(FULL)", "wal_autocheckpoint(0)", "cache_size(-256)", "journal_size_limit(67108864)")
}

func readerDSN(cfg Config) string {
	return dataSourceName(cfg.Path, "busy_timeout("+strconv.FormatInt(cfg.BusyTimeout.Milliseconds(), 10)+")",
		"query_only(ON)", "cache_size(-8000)", "temp_store(memory)")
}

// setUp connects to a store and creates the schema in an empty file. It leaves a file that is not a store unchanged.
// Any step may fail because another process is busy; repeating all of them is harmless.
func setUp(ctx context.Context, conn *sql.Conn) error {
	if err := identifyStore(ctx, conn); err != nil {
		return err
	}
	if err := useWAL(ctx, conn); err != nil {
		return err
	}
	return createSchema(ctx, conn)
}

// retryWhileBusy repeats do while another process holds a lock.
func retryWhileBusy(ctx context.Context, busy time.Duration, do func() error) error {
	for end, wait := time.Now().Add(busy), minLockWait; ; wait = min(2*wait, maxLockWait) {
		err := do()
		if !isBusy(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// identifyStore accepts a store or an empty file, and rejects all others. It checks within one transaction, because
// another process may be creating the store.
func identifyStore(ctx context.Context, conn *sql.Conn) (err error) {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if empty, err := isEmptyFile(ctx, tx); err != nil || empty {
		return err
	}
	return checkIdentity(ctx, tx, "main")
}

// checkIdentity rejects a file that is not a store of this version. of is the schema name of the file on the
// connection.
func checkIdentity(ctx context.Context, on querier, of string) error {
	var id, version int
	if err := on.QueryRowContext(ctx, "PRAGMA "+of+".application_id").Scan(&id); err != nil {
		return err
	}
	if err := on.QueryRowContext(ctx, "PRAGMA "+of+".user_version").Scan(&version); err != nil {
		return err
	}
	switch {
	case id != applicationID:
		return fmt.Errorf("%w (a SQLite file of another application)", ErrNotAStore)
	case version != schemaVersion:
		return fmt.Errorf("%w: schema %d, this program reads %d", store.ErrOtherSchema, version, schemaVersion)
	}
	return nil
}

func useWAL(ctx context.Context, conn *sql.Conn) error {
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system does not allow a write-ahead log (journal mode stays %q)", mode)
	}
	return nil
}

// createSchema creates the tables in an empty file under an exclusive lock.
func createSchema(ctx context.Context, conn *sql.Conn) (err error) {
	if empty, err := isEmptyFile(ctx, conn); err != nil || !empty {
		return err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // the first error is returned
		}
	}()
	empty, err := isEmptyFile(ctx, conn) // another process may have been first
	switch {
	case err != nil:
		return err
	case empty:
		_, err = conn.ExecContext(ctx, schemaScript+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, schemaVersion))
	default:
		err = checkIdentity(ctx, conn, "main")
	}
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

func isEmptyFile(ctx context.Context, on querier) (empty bool, err error) {
	const query = `SELECT application_id = 0 AND user_version = 0 AND NOT EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_application_id, pragma_user_version`
	err = on.QueryRowContext(ctx, query).Scan(&empty)
	return empty, err
}
