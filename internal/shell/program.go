package shell

import (
	"path"
	"strings"
)

type runner = func(r *reader, words []Word, at place) stream

// programOf is how a program is read that is more than its words, nil for any other.
func programOf(name string) runner {
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "rbash", "yash", "posh":
		return runShell
	case "fish", "csh", "tcsh", "elvish", "nu", "xonsh", "pwsh", "powershell", "cmd", "cmd.exe", "rc", "oil", "ysh", "osh":
		return runOtherShell
	case "git":
		return runGit
	case "eval":
		return runEval
	case "source", ".":
		return runSource
	case "xargs":
		return runXargs
	case "find", "gfind":
		return runFind
	case "parallel":
		return runParallel
	case "cd", "pushd", "popd":
		return runCd
	case "trap":
		return runTrap
	case "alias":
		return runAlias
	case "hash", "enable", "bind":
		return runRename
	case "read", "mapfile", "readarray", "getopts", "unset", "wait", "let", "compgen", "complete", "test", "[":
		return runSetter
	case "set", "shift":
		return runSet
	case "printf", "echo", "cat", "tee", "which", "type", "true", ":", "pwd":
		return runPrinter
	case "at", "batch", "crontab":
		return runLater
	case "cp", "mv", "ln", "install", "link", "gcp", "gmv", "gln", "ginstall":
		return runCopy
	}
	return nil
}

// runShell reads sh and its like: -c and a text, a file, or what comes by its input.
func runShell(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	name, rest := path.Base(words[0].Text), words[1:]
	plain := r.plain
	r.plain = name == "sh" || name == "dash" || name == "ash"
	defer func() { r.plain = plain }()
	text, input := false, false
	for len(rest) > 0 && len(rest[0].Text) > 1 && strings.ContainsAny(rest[0].Text[:1], "-+") || len(rest) > 0 && !rest[0].Known {
		w := rest[0]
		if !w.Known && !strings.HasPrefix(w.Text, "-") {
			break
		}
		rest = rest[1:]
		if w.Text == "--" {
			break
		}
		if strings.HasPrefix(w.Text, "--") {
			if o := w.Text; (o == "--rcfile" || o == "--init-file") && len(rest) > 0 {
				r.inSubshell(func() stream { return r.runFile(rest[0], nil, name) })
				rest = rest[1:]
			}
			continue
		}
		text = text || strings.Contains(w.Text, "c") && w.Text[0] == '-'
		input = input || strings.Contains(w.Text, "s") && w.Text[0] == '-'
		if strings.ContainsAny(w.Text, "oO") && len(rest) > 0 {
			rest = rest[1:]
		}
	}
	switch {
	case len(rest) > 0 && text:
		if !rest[0].Known {
			r.unknown("%s -c runs text that is not known before it runs: %s", name, sayWords(rest[:1]))
			return stream{}
		}
		params := rest[1:]
		if len(params) == 0 {
			params = []Word{words[0]}
		}
		return r.readInner(rest[0].Text, params, at.in)
	case len(rest) > 0 && !input:
		return r.inSubshell(func() stream {
			for k, v := range r.names {
				if k.kind == kindVariable && !v.exported {
					r.set(k, nil)
				}
			}
			return r.runFile(rest[0], rest, name)
		})
	}
	in := r.contents(at.in)
	if !in.known {
		r.unknown("%s runs what it reads, which is not known before it runs", name)
		return stream{}
	}
	return r.readInner(in.text, append([]Word{words[0]}, rest...), stream{known: true})
}

// runOtherShell reads a shell whose language is not read: simple commands are alike in all.
func runOtherShell(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	name := path.Base(words[0].Text)
	var texts []Word
	for i, w := range words[1:] {
		switch o := strings.ToLower(w.Text); {
		case !w.Known:
			r.unknown("%s runs text that is not known before it runs", name)
		case strings.HasPrefix(o, "-") && strings.Contains(o, "c") || o == "/c" || o == "/k":
			texts = words[i+2:]
			if o[0] == '/' && len(texts) > 0 {
				texts = []Word{r.joined(texts)}
			}
		}
		if texts != nil {
			break
		}
	}
	if texts == nil {
		if in := r.contents(at.in); len(words) > 1 || !in.known {
			r.unknown("%s runs a file or an input in a language that is not read", name)
		} else if in.text != "" {
			texts = []Word{{Text: in.text, Known: true}}
		}
	}
	for _, w := range texts {
		if !w.Known || strings.ContainsAny(w.Text, "$()`{}^%@[]") {
			r.unknown("%s -c runs text in a language that is not read", name)
			continue
		}
		r.readInner(w.Text, nil, stream{})
	}
	return stream{}
}

