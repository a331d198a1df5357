package shell

import (
	"slices"
	"strings"
)

// gitCommands are git's own commands. Any other word after git is a configured alias or a program git-NAME.
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

// plainGit are git commands that run nothing named in their words, except through the options in gitRuns.
var plainGit = makeSet(`add annotate blame branch bundle cat-file check-ignore checkout cherry-pick clean clone commit describe diff diff-tree fetch
	for-each-ref format-patch fsck gc grep hash-object help init log ls-files ls-remote ls-tree merge merge-base mv name-rev notes prune
	pull push range-diff read-tree rebase reflog remote reset restore rev-list rev-parse revert rm shortlog show show-branch show-ref
	sparse-checkout stage stash status switch symbolic-ref tag update-index update-ref var verify-commit verify-tag version whatchanged worktree write-tree`)

// gitRuns lists prefixes of git options that name a program. Those under "" apply to every command.
var gitRuns = map[string]string{
	"": "--u --rece --exe ext::", "clone": "-u -c --co", "grep": "-O --op", "rebase": "-x --ex",
}

// isPlainGit reports whether a git command runs nothing named in its words.
func isPlainGit(words []Word) bool {
	if len(words) == 1 {
		return true
	}
	command := words[1]
	if !command.Known || !plainGit[command.Text] {
		return false
	}
	for _, w := range words[2:] {
		if w.Text == "--" && w.Known {
			return true
		}
		if w.split && !hasWord("add commit log diff show", command.Text) {
			return false
		}
		for prefix := range strings.FieldsSeq(gitRuns[""] + " " + gitRuns[command.Text]) {
			cluster := len(prefix) == 2 && !strings.HasPrefix(w.Text, "--") && w.Text != "" && w.Text[0] == '-' && strings.Contains(w.Text, prefix[1:])
			if cluster || strings.HasPrefix(w.Text, prefix) {
				return false
			}
		}
	}
	return true
}

// harmlessKeys are git settings that run nothing and do not change what a command acts on.
var harmlessKeys = makeSet(`user.name user.email author.name author.email committer.name committer.email commit.gpgsign tag.gpgsign gpg.format user.signingkey
	core.quotepath core.autocrlf core.safecrlf core.eol core.filemode core.abbrev core.ignorecase core.longpaths core.preloadindex core.untrackedcache core.commentchar
	push.default push.followtags push.autosetupremote pull.rebase pull.ff merge.ff merge.conflictstyle rebase.autostash rebase.autosquash
	fetch.prune fetch.parallel init.defaultbranch http.postbuffer http.version http.lowspeedlimit http.lowspeedtime protocol.version
	diff.algorithm diff.renames diff.renamelimit diff.context diff.colormoved diff.mnemonicprefix diff.noprefix diff.submodule log.decorate log.date log.showsignature status.short
	rerere.enabled gc.auto gc.autodetach maintenance.auto pack.threads index.threads submodule.recurse checkout.defaultremote safe.directory feature.manyfiles transfer.fsckobjects`)

// harmlessValues are commands that a setting may name, since they run nothing else.
const harmlessValues = " true false cat : less more vi vim nano "

// isHarmlessSetting reports whether the setting of git -c NAME=VALUE runs nothing.
func isHarmlessSetting(name, value string) bool {
	name = strings.ToLower(name)
	switch {
	case harmlessKeys[name], strings.HasPrefix(name, "color."), strings.HasPrefix(name, "advice."), strings.HasPrefix(name, "column."), strings.HasPrefix(name, "i18n."):
		return true
	case hasWord("core.pager core.editor sequence.editor core.fsmonitor credential.helper core.hookspath", name) || strings.HasPrefix(name, "pager."):
		return value == "" || hasWord(harmlessValues, value) || name == "core.hookspath" && value == "/dev/null"
	}
	return false
}

func isGitVariable(upper string) bool {
	return upper == "HOME" || strings.HasPrefix(upper, "GIT_") || strings.HasPrefix(upper, "XDG_")
}

