package shell

import "strings"

// gitCommands are git's own: any other word after git is an alias of the configuration, or a program
// git-NAME, and neither is in the text.
var gitCommands = makeSet(`add am annotate apply archive backfill bisect blame branch bugreport bundle cat-file check-attr check-ignore
	check-mailmap check-ref-format checkout checkout-index cherry cherry-pick citool clean clone column commit commit-graph commit-tree
	config count-objects credential credential-cache credential-store daemon describe diagnose diff diff-files diff-index diff-pairs diff-tree difftool
	fast-export fast-import fetch fetch-pack filter-branch fmt-merge-msg for-each-ref for-each-repo format-patch fsck
	fsmonitor--daemon gc get-tar-commit-id grep gui hash-object help hook http-backend http-fetch http-push imap-send index-pack
	init init-db instaweb interpret-trailers last-modified lfs log ls-files ls-remote ls-tree mailinfo mailsplit maintenance merge merge-base
	merge-file merge-index merge-one-file merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes p4 pack-objects
	pack-redundant pack-refs patch-id prune prune-packed pull push quiltimport range-diff read-tree rebase receive-pack reflog refs
	remote repack replace replay repo request-pull rerere reset restore rev-list rev-parse revert rm send-email send-pack
	sh-i18n sh-setup shell shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule
	subtree survey svn switch symbolic-ref tag unpack-file unpack-objects update-index update-ref update-server-info upload-archive
	upload-pack var verify-commit verify-pack verify-tag version web--browse whatchanged worktree write-tree`)

// gitTexts are options of git's commands whose value a shell runs.
var gitTexts = map[string]string{
	"rebase": "-x --exec", "difftool": "-x --extcmd", "clone": "-u --upload-pack", "fetch": "--upload-pack", "pull": "--upload-pack",
	"ls-remote": "--upload-pack --exec", "push": "--receive-pack --exec", "archive": "--exec", "send-pack": "--receive-pack --exec",
	"filter-branch": "--setup --env-filter --tree-filter --index-filter --parent-filter --msg-filter --commit-filter --tag-name-filter --subdirectory-filter",
	"send-email":    "--sendmail-cmd --smtp-server --to-cmd --cc-cmd --header-cmd",
}

// runGit reads git: its own options are taken off, its aliases in the text replaced.
func runGit(r *reader, words []Word, at place) stream {
	mark := r.mark()
	defer r.undo(mark)
	const valued = "-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source --list-cmds"
	rest := words[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0].Text, "-") {
		w := rest[0]
		o, value, takes := splitOption(w.Text, valued)
		given := Word{Text: value, Known: w.Known}
		if strings.HasPrefix(w.Text, "--") {
			_, given.Text, _ = strings.Cut(w.Text, "=")
		}
		rest = rest[1:]
		if takes && len(rest) > 0 {
			given, rest = rest[0], rest[1:]
		}
		switch o {
		case "-C":
			r.changeFolder(given, false)
		case "-c":
			r.configureGit(given)
		case "--config-env":
			r.unknown("git takes a setting from a variable")
		case "--exec-path":
			if given.Text != "" {
				r.unknown("git takes its commands from another folder")
			}
		case "--help", "--version", "-v", "-h":
			r.emit(words, at, "")
			return stream{}
		}
		if !w.Known {
			r.unknown("what git does is not known before it runs: %s", sayWords(words))
		}
	}
	if len(rest) == 0 {
		r.emit(words[:1], at, "")
		return stream{}
	}
	command := rest[0]
	words = append([]Word{{Text: "git", Known: true}}, rest...)
	r.emit(words, at, "")
	if !command.Known {
		r.unknown("what git does is not known before it runs: %s", sayWords(words))
		return stream{}
	}
	if gitCommands[command.Text] {
		r.readGitCommand(command.Text, words)
		return stream{path: printsPath(words)}
	}
	alias := r.names[key{kindGitAlias, command.Text}]
	if alias == nil || alias.opaque || !r.enter() {
		r.unknown("git %s is no command of git: which alias or program it is, is not known", command.Text)
		return stream{}
	}
	defer r.leave()
	if text, ok := strings.CutPrefix(alias.text, "!"); ok {
		r.readInner(text, nil, stream{})
		return stream{}
	}
	expanded := words[:1:1]
	for f := range strings.FieldsSeq(alias.text) {
		expanded = append(expanded, Word{Text: f, Known: !strings.ContainsAny(f, "'\"\\")})
	}
	return runGit(r, append(expanded, rest[1:]...), at)
}