// runFile reads a script that a shell is given by its name.
func (r *reader) runFile(file Word, params []Word, by string) stream {
	in := r.contents(stream{file: file})
	if !in.known {
		name := file.Text
		if strings.HasPrefix(name, substitutionFile) {
			name = "what a substitution prints"
		}
		r.unknown("%s runs the file %q, which cannot be read before it runs", by, name)
		return stream{}
	}
	mark := r.mark()
	if params != nil {
		r.set(key{kindParameters, ""}, &value{list: params})
	}
	out := r.readText(in.text, stream{known: true})
	r.merge(mark)
	return out
}

// runScript reads a program that is named by its path, where it is a script; false where it is not.
func (r *reader) runScript(words []Word, at place) (stream, bool) {
	in := r.contents(stream{file: words[0]})
	if !in.known {
		if r.mayHaveWritten(words[0]) && !isProgram(in.text) {
			r.unknown("the text writes %s, runs it, and what is in it is not known", words[0].Text)
		} else if strings.HasSuffix(words[0].Text, ".sh") || in.text != "" && !isProgram(in.text) {
			r.unknown("the script %s cannot be read before it runs", words[0].Text)
		}
		return stream{}, false
	}
	if isProgram(in.text) || in.text == "" {
		return stream{}, false
	}
	line, _, _ := strings.Cut(in.text, "\n")
	if line, ok := strings.CutPrefix(line, "#!"); ok {
		fields := strings.Fields(line)
		if len(fields) > 1 && path.Base(fields[0]) == "env" {
			fields = fields[1:]
			for len(fields) > 1 && (strings.HasPrefix(fields[0], "-") || strings.Contains(fields[0], "=")) {
				fields = fields[1:]
			}
		}
		name := ""
		if len(fields) > 0 {
			name = path.Base(fields[0])
		}
		if _, ok := interpreterOf(name); ok {
			var code []string
			r.takeFile(name, words[0], &code)
			r.emit(words, at, strings.Join(code, ""))
			return stream{}, true
		}
		if programOf(name) == nil {
			return stream{}, false
		}
	}
	r.emit(words, at, "")
	return r.readInner(in.text, words, at.in), true
}

// isProgram reports whether a file's content is a program in machine code.
func isProgram(text string) bool {
	return strings.HasPrefix(text, "\x7fELF") || strings.Contains(text[:min(len(text), 512)], "\x00")
}

// contents is what a stream is: of a file what the text wrote there, or what is there already.
func (r *reader) contents(s stream) stream {
	if s.file.Text == "" {
		return s
	}
	switch s.file.Text {
	case "/dev/null":
		return stream{known: true}
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0":
		return stream{}
	}
	if t, ok := r.streams[s.file.Text]; ok {
		return t
	}
	var all stream
	for _, file := range r.resolve(s.file) { // it is in one of these folders
		if one := r.readFile(file); one.text != "" {
			all = stream{text: all.text + one.text, known: one.known && (all.known || all.text == "")}
		} else if one.known && all.text == "" {
			all.known = true
		}
	}
	return all
}

// readFile is what is in a file that is named from where the text begins to run.
func (r *reader) readFile(file Word) stream {
	if !file.Known {
		return stream{}
	}
	elsewhere := r.blurred[""] || r.blurred[path.Base(file.Text)] // written where that cannot be told
	if v := r.names[key{kindFile, file.Text}]; v != nil {
		return stream{text: v.text, known: !v.opaque && !elsewhere}
	}
	if r.options.ReadFile == nil || !path.IsAbs(file.Text) || !r.step(64) {
		return stream{}
	}
	data, err := r.options.ReadFile(file.Text, maxText)
	if err != nil {
		return stream{}
	}
	if len(data) >= maxText && !isProgram(string(data[:512])) {
		return stream{text: string(data[:512])}
	}
	r.step(len(data))
	return stream{text: string(data), known: !elsewhere}
}

// writeFile notes what the text writes into a file.
func (r *reader) writeFile(w Word, content stream, appends bool) {
	if strings.HasPrefix(w.Text, "/dev/") {
		return
	}
	for _, file := range r.resolve(w) {
		switch {
		case file.Known:
			r.writeNamed(file.Text, content, appends)
		case w.Known:
			r.blurred[path.Base(w.Text)] = true
		default:
			r.blurred[""] = true
		}
	}
}

// writeNamed notes what the text writes into a file that is named from where the text begins to run.
func (r *reader) writeNamed(name string, content stream, appends bool) {
	r.wrote[path.Base(name)] = true
	k := key{kindFile, name}
	v := &value{text: content.text, opaque: !content.known}
	if appends {
		before := r.readFile(Word{Text: name, Known: true})
		if v.text = before.text + v.text; !before.known || len(v.text) > maxText {
			v = &value{opaque: true}
		}
	}
	r.set(k, v)
	if strings.Contains(name, ".git/hooks/") || strings.Contains(name, ".husky/") {
		if v.opaque {
			r.unknown("a hook of git is written, and what is in it is not known")
		} else {
			r.readInner(v.text, nil, stream{})
		}
	}
}

