package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// plainPrograms run no other program, whatever their words and input are. Programs with an option, script or key that
// runs another one are excluded (awk, sed, tar, less, ssh), except those in plainUnless.
var plainPrograms = makeSet(`: [ b2sum base32 base64 basename bg break cal cat cd chgrp chmod chown cksum clear cmp column comm command continue cp csplit curl cut
	date dd declare df diff dir dircolors dirname dirs du echo egrep exit expand export expr factor false fg fgrep file fmt fold free getconf getopts grep groups
	head hexdump host hostname iconv id ifconfig jobs join jq kill killall link ln local locale logname logout look ls lsof
	md5sum mkdir mkfifo mktemp mv nl nproc numfmt od paste pgrep ping pinky pkill popd printenv printf ps pushd pwd read readlink realpath readonly return rev rm rmdir
	seq set sha1sum sha224sum sha256sum sha384sum sha512sum shasum shift shopt shred shuf sleep stat strings stty sum sync tac tail tee test times touch tput tr true truncate
	tsort tty type typeset ulimit umask unalias uname unexpand uniq unlink unset uptime users vdir wait wc which who whoami xxd yes exec`)

// plainUnless lists programs that run another one only with an option; the value is the option's prefix.
var plainUnless = map[string]string{"sort": "--c", "rg": "--pre --hostname-bin", "find": "\x00", "mapfile": "-C", "readarray": "-C"}

// plainSubcommands lists subcommands that run nothing named in their words, except through options that match
// runsOption.
var plainSubcommands = map[string]string{
	"gh":      "api auth browse gist issue label pr release run search workflow",
	"go":      "build clean doc fmt get install list mod test version vet",
	"kubectl": "annotate apply create delete describe explain get label logs patch replace rollout scale",
	"npm":     "ci install ls outdated pack publish view",
}

var runsOption = regexp.MustCompile("^--?(exec|toolexec|vettool|script-shell|C|modfile|ldflags|kubeconfig)")

// isPlain reports whether a command runs no other command.
func isPlain(words []Word) bool {
	name := words[0].Text
	if !words[0].Known {
		return false
	}
	if folder, base := path.Split(name); folder != "" {
		if !hasWord("/bin/ /usr/bin/ /usr/local/bin/ /opt/homebrew/bin/", folder) {
			return false
		}
		name = base
	}
	if name == "git" {
		return isPlainGit(words)
	}
	if commands, ok := plainSubcommands[name]; ok {
		return len(words) > 1 && words[1].Known && hasWord(commands, words[1].Text) &&
			!slices.ContainsFunc(words[2:], func(w Word) bool { return w.split || runsOption.MatchString(w.Text) })
	}
	option, conditional := plainUnless[name]
	if !conditional {
		return plainPrograms[name]
	}
	for _, w := range words[1:] {
		for prefix := range strings.FieldsSeq(option) {
			if w.split || strings.HasPrefix(w.Text, prefix) {
				return false
			}
		}
	}
	return true
}