// configureGit reads a setting of git, key=value.
func (r *reader) configureGit(w Word) {
	name, text, _ := strings.Cut(w.Text, "=")
	lower := strings.ToLower(name)
	if alias, ok := strings.CutPrefix(lower, "alias."); ok {
		r.set(key{kindGitAlias, alias}, &value{text: text, opaque: !w.Known})
		if shell, ok := strings.CutPrefix(text, "!"); ok {
			r.readCommandText(Word{Text: shell, Known: w.Known}, "an alias of git")
		} else if w.Known {
			r.inSubshell(func() stream { return r.runAliasOfGit(text) })
		}
		return
	}
	last := lower[strings.LastIndexByte(lower, '.')+1:]
	switch {
	case name == "" && !w.Known:
		r.unknown("a setting of git is not known before it runs")
	case lower == "core.hookspath" || lower == "include.path" || strings.HasPrefix(lower, "includeif."):
		if text != "/dev/null" && text != "" || !w.Known {
			r.unknown("git takes hooks or settings from elsewhere: %s", w.Text)
		}
	case lower == "core.fsmonitor" && (text == "true" || text == "false" || text == ""), text == "" && w.Known:
	case strings.HasPrefix(lower, "pager.") && (text == "true" || text == "false"):
	case lower == "credential.helper" || strings.HasPrefix(lower, "credential.") && last == "helper":
		if shell, ok := strings.CutPrefix(text, "!"); ok || !w.Known {
			r.readCommandText(Word{Text: shell, Known: w.Known}, "a setting of git")
		}
	case strings.HasPrefix(lower, "pager."), lower == "core.editor", lower == "core.pager", lower == "core.sshcommand", lower == "core.gitproxy",
		lower == "core.fsmonitor", lower == "core.askpass", lower == "sequence.editor", lower == "diff.external", lower == "gpg.program",
		lower == "interactive.difffilter", lower == "uploadpack.packobjectshook",
		last == "textconv", last == "command", last == "cmd", last == "clean", last == "smudge", last == "process", last == "driver",
		last == "uploadpack", last == "receivepack", last == "program":
		r.readCommandText(Word{Text: text, Known: w.Known}, "the setting "+name+" of git")
	}
}

// runAliasOfGit reads what an alias of git stands for, as it may run in a later text.
func (r *reader) runAliasOfGit(text string) stream {
	words := []Word{{Text: "git", Known: true}}
	for f := range strings.FieldsSeq(text) {
		words = append(words, Word{Text: f, Known: true})
	}
	if len(words) > 1 && !gitCommands[words[1].Text] {
		return stream{} // an alias of an alias: known when it is used
	}
	return runGit(r, words, place{})
}

// readGitCommand reads what a command of git runs itself.
func (r *reader) readGitCommand(command string, words []Word) {
	rest := words[2:]
	switch command {
	case "bisect":
		if len(rest) > 1 && rest[0].Text == "run" {
			r.inSubshell(func() stream { return r.runWords(rest[1:], place{external: true}) })
		}
	case "submodule":
		for i, w := range rest {
			if w.Text == "foreach" {
				after := rest[i+1:]
				for len(after) > 0 && strings.HasPrefix(after[0].Text, "-") {
					after = after[1:]
				}
				if len(after) > 0 {
					r.inSubshell(func() stream {
						r.set(key{kindFolder, ""}, nil)
						return r.readCommandText(r.joined(after), "git submodule foreach")
					})
				}
				return
			}
		}
	case "for-each-repo":
		for i, w := range rest {
			if !strings.HasPrefix(w.Text, "-") {
				r.runWords(append(words[:1:1], rest[i:]...), place{})
				return
			}
		}
	case "config":
		r.readGitConfig(rest)
		return
	case "hook":
		return
	}
	valued, ok := gitTexts[command]
	if !ok {
		return
	}
	for i, w := range rest {
		if !strings.HasPrefix(w.Text, "-") {
			continue
		}
		if w.Text == "--" {
			return
		}
		o, value, takes := splitOption(w.Text, valued)
		if !strings.Contains(" "+valued+" ", " "+o+" ") {
			continue
		}
		given := Word{Text: value, Known: w.Known}
		if strings.HasPrefix(w.Text, "--") {
			_, given.Text, _ = strings.Cut(w.Text, "=")
		}
		if takes && i+1 < len(rest) {
			given = rest[i+1]
		}
		if given.Text != "" || !given.Known {
			r.readCommandText(given, "git "+command+" "+o)
		}
	}
}

// readGitConfig reads git config KEY VALUE, which holds for what comes after.
func (r *reader) readGitConfig(rest []Word) {
	for len(rest) > 0 && (strings.HasPrefix(rest[0].Text, "-") || rest[0].Text == "set") {
		if _, _, takes := splitOption(rest[0].Text, "-f --file --blob --type --default --comment"); takes && len(rest) > 1 {
			rest = rest[1:]
		}
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0 || rest[0].Text == "get" || rest[0].Text == "list" || rest[0].Text == "unset":
	case !rest[0].Known:
		r.unknown("a setting of git is not known before it runs")
	case len(rest) > 1:
		r.configureGit(Word{Text: rest[0].Text + "=" + rest[1].Text, Known: rest[1].Known})
	}
}