// mayHaveWritten reports whether the text may have written a file, with a content that is not known.
func (r *reader) mayHaveWritten(w Word) bool {
	for _, file := range r.resolve(w) {
		if v := r.names[key{kindFile, file.Text}]; file.Known && v != nil && v.opaque || !file.Known && r.wrote[path.Base(w.Text)] {
			return true
		}
	}
	return r.blurred[""] || r.blurred[path.Base(w.Text)]
}

// wroteProgram reports whether the text wrote a file that it may run by its bare name.
func (r *reader) wroteProgram(name string) bool { return r.wrote[name] && r.assigned["PATH"] }

// runCopy reads what puts a file under another name: running that is not known to be harmless.
func runCopy(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	for _, w := range (Command{Words: words}).wordsWritten() {
		r.writeFile(w, stream{}, false)
	}
	return stream{known: true}
}

func runEval(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	if len(words) == 1 {
		return stream{known: true}
	}
	text := r.joined(words[1:])
	if !text.Known {
		r.unknown("eval runs text that is not known before it runs: %s", sayWords(words))
		r.forgetVariables(true)
		return stream{}
	}
	return r.readText(text.Text, at.in)
}

func runSource(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	rest := words[1:]
	if len(rest) > 0 && rest[0].Text == "--" {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return stream{known: true}
	}
	var params []Word
	if len(rest) > 1 {
		params = rest
	}
	file := rest[0]
	switch file.Text {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0":
		if in := r.contents(at.in); in.known {
			return r.readText(in.text, stream{known: true})
		}
	}
	out := r.runFile(file, params, words[0].Text)
	if !out.known {
		return stream{}
	}
	return out
}

func runCd(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	rest := words[1:]
	for len(rest) > 0 && rest[0].Known && len(rest[0].Text) > 1 && rest[0].Text[0] == '-' {
		rest = rest[1:]
	}
	switch {
	case path.Base(words[0].Text) == "popd", len(rest) > 1:
		r.set(key{kindFolder, ""}, nil)
	case len(rest) == 0:
		r.changeFolder(Word{Text: r.options.Home, Known: r.options.Home != "" && !r.assigned["HOME"]}, true)
	case rest[0].Text == "-", r.assigned["CDPATH"]:
		r.set(key{kindFolder, ""}, nil)
	default:
		r.changeFolder(rest[0], true)
	}
	return stream{known: true}
}

// runTrap reads the text that runs at a signal or at the end, whatever the variables are then.
func runTrap(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	rest := words[1:]
	if len(rest) > 0 && rest[0].Text == "--" {
		rest = rest[1:]
	}
	if len(rest) < 2 || rest[0].Text == "-" || rest[0].Text == "" && rest[0].Known {
		return stream{known: true}
	}
	if !rest[0].Known {
		r.unknown("trap runs text that is not known before it runs")
		return stream{}
	}
	r.inSubshell(func() stream {
		r.forgetVariables(true)
		return r.readText(rest[0].Text, stream{})
	})
	return stream{known: true}
}

func runAlias(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	for _, w := range words[1:] {
		name, text, ok := strings.Cut(w.Text, "=")
		switch {
		case !w.Known || ok && len(words) > 2 && strings.HasPrefix(words[1].Text, "-") && words[1].Text != "-p":
			r.unknown("an alias that is not known, or may stand anywhere: %s", sayWords(words))
		case ok:
			r.set(key{kindAlias, name}, &value{text: text})
			r.aliasesNext = r.aliasesNext || strings.HasSuffix(text, " ")
		}
	}
	return stream{known: true}
}

// runRename reads builtins that give a program another name or code, or a key a command.
func runRename(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	name := words[0].Text
	switch {
	case name == "hash" && len(words) > 3 && words[1].Text == "-p" && words[2].Known && words[3].Known:
		r.set(key{kindAlias, words[3].Text}, &value{text: words[2].Text, array: true})
	case name == "hash" && len(words) > 2 && words[1].Text == "-p", name == "bind", name == "enable" && len(words) > 1:
		r.unknown("%s gives a program another name, or code of a library: %s", name, sayWords(words))
	}
	return stream{known: true}
}