// isHarmlessForGit reports whether an assignment to a git variable runs nothing and does not change what git acts on.
func isHarmlessForGit(name string, w Word) bool {
	switch name {
	case "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_ASKPASS":
		return w.Known && (w.Text == "" || hasWord(harmlessValues, w.Text))
	case "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_MERGE_AUTOEDIT", "GIT_LFS_SKIP_SMUDGE", "GIT_ADVICE", "GIT_FLUSH", "GIT_LITERAL_PATHSPECS", "GIT_CONFIG_NOSYSTEM", "XDG_RUNTIME_DIR":
		return true
	}
	return strings.HasPrefix(name, "GIT_AUTHOR_") || strings.HasPrefix(name, "GIT_COMMITTER_") || strings.HasPrefix(name, "GIT_TRACE") && (w.Text == "1" || w.Text == "0")
}

// runGit reads a git command. It removes git's own options.
func (r *reader) runGit(words []Word, p execContext) {
	r.runsGit = true
	defer r.keepFolders()()
	options, rest, ok := parseOptions(words[1:],
		"-p -P -v -h --paginate --no-pager --version --help --html-path --man-path --info-path --no-replace-objects --no-lazy-fetch --no-optional-locks --no-advice --bare --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs",
		"-C -c --git-dir --work-tree --namespace --super-prefix --attr-source --list-cmds")
	said := "git " + joinWords(words[1:]).Text
	for _, o := range options {
		switch o.name {
		case "-C":
			r.changeFolder(o.value)
			r.failed = nil
		case "-c":
			name, value, _ := strings.Cut(o.value.Text, "=")
			if !o.value.Known && len(name) >= o.value.lead || !isHarmlessSetting(name, value) {
				r.unknown(p.at, said, "the setting `-c %.60s` may make git run something else; leave it out", o.value.Text)
			}
		case "--git-dir", "--work-tree":
			if o.name == "--git-dir" || p.repository.Text == "" {
				p.repository = o.value
			}
		}
	}
	if !ok {
		r.emit(words, p, false)
		r.unknown(p.at, said, "the options of git are not known: `%s`; write literal options, and quote expansions", quoteWords(words))
		return
	}
	git := append([]Word{{Text: "git", Known: true}}, rest...)
	if words[0].Text != "git" {
		git[0] = words[0]
	}
	r.emit(git, p, false)
	if len(rest) == 0 {
		return
	}
	switch command := rest[0]; {
	case !command.Known:
		r.unknown(p.at, said, "the command of `%s` is not a literal word; write it", quoteWords(git))
	case !gitCommands[command.Text]:
		r.unknown(p.at, said, "git %.40s is not a git command, so it may be an alias; write the full command", command.Text)
	case command.Text == "config":
		r.checkGitConfig(rest[1:], said, p)
	}
}

// checkGitConfig reads git config KEY VALUE.
func (r *reader) checkGitConfig(args []Word, said string, p execContext) {
	options, rest, ok := parseOptions(args, "--global --local --system --worktree --add --replace-all --bool --int --path --no-type --fixed-value --append", "-f --file --blob --type --default --comment")
	for len(rest) > 0 && (rest[0].Text == "set" || strings.HasPrefix(rest[0].Text, "--")) && rest[0].Known {
		rest = rest[1:]
	}
	reads := slices.ContainsFunc(args, func(w Word) bool {
		return w.Known && hasWord("get list unset --get --get-all --get-regexp --list -l --unset --unset-all --get-urlmatch --show-origin", w.Text)
	})
	if reads || ok && len(rest) < 2 && len(options) == 0 || ok && len(rest) == 1 && rest[0].Known {
		return
	}
	if ok && len(rest) > 1 && rest[0].Known && isHarmlessSetting(rest[0].Text, rest[1].Text) && !rest[0].split {
		return
	}
	r.unknown(p.at, said, "the setting `%s` may make git run something else; leave it out", quoteWords(rest))
}

func makeSet(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}
