package shell

import (
	"path"
	"regexp"
	"strings"
)

// interpreter is a program that runs text in a language that is not read here.
type interpreter struct {
	texts  string // options whose value is a program
	values string // other options with a value
	first  bool   // the first word that is no option is a program, where no option gave one
	files  bool   // that word is a file with a program
	always bool   // all its words may be program: an editor, a database
	input  bool   // without a word, its input is a program
}

var interpreters = map[string]interpreter{
	"python":    {texts: "-c", values: "-m -W -X --check-hash-based-pycs", files: true, input: true},
	"pypy":      {texts: "-c", values: "-m -W -X", files: true, input: true},
	"ipython":   {texts: "-c", files: true, input: true},
	"node":      {texts: "-e -p --eval --print -pe", values: "-r --require --import --loader -C", files: true, input: true},
	"nodejs":    {texts: "-e -p --eval --print", values: "-r --require --import", files: true, input: true},
	"bun":       {texts: "-e --eval -p --print", files: true},
	"deno":      {texts: "-e --eval", always: true},
	"ts-node":   {texts: "-e --eval -p", files: true, input: true},
	"tsx":       {texts: "-e --eval -p", files: true},
	"perl":      {texts: "-e -E", values: "-I -M -m", files: true, input: true},
	"ruby":      {texts: "-e", values: "-I -r -C", files: true, input: true},
	"irb":       {always: true, input: true},
	"php":       {texts: "-r -B -R -E --run", values: "-d -c", files: true, input: true},
	"lua":       {texts: "-e", values: "-l", files: true, input: true},
	"luajit":    {texts: "-e", values: "-l", files: true, input: true},
	"tclsh":     {files: true, input: true},
	"expect":    {texts: "-c", files: true, input: true},
	"R":         {texts: "-e", always: true, input: true},
	"Rscript":   {texts: "-e", files: true},
	"julia":     {texts: "-e -E --eval --print", files: true, input: true},
	"elixir":    {texts: "-e --eval", files: true},
	"erl":       {texts: "-eval", always: true},
	"ghc":       {texts: "-e", always: true},
	"groovy":    {texts: "-e", files: true},
	"scala":     {texts: "-e", files: true},
	"jshell":    {always: true, input: true},
	"guile":     {texts: "-c", files: true, input: true},
	"racket":    {texts: "-e --eval", files: true},
	"sbcl":      {texts: "--eval", always: true, input: true},
	"osascript": {texts: "-e", files: true, input: true},
	"awk":       {first: true, values: "-F -v -f -i --assign --field-separator --file --include"},
	"gawk":      {first: true, values: "-F -v -f -i --assign --field-separator --file --include"},
	"mawk":      {first: true, values: "-F -v -f"},
	"nawk":      {first: true, values: "-F -v -f"},
	"sed":       {texts: "-e --expression", first: true, values: "-f --file -l"},
	"gsed":      {texts: "-e --expression", first: true, values: "-f --file -l"},
	"make":      {always: true, input: true},
	"gmake":     {always: true, input: true},
	"vi":        {always: true}, "vim": {always: true}, "nvim": {always: true}, "view": {always: true},
	"ex": {always: true, input: true}, "ed": {always: true, input: true}, "emacs": {always: true}, "nano": {always: true},
	"sqlite3": {always: true, input: true}, "psql": {always: true, input: true}, "mysql": {always: true, input: true},
	"gdb": {always: true, input: true}, "lldb": {always: true, input: true},
	"ftp": {always: true, input: true}, "sftp": {always: true, input: true},
	"m4": {always: true, input: true}, "bc": {}, "dc": {always: true, input: true}, "gnuplot": {texts: "-e", files: true, input: true},
	"octave": {texts: "--eval", files: true, input: true},
}

var version = regexp.MustCompile(`^(python|pypy|lua|ruby|perl|php|node|tclsh)[0-9][0-9.]*$`)

// interpreterOf is the interpreter of a name, of any version.
func interpreterOf(name string) (interpreter, bool) {
	if m := version.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	i, ok := interpreters[name]
	return i, ok
}

// runInterpreter keeps the program that an interpreter is given. What it reads and cannot be known is
// unknown; a file that is there is its program.
func (r *reader) runInterpreter(i interpreter, words []Word, at place) stream {
	name := path.Base(words[0].Text)
	var code []string
	given := false
	take := func(w Word) {
		given = true
		code = append(code, w.Text)
		if !w.Known && (!i.first || w.Text == "") && !i.always {
			r.unknown("%s runs a program that is not known before it runs", name)
		}
	}
	rest := words[1:]
	input := i.input
	for len(rest) > 0 {
		w := rest[0]
		rest = rest[1:]
		if i.always && (!isMake(name) || strings.ContainsAny(w.Text, " =:;$\t")) {
			code = append(code, w.Text)
		}
		if len(w.Text) < 2 || w.Text[0] != '-' {
			if w.Text == "-" && !i.always || w.Text == "/dev/stdin" {
				break
			}
			if i.always {
				continue
			}
			input = false
			if given {
				break
			}
			switch {
			case i.first:
				take(w)
			case i.files:
				r.takeFile(name, w, &code)
			}
			break
		}
		o, value, takes := splitOption(w.Text, i.texts+" "+i.values)
		isText := strings.Contains(" "+i.texts+" ", " "+o+" ")
		isFile := i.first && (o == "-f" || o == "--file")
		switch {
		case takes && len(rest) == 0:
		case takes && isText:
			take(rest[0])
			rest = rest[1:]
		case takes && isFile:
			given = true
			r.takeFile(name, rest[0], &code)
			rest = rest[1:]
		case takes:
			input = input && o != "-m"
			if o == "-m" {
				given = true
			}
			rest = rest[1:]
		case isText && value != "":
			take(Word{Text: value, Known: w.Known})
		}
	}
	if input && !given && (!isMake(name) || readsMakefile(words)) {
		if in := r.contents(at.in); in.known {
			code = append(code, in.text)
		} else {
			r.unknown("%s runs what it reads, which is not known before it runs", name)
		}
	}
	text := strings.Join(code, "\n")
	if isMake(name) {
		text = strings.NewReplacer("$(RM)", "rm -f", "${RM}", "rm -f").Replace(text)
	}
	r.emit(words, at, text)
	return stream{}
}

func isMake(name string) bool { return name == "make" || name == "gmake" }

// readsMakefile reports whether make reads its makefile from its input.
func readsMakefile(words []Word) bool {
	for i, w := range words[1:] {
		o, value, takes := splitOption(w.Text, "-f --file --makefile")
		if _, v, ok := strings.Cut(w.Text, "="); ok {
			value = v
		}
		if takes && i+2 < len(words) {
			value = words[i+2].Text
		}
		if (o == "-f" || o == "--file" || o == "--makefile") && (value == "-" || strings.HasPrefix(value, "/dev/")) {
			return true
		}
	}
	return false
}

// takeFile adds the program in a file that the text wrote. One that was there before is not looked
// into: that a long program mentions a name says too little.
func (r *reader) takeFile(by string, w Word, code *[]string) {
	if substituted, ok := r.streams[w.Text]; ok && substituted.known {
		*code = append(*code, substituted.text)
		return
	}
	for _, file := range r.resolve(w) {
		if v := r.names[key{kindFile, file.Text}]; v != nil && !v.opaque {
			*code = append(*code, v.text)
		}
	}
	if r.mayHaveWritten(w) || w.split || w.Text == "" || strings.HasPrefix(w.Text, "/dev/") {
		r.unknown("%s runs the file %q, which cannot be read before it runs", by, w.Text)
	}
}
