package process

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// WatcherName is the name (argv[0]) under which a program is a watcher.
const WatcherName = "gavel-watch"

// Watch is all that a watcher does. The main of a program that NewWatcher is given
// begins with it, with the program's arguments and stdin, and ends where it reports
// true; false is that the program was started as something else.
//
// A watcher is told on its line which commands run, and outlives whoever tells it: when
// the line is cut, however that came about, it ends the commands with all that they
// have started.
func Watch(args []string, line io.Reader) bool {
	if len(args) == 0 || filepath.Base(args[0]) != WatcherName {
		return false
	}
	ignoreSignals()
	watchGroups(line)
	return true
}

// watchGroups reads "+pid" and "-pid" and ends, with the line, the groups that are left.
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
		_ = killGroupOf(pid) // mostly nobody is left
	}
}

// Watcher is the process that ends the commands when this one is killed. A nil one
// watches nothing. It is started with the first command, and restarted when it has died.
type Watcher struct {
	program string

	mu     sync.Mutex
	cmd    *exec.Cmd
	line   io.WriteCloser
	groups map[int]bool
	closed bool
}

// NewWatcher makes the watcher of a program whose main begins with Watch; "" is none.
func NewWatcher(program string) *Watcher {
	if program == "" || !groupsEnd {
		return nil
	}
	return &Watcher{program: program, groups: map[int]bool{}}
}

// ensureRunning starts the watcher where none is there, before the command that it is to
// watch. Nothing that fails is worth a move: the kernel still ends the command itself.
func (w *Watcher) ensureRunning() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.send("") {
		return
	}
	w.hangUp()
	if w.closed || !w.start() {
		return
	}
	for pid := range w.groups {
		w.send("+" + strconv.Itoa(pid))
	}
}

// watchGroup has the group of a command watched.
func (w *Watcher) watchGroup(pid int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[pid] = true
	w.send("+" + strconv.Itoa(pid))
}

// unwatchGroup forgets a group that has ended: its number may become
// another's.
func (w *Watcher) unwatchGroup(pid int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, pid)
	w.send("-" + strconv.Itoa(pid))
}

// send writes a word to the watcher; an empty one checks that it is alive.
func (w *Watcher) send(word string) bool {
	if w.line == nil {
		return false
	}
	_, err := io.WriteString(w.line, word+"\n")
	return err == nil
}

func (w *Watcher) start() bool {
	cmd := exec.Command(w.program) //nolint:gosec,noctx // this program itself, which outlives every request
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

// hangUp ends the watcher. Whatever it watches still is ended by others.
func (w *Watcher) hangUp() {
	if w.line == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.line.Close()
	w.cmd, w.line = nil, nil
}

// Close ends the watcher; it watches nothing from then on.
func (w *Watcher) Close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.hangUp()
}
