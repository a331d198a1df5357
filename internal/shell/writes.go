package shell

import (
	"path"
	"strings"
)

// writer says which words of a program are files that it writes, moves or removes.
type writer struct {
	values string // options with a value that is no such file
	files  string // options whose value is one
	needs  string // one of these options must be there
	which  which
}

type which byte

const (
	noWords    which = iota // only the values of options
	allWords                // rm a b
	lastWord                // cp a b
	afterFirst              // chmod 600 a b
	firstWord               // patch a diff
)

var writers = map[string]writer{
	"rm": {which: allWords}, "rmdir": {which: allWords}, "unlink": {which: allWords}, "grm": {which: allWords},
	"shred": {which: allWords, values: "-n -s --iterations --size --random-source"}, "srm": {which: allWords}, "trash": {which: allWords},
	"trash-put": {which: allWords}, "mkdir": {which: allWords, values: "-m --mode"}, "mkfifo": {which: allWords, values: "-m"},
	"touch":    {which: allWords, values: "-d -t -r --date --reference --time"},
	"truncate": {which: allWords, values: "-s -r --size --reference"}, "fallocate": {which: allWords, values: "-l -o --length --offset"},
	"tee": {which: allWords}, "sponge": {which: allWords},
	"cp":      {which: lastWord, values: "-S --suffix", files: "-t --target-directory"},
	"mv":      {which: allWords, values: "-S --suffix", files: "-t --target-directory"},
	"ln":      {which: lastWord, values: "-S --suffix", files: "-t --target-directory"},
	"link":    {which: lastWord},
	"install": {which: lastWord, values: "-m -o -g -S --mode --owner --group --suffix", files: "-t --target-directory"},
	"rsync": {which: lastWord, values: "-e -f --rsh --exclude --include --filter --exclude-from --include-from --files-from " +
		"--chmod --chown --port --bwlimit --timeout --max-size --min-size --link-dest --compare-dest", files: "--log-file --backup-dir"},
	"scp":   {which: lastWord, values: "-c -F -i -J -l -o -P -S -D -X"},
	"dd":    {},
	"sed":   {},
	"perl":  {},
	"patch": {which: firstWord, values: "-p -i -d -D -B -z -F -V --strip --input --directory --fuzz", files: "-o -r --output --reject-file"},
	"chmod": {which: afterFirst, files: ""}, "chown": {which: afterFirst}, "chgrp": {which: afterFirst}, "setfacl": {which: allWords, values: "-m -x -M -X"},
	"curl": {files: "-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii"},
	"wget": {files: "-O --output-document -o --output-file -P --directory-prefix"},
	"sort": {files: "-o --output"}, "uniq": {which: lastWord, needs: "two"}, "split": {which: lastWord, needs: "two", values: "-a -b -C -l -n -t"},
	"tar":   {files: "-C --directory"},
	"unzip": {files: "-d"}, "gzip": {which: allWords}, "gunzip": {which: allWords}, "bzip2": {which: allWords}, "xz": {which: allWords},
	"zip":   {which: firstWord},
	"gofmt": {which: allWords, needs: "-w", values: "-r"}, "goimports": {which: allWords, needs: "-w", values: "-local"},
	"prettier": {which: allWords, needs: "-w --write"}, "eslint": {which: allWords, needs: "--fix"},
	"black": {which: allWords}, "isort": {which: allWords}, "ruff": {which: allWords, needs: "--fix format"},
	"find": {}, "ed": {which: lastWord}, "ex": {which: lastWord}, "vim": {which: lastWord}, "vi": {which: lastWord}, "nvim": {which: lastWord},
	"nano": {which: lastWord}, "emacs": {which: lastWord},
	"git": {},
}

// WritesTo are the files that the command writes, moves or removes, by redirection or by what its
// program does, resolved. A folder stands for what is in it. Programs that it does not know (a
// compiler, an interpreter) are left out: Code may say what they do.
func (c Command) WritesTo() []Word {
	var files []Word
	for _, w := range append(append([]Word(nil), c.Writes...), c.wordsWritten()...) {
		if w.Text != "" || !w.Known {
			files = append(files, c.Resolve(w))
		}
	}
	return files
}

