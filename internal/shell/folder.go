package shell

import (
	"path"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

const maxFolders = 6 // in which a command may run

// folders are where the shell may be: cd may have failed. One that is not known stands for any.
func (r *reader) folders() []Word {
	v := r.names[key{kindFolder, ""}]
	if v == nil {
		return []Word{{}}
	}
	return append([]Word{{Text: v.text, Known: true}}, v.list...)
}

// changeFolder goes to another folder; unsure says that the shell goes on where it is if that fails.
func (r *reader) changeFolder(to Word, unsure bool) {
	at := r.folders()
	if !to.Known || !at[0].Known && !path.IsAbs(to.Text) {
		r.set(key{kindFolder, ""}, nil)
		return
	}
	var next []Word
	for _, f := range at {
		if w := (Word{Text: joinPath(f.Text, to.Text), Known: true}); !slices.Contains(next, w) {
			next = append(next, w)
		}
	}
	failures := 0
	for _, f := range at {
		if unsure && !slices.Contains(next, f) {
			next = append(next, f)
			failures++
		}
	}
	r.setFolders(next, failures)
}

// setFolders notes where the shell may be; the last ones are those where it is if it could not go.
func (r *reader) setFolders(folders []Word, failures int) {
	if len(folders) > maxFolders || !allKnown(folders) {
		r.set(key{kindFolder, ""}, nil)
		return
	}
	r.set(key{kindFolder, ""}, &value{text: folders[0].Text, list: folders[1:], failures: failures})
}

// mergeFolders is where the shell may be after what may not have run.
func (r *reader) mergeFolders(old *value) {
	if old == nil {
		r.set(key{kindFolder, ""}, nil)
		return
	}
	all := r.folders()
	for _, f := range append([]Word{{Text: old.text, Known: true}}, old.list...) {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	r.setFolders(all, 0)
}

// succeed notes that a statement did not fail: && follows, or || exit.
func (r *reader) succeed(s *syntax.Stmt) {
	v := r.names[key{kindFolder, ""}]
	if program := programWord(s); v == nil || v.failures == 0 || program != "cd" && program != "pushd" {
		return
	}
	r.set(key{kindFolder, ""}, &value{text: v.text, list: v.list[:len(v.list)-v.failures]})
}

// isExit reports whether a statement ends what is running.
func isExit(s *syntax.Stmt) bool {
	if block, ok := s.Cmd.(*syntax.Block); ok && len(block.Stmts) > 0 {
		s = block.Stmts[len(block.Stmts)-1]
	}
	program := programWord(s)
	return program == "exit" || program == "return"
}

func programWord(s *syntax.Stmt) string {
	if call, ok := s.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 && len(call.Assigns) == 0 && !s.Negated {
		return call.Args[0].Lit()
	}
	return ""
}

func joinPath(folder, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	if at := path.Join(folder, name); at != "." {
		return at
	}
	return ""
}

// resolve is what a word may name, as seen from where the text begins to run.
func (r *reader) resolve(w Word) []Word {
	var files []Word
	for _, f := range r.folders() {
		file := Command{Folder: f}.Resolve(w)
		if file.Known {
			file.Text = path.Clean(file.Text)
		}
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}
