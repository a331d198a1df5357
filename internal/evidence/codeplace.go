package evidence

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// runner is a kind of program that runs one of its arguments as code.
type runner struct {
	names *regexp.Regexp // of the program
	says  *regexp.Regexp // an option that says that what follows is code
	glued *regexp.Regexp // how an argument begins that is such an option and the code
	// file is whether the first argument that is no option names a file to run, after
	// which all others are that file's.
	file bool
}

// No list of programs and their options is complete.
// These are the usual ones, to keep an operator from a slip.
var runners = sync.OnceValue(func() []runner {
	return []runner{
		{
			names: regexp.MustCompile(`^(ba|da|z|k|mk|a|c|tc|fi|rba|tcl)?sh$|^(pwsh|powershell|osascript)$|^(python|pypy|perl|ruby|php|lua|luajit|r|rscript|julia|elixir|erl|groovy|octave)[0-9.]*$`),
			says:  regexp.MustCompile(`^-[A-Za-z]*[cerE]$|^--?(eval|command|execute|exec)$|(?i)^-(enc|command|encodedcommand)[a-z]*$`),
			glued: regexp.MustCompile(`^-[A-Za-z]*[cerE]|^--?(eval|command|execute|exec)=`),
			file:  true,
		},
		{
			names: regexp.MustCompile(`^(node|nodejs)[0-9.]*$`),
			says:  regexp.MustCompile(`^-[A-Za-z]*[epr]$|^--(eval|print)$`),
			glued: regexp.MustCompile(`^-[A-Za-z]*[epr]|^--(eval|print)=`),
			file:  true,
		},
		{names: regexp.MustCompile(`^(deno|bun)$`), says: regexp.MustCompile(`^eval$|^-[ep]$|^--(eval|print)$`), glued: regexp.MustCompile(`^-[ep]|^--(eval|print)=`)},
		{names: regexp.MustCompile(`^cmd$`), says: regexp.MustCompile(`(?i)^/[ckr]$`), glued: regexp.MustCompile(`(?i)^/[ckr]`)},
		{names: regexp.MustCompile(`^(su|runuser|script|flock)$`), says: regexp.MustCompile(`^-[A-Za-z]*c$|^--(session-)?command$`), glued: regexp.MustCompile(`^-[A-Za-z]*c|^--(session-)?command=`)},
		{names: regexp.MustCompile(`^env$`), says: regexp.MustCompile(`^-[A-Za-z0]*S$|^--split-string$`), glued: regexp.MustCompile(`^-[A-Za-z0]*S|^--split-string=`)},
	}
})

// relays put their arguments together again, for a shell to read.
var relays = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(ssh|rsh|remsh|mosh|plink|dbclient|watch|parallel)$`)
})

// inCode says what is wrong with the place of an argument that follows words: "" is
// nothing that is known. The program need not come first: there are env, timeout and
// docker exec. patterned is whether the operator has said what it may look like.
func inCode(words []string, t template, patterned bool) string {
	for at, word := range words {
		name := programName(word)
		if relays().MatchString(name) && !patterned {
			return fmt.Sprintf("%q hands its arguments to a shell; declare a pattern that leaves nothing for a shell to read", name)
		}
		i := slices.IndexFunc(runners(), func(r runner) bool { return r.names.MatchString(name) })
		if i < 0 {
			continue
		}
		r, between := runners()[i], words[at+1:]
		if r.file && len(between) > 0 && !isOption(between[0]) {
			continue // a file to run, and its arguments
		}
		leads, has := r.readsCode(between)
		if leads || r.glued.MatchString(t[0].text) {
			return fmt.Sprintf(`an argument may not stand in code that %q would run; hand it over as an argument of its own, such as "$1"`, name)
		}
		if has {
			return "" // what follows is handed over
		}
		if r.file && !patterned && !isOption(t[0].text) && skipOptions(between) == len(between) {
			return fmt.Sprintf("%q would run the file or module that an argument names; declare a pattern that leaves nothing but what it may run", name)
		}
	}
	return ""
}

// readsCode says whether what comes after words is code: an option that says so is among
// them, and only further options follow it; and whether words have code already.
func (r runner) readsCode(words []string) (leads, has bool) {
	for i, word := range words {
		if r.says.MatchString(word) {
			rest := words[i+1:]
			leads = skipOptions(rest) == len(rest)
			has = has || !leads
		}
	}
	return leads, has
}

func isOption(word string) bool {
	return strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+")
}

// skipOptions counts the options that words begin with, and the values of those of
// shells that have one.
func skipOptions(words []string) int {
	i := 0
	for i < len(words) && isOption(words[i]) {
		if slices.Contains([]string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}, words[i]) {
			i++
		}
		i++
	}
	return min(i, len(words))
}

// programName is what a program is called, wherever it lies.
func programName(program string) string {
	name := strings.ToLower(program[strings.LastIndexAny(program, `/\`)+1:])
	return strings.TrimSuffix(name, ".exe")
}