func (c Command) wordsWritten() []Word {
	if len(c.Words) == 0 {
		return nil
	}
	name := path.Base(c.Words[0].Text)
	switch name {
	case "gsed", "gcp", "gmv", "gln", "ginstall":
		name = name[1:]
	}
	w, ok := writers[name]
	if !ok {
		return nil
	}
	args := c.Words[1:]
	switch name {
	case "git":
		return gitWrites(args)
	case "dd":
		return valuesAfter(args, "of=")
	case "sed", "perl":
		return editedInPlace(name, args)
	case "find":
		return findWrites(args)
	case "tar":
		return tarWrites(args, w)
	}
	plain, files := w.split(args)
	if w.needs != "" && w.needs != "two" && !hasAny(args, w.needs) {
		return files
	}
	switch w.which {
	case noWords:
	case allWords:
		files = append(files, plain...)
		if name == "mv" && len(plain) > 1 {
			files = append(files, intoFolder(plain)[1:]...)
		}
	case lastWord:
		if len(plain) > 1 || len(plain) == 1 && (name == "ln" || strings.Contains("ed ex vim vi nvim nano emacs", name)) {
			if !(name == "cp" || name == "ln" || name == "install") || len(files) == 0 {
				files = append(files, intoFolder(plain)...)
			}
		}
		if name == "ln" && len(plain) == 1 {
			files = []Word{{Text: path.Base(plain[0].Text), Known: plain[0].Known}}
		}
		if name == "install" && hasAny(args, "-d --directory") {
			files = append(files, plain...)
		}
		if name == "rsync" && hasAny(args, "--remove-source-files") {
			files = append(files, plain...)
		}
	case afterFirst:
		if len(plain) > 1 {
			files = append(files, plain[1:]...)
		}
	case firstWord:
		if len(plain) > 0 {
			files = append(files, plain[0])
		} else if name == "patch" {
			files = append(files, Word{}) // the patch says which
		}
	}
	return files
}

// intoFolder is the target of a copy, and what the copies would be called if it is a folder.
func intoFolder(plain []Word) []Word {
	target := plain[len(plain)-1]
	files := []Word{target}
	for _, w := range plain[:len(plain)-1] {
		files = append(files, Word{Text: path.Join(target.Text, path.Base(w.Text)), Known: target.Known && w.Known})
	}
	return files
}

// split parts the arguments into plain words and the values of options that are files.
func (w writer) split(args []Word) (plain, files []Word) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Text == "--" && a.Known:
			return append(plain, args[i+1:]...), files
		case len(a.Text) < 2 || a.Text[0] != '-':
			plain = append(plain, a)
		default:
			o, value, takes := splitOption(a.Text, w.values+" "+w.files)
			if strings.HasPrefix(a.Text, "--") {
				_, value, _ = strings.Cut(a.Text, "=")
			}
			given := Word{Text: value, Known: a.Known}
			if takes && i+1 < len(args) {
				i++
				given = args[i]
			}
			if w.files != "" && hasAny([]Word{{Text: o}}, w.files) {
				files = append(files, given)
			}
		}
	}
	return plain, files
}

// hasAny reports whether one of the options stands among the words.
func hasAny(args []Word, options string) bool {
	for _, a := range args {
		name, _, _ := strings.Cut(a.Text, "=")
		for o := range strings.FieldsSeq(options) {
			if name == o || len(o) == 2 && len(name) > 1 && name[0] == '-' && name[1] != '-' && strings.Contains(name, o[1:]) {
				return true
			}
		}
	}
	return false
}

func valuesAfter(args []Word, prefix string) []Word {
	var files []Word
	for _, a := range args {
		if v, ok := strings.CutPrefix(a.Text, prefix); ok {
			files = append(files, Word{Text: v, Known: a.Known})
		}
	}
	return files
}

// editedInPlace are the files of sed -i and perl -i.
func editedInPlace(name string, args []Word) []Word {
	w := writer{values: "-e -f -l --expression --file --line-length"}
	if name == "perl" {
		w.values = "-e -E -I -M -m"
	}
	inPlace, program := false, false
	for _, a := range args {
		t := a.Text
		switch {
		case !strings.HasPrefix(t, "-") || t == "--":
		case strings.HasPrefix(t, "--in-place"):
			inPlace = true
		case strings.HasPrefix(t, "--expression"), strings.HasPrefix(t, "--file"):
			program = true
		case !strings.HasPrefix(t, "--"):
			o, _, _ := splitOption(t, "-e -E -f -I -i")
			inPlace = inPlace || strings.HasPrefix(t, "-i") || o == "-i" || strings.Contains(t, "i") && !strings.HasPrefix(t, "-I") && !strings.HasPrefix(t, "-e")
			program = program || strings.ContainsAny(t, "eEf")
		}
	}
	if !inPlace {
		return nil
	}
	plain, _ := w.split(args)
	if !program && len(plain) > 0 {
		plain = plain[1:]
	}
	return plain
}