// runSetter reads builtins that set variables: to what, is not known.
func runSetter(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	name := words[0].Text
	for i, w := range words[1:] {
		if w.Text == "-C" && i+2 < len(words) && name != "test" && name != "[" {
			r.readCommandText(words[i+2], name+" -C")
		}
		r.checkSubscript(w.Text)
		if name == "test" || name == "[" || name == "compgen" || name == "complete" {
			continue
		}
		if !w.Known {
			r.forgetVariables(false)
		}
		r.set(key{kindVariable, w.Text}, nil)
		if name == "unset" {
			if f := r.names[key{kindFunction, w.Text}]; f != nil {
				f.function.lost = true
				r.set(key{kindFunction, w.Text}, nil)
			}
		}
		if strings.Contains(w.Text, "=") {
			r.forgetVariables(false)
		}
	}
	if name == "read" || name == "mapfile" || name == "readarray" {
		r.set(key{kindVariable, "REPLY"}, nil)
		r.set(key{kindVariable, "MAPFILE"}, nil)
	}
	if name == "let" {
		r.forgetVariables(false)
	}
	return stream{known: true}
}

// runSet reads set and shift, as far as they change the parameters.
func runSet(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	k := key{kindParameters, ""}
	v := r.names[k]
	if words[0].Text == "shift" {
		switch {
		case v == nil:
		case len(words) == 1 && len(v.list) > 1 && allKnown(v.list):
			r.set(k, &value{list: append([]Word{v.list[0]}, v.list[2:]...)})
		case len(v.list) > 1:
			r.set(k, nil)
		}
		return stream{known: true}
	}
	rest, params := words[1:], false
	for len(rest) > 0 && strings.HasPrefix(rest[0].Text, "-") && rest[0].Known {
		w := rest[0]
		rest = rest[1:]
		if w.Text == "--" {
			params = true
			break
		}
		if strings.HasSuffix(w.Text, "o") && len(rest) > 0 {
			rest = rest[1:]
		}
	}
	if params || len(rest) > 0 {
		r.set(k, &value{list: append([]Word{{Text: "sh", Known: true}}, rest...)})
		if !allKnown(rest) {
			r.set(k, nil)
		}
	}
	return stream{known: true}
}

// runPrinter reads programs whose output can be known.
func runPrinter(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	rest := words[1:]
	switch path.Base(words[0].Text) {
	case "echo":
		return formatEcho(rest)
	case "printf":
		if len(rest) > 1 && strings.HasPrefix(rest[0].Text, "-v") {
			for _, w := range rest[:2] {
				r.checkSubscript(w.Text)
				r.set(key{kindVariable, strings.TrimPrefix(w.Text, "-v")}, nil)
			}
			if !allKnown(rest[:2]) {
				r.forgetVariables(false)
			}
			return stream{known: true}
		}
		if len(rest) > 0 && rest[0].Text == "--" {
			rest = rest[1:]
		}
		return formatPrintf(rest)
	case "cat":
		if len(rest) == 0 {
			return r.contents(at.in)
		}
		out := stream{known: true}
		for _, w := range rest {
			switch {
			case w.Known && w.Text == "-":
				out = out.add(r.contents(at.in))
			case w.Known && strings.HasPrefix(w.Text, "-"):
				return stream{}
			default:
				out = out.add(r.contents(stream{file: w}))
			}
		}
		return out
	case "tee":
		in, appends := r.contents(at.in), false
		for _, w := range rest {
			if strings.HasPrefix(w.Text, "-") {
				appends = appends || w.Text == "-a" || w.Text == "--append"
				continue
			}
			r.writeFile(w, in, appends)
		}
		return in
	case "which", "type":
		if n := len(rest); n > 0 && rest[n-1].Known {
			return stream{text: rest[n-1].Text + "\n", known: true}
		}
		return stream{}
	case "pwd":
		return stream{path: true}
	}
	return stream{known: true}
}

// runLater reads programs that run their input at another time.
func runLater(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	name := words[0].Text
	in := r.contents(at.in)
	for i, w := range words[1:] {
		if w.Text == "-l" || w.Text == "-r" || w.Text == "-d" {
			return stream{}
		}
		if w.Text == "-f" && i+2 < len(words) || name == "crontab" && !strings.HasPrefix(w.Text, "-") {
			in = r.contents(stream{file: words[len(words)-1]})
		}
	}
	if !in.known {
		r.unknown("%s runs later what is not known now", name)
		return stream{}
	}
	if name != "crontab" {
		return r.readInner(in.text, nil, stream{})
	}
	for line := range strings.SplitSeq(in.text, "\n") {
		fields := strings.Fields(line)
		if len(fields) > 5 && !strings.HasPrefix(line, "#") {
			n := 5
			if strings.HasPrefix(line, "@") {
				n = 1
			}
			r.readInner(strings.Join(fields[n:], " "), nil, stream{})
		}
	}
	return stream{}
}
