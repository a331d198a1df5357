package process

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// WatcherName is the name (argv[0]) under which a program acts as a watcher.
const WatcherName = "gavel-watch"

// Watch runs the watcher. The main of a program passed to NewWatcher must first call it with the program's arguments
// and stdin, and exit if it returns true. False means that the program was not started as a watcher.
//
// A watcher receives the running commands over its line and outlives the sender. When the line closes, for whatever
// reason, it kills those commands and all their child processes.
func Watch(args []string, line io.Reader) bool {
	if len(args) == 0 || filepath.Base(args[0]) != WatcherName {
		return false
	}
	ignoreSignals()
	watchGroups(line)
	return true
}

// watchGroups reads "+pid" and "-pid". When the line closes, it kills the remaining groups.
func watchGroups(line io.Reader) {
	groups := map[int]bool{}
	for words := bufio.NewScanner(line); words.Scan(); {
		text := words.Text()
		if pid, err := strconv.Atoi(text); err != nil || pid == 0 {
			continue
		} else if pid > 0 {
			groups[pid] = true
		} else {
			delete(groups, -pid)
		}
	}
	for pid := range groups {
		_ = killGroupOf(pid) // usually the group is empty
	}
}

// Watcher is the process that ends commands if this process is killed. It starts with the first command, and restarts
// if it has died. A nil Watcher watches nothing.
type Watcher struct {
	program string

	mu     sync.Mutex
	cmd    *exec.Cmd
	line   io.WriteCloser
	groups map[int]bool
	closed bool
}

// NewWatcher returns the watcher for a program whose main first calls Watch, or nil if program is "".
func NewWatcher(program string) *Watcher {
	if program == "" || !canEndGroups {
		return nil
	}
	return &Watcher{program: program, groups: map[int]bool{}}
}

// ensureRunning starts the watcher, if it is not running, before the command to watch. Failures are ignored: the
// kernel still kills the command itself.
func (w *Watcher) ensureRunning() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.send("") {
		return
	}
	w.killWatcher()
	if w.closed || !w.start() {
		return
	}
	for pid := range w.groups {
		w.send("+" + strconv.Itoa(pid))
	}
}

// watchGroup adds the process group of a command.
func (w *Watcher) watchGroup(pid int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[pid] = true
	w.send("+" + strconv.Itoa(pid))
}

// unwatchGroup removes a process group that has ended, because its id may be reused.
func (w *Watcher) unwatchGroup(pid int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, pid)
	w.send("-" + strconv.Itoa(pid))
}

// send writes a word to the watcher. An empty one only checks that it is alive.
func (w *Watcher) send(word string) bool {
	if w.line == nil {
		return false
	}
	_, err := io.WriteString(w.line, word+"\n")
	return err == nil
}

func (w *Watcher) start() bool {
	cmd := exec.Command(w.program) //nolint:gosec,noctx // gavel's own program, which outlives every request
	cmd.Args, cmd.Env, cmd.Dir = []string{WatcherName}, []string{"GOMAXPROCS=1"}, string(filepath.Separator)
	cmd.SysProcAttr = detachedSession()
	line, err := cmd.StdinPipe()
	if err != nil {
		return false
	}
	if cmd.Start() != nil {
		_ = line.Close()
		return false
	}
	w.cmd, w.line = cmd, line
	return true
}

// killWatcher kills the watcher, so that it does not end the groups that it watches.
func (w *Watcher) killWatcher() {
	if w.line == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.line.Close()
	w.cmd, w.line = nil, nil
}

// Close ends the watcher, which then watches nothing.
func (w *Watcher) Close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.killWatcher()
}