// findWrites are the folders in which find -delete removes, and the files that it prints to.
func findWrites(args []Word) []Word {
	var starts, files []Word
	begun, deletes := false, false
	for i, a := range args {
		begun = begun || strings.HasPrefix(a.Text, "-") && len(a.Text) > 2 || a.Text == "(" || a.Text == "!"
		switch {
		case !begun && !strings.HasPrefix(a.Text, "-"):
			starts = append(starts, a)
		case a.Text == "-delete":
			deletes = true
		case (a.Text == "-fprint" || a.Text == "-fprint0" || a.Text == "-fls" || a.Text == "-fprintf") && i+1 < len(args):
			files = append(files, args[i+1])
		}
	}
	if deletes {
		if len(starts) == 0 {
			starts = []Word{{Text: ".", Known: true}}
		}
		files = append(files, starts...)
	}
	return files
}

// tarWrites are the folder into which tar unpacks, the archive that it makes, and what it removes.
func tarWrites(args []Word, w writer) []Word {
	if len(args) == 0 {
		return nil
	}
	mode, archive := "", Word{}
	for i, a := range args {
		t := a.Text
		if i == 0 && !strings.HasPrefix(t, "-") {
			t = "-" + t
		}
		switch {
		case t == "--extract" || t == "--get":
			mode += "x"
		case t == "--create":
			mode += "c"
		case strings.HasPrefix(t, "--file="):
			archive = Word{Text: t[len("--file="):], Known: a.Known}
		case strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--"):
			mode += t[1:]
			if strings.HasSuffix(t, "f") && i+1 < len(args) {
				archive = args[i+1]
			}
		}
	}
	plain, files := w.split(args)
	switch {
	case hasAny(args, "--remove-files"):
		return append(plain, files...)
	case strings.ContainsAny(mode, "cru") && !strings.Contains(mode, "x"):
		return []Word{archive}
	case strings.Contains(mode, "x"):
		if len(files) == 0 {
			files = []Word{{Text: ".", Known: true}}
		}
		return files
	}
	return nil
}

// gitWrites are the files of the working tree that a command of git changes.
func gitWrites(args []Word) []Word {
	if len(args) == 0 {
		return nil
	}
	everything := []Word{{Text: ".", Known: true}}
	rest := args[1:]
	w := writer{values: "-m -F -C -c -s -b -B --source --message --conflict --pathspec-from-file --directory --exclude --include -X --strategy -p"}
	plain, _ := w.split(rest)
	switch args[0].Text {
	case "rm", "mv", "restore":
		if args[0].Text == "rm" && hasAny(rest, "--cached") || args[0].Text == "restore" && hasAny(rest, "--staged -S") && !hasAny(rest, "--worktree -W") {
			return nil
		}
		return plain
	case "checkout":
		for i, a := range rest {
			if a.Text == "--" {
				return rest[i+1:]
			}
		}
		if hasAny(rest, "-b -B --orphan") {
			return nil
		}
		if len(plain) < 2 { // a branch, or a file
			return append(everything, plain...)
		}
		return plain
	case "reset":
		if hasAny(rest, "--hard --merge --keep") {
			return everything
		}
	case "clean":
		if hasAny(rest, "-n --dry-run") {
			return nil
		}
		if len(plain) > 0 {
			return plain
		}
		return everything
	case "stash":
		if len(plain) > 0 && strings.Contains(" list show drop clear create store ", " "+plain[0].Text+" ") {
			return nil
		}
		return everything
	case "apply":
		if hasAny(rest, "--check --stat --numstat --summary --cached") {
			return nil
		}
		return everything
	case "am", "cherry-pick", "revert", "merge", "rebase", "pull", "switch", "read-tree", "checkout-index", "bisect", "sparse-checkout":
		return everything
	}
	return nil
}
