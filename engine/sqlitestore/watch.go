package sqlitestore

import "time"

// watchEvery is how often an idle store looks whether its files are still there. What was
// written since the last checkpoint is at risk for no longer when its log is deleted.
const watchEvery = 250 * time.Millisecond

// watch looks after the files while nobody writes, until stop.
func (w *writer) watch() {
	defer close(w.watched)
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
			w.turn.Lock()
			w.saveLog()
			w.turn.Unlock()
		}
	}
}

// saveLog folds a log that has lost its name into the file, through the descriptors that
// are still open: with the process, all that only the log holds would be lost. Whoever calls
// it has the turn. A reader may keep a part of the log from being folded; watch tries again.
func (w *writer) saveLog() {
	if w.files.isSame(w.path + "-wal") {
		w.saved = false
		return
	}
	if w.saved {
		return
	}
	if w.saved = w.checkpointWithin(longPatience, "FULL"); w.saved {
		w.log.Error("the write-ahead log was deleted or replaced while the store was open; all of it is in the database now, and nothing more is written",
			"path", w.path, "hint", "restart the server")
	}
}
