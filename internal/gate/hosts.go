package gate

import (
	"net/url"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// fetchers are programs that accept a host without a scheme.
var fetchers = []string{"curl", "wget", "aria2c", "http", "https", "xh", "nc", "ncat", "telnet", "ssh", "scp", "sftp", "rsync"}

// redirectingOptions are options of curl that can send a request to another host than the address names.
var redirectingOptions = []string{"--connect-to", "--resolve", "--proxy", "--preproxy", "--socks", "-x", "--doh-url", "--unix-socket", "-K", "--config"}

// redirectsRequests reports whether a setting or variable makes programs contact another host.
func redirectsRequests(setting string) bool {
	setting = strings.ToLower(setting)
	return strings.Contains(setting, "proxy") || strings.Contains(setting, "insteadof")
}

// fitHosts compares the addresses in a command's words with hosts.
func fitHosts(c shell.Command, hosts []string) (f fit) {
	program := programName(c)
	fetches := slices.Contains(fetchers, program)
	for _, word := range slices.Concat(c.Writes, c.Reads) {
		if strings.HasPrefix(word.Text, "/dev/tcp/") || strings.HasPrefix(word.Text, "/dev/udp/") {
			f = f.or(unknownBecause("`%s` opens a connection from the shell itself. Use a program such as curl with the address.", word.Text))
		}
	}
	if program == "env" || program == "export" {
		for _, word := range listArguments(c) {
			if name, _, ok := strings.Cut(word.Text, "="); ok && redirectsRequests(name) {
				f = f.or(unknownBecause("`%s` sends requests through a proxy. Leave it out.", word.Text))
			}
		}
	}
	for _, word := range listArguments(c) {
		if program == "curl" && slices.ContainsFunc(redirectingOptions, func(o string) bool { return strings.HasPrefix(word.Text, o) }) {
			f = f.or(unknownBecause("The option `%s` of curl can send the request to another host. Leave it out.", word.Text))
		}
		for _, text := range append(addressesIn(c, word), word.Text) {
			_, address, isURL := strings.Cut(text, "://")
			switch {
			case !word.Known && !word.Pattern && (fetches || isURL):
				f = f.or(unknownBecause("The host that %s names is not known. Write the address itself.", describeWord(word)))
			case isURL && matchURL("any://"+address, hosts), !isURL && matchBareHost(text, hosts, fetches):
				f = f.or(fits)
			}
		}
	}
	return f
}

// addressesIn returns the parts of a word that may be addresses, if the word is program text.
func addressesIn(c shell.Command, word shell.Word) []string {
	if c.Plain || !strings.ContainsAny(word.Text, " '\"()\n") {
		return nil
	}
	return splitCode(word.Text)
}

// matchBareHost reports whether a word without a scheme is an address on one of the hosts: example.com/x,
// git@example.com:x.
func matchBareHost(word string, hosts []string, fetches bool) bool {
	if _, value, ok := strings.Cut(word, "="); ok {
		word = value
	}
	_, after, hasUser := strings.Cut(word, "@")
	if hasUser {
		word = after
		hasUser = strings.Contains(word, ":")
	}
	if i := strings.IndexAny(word, "/:?#"); i >= 0 {
		word = word[:i]
	}
	if word == "" || strings.HasPrefix(word, "-") {
		return false
	}
	return slices.ContainsFunc(hosts, func(h string) bool {
		return (fetches || hasUser || strings.Trim(h, "*.") != "") && engine.MatchName(h, cleanHost(word))
	})
}

// matchURL reports whether an address may be on one of the hosts. It returns true if the address cannot be parsed, or
// if its host is not ASCII and may have several spellings.
func matchURL(address string, hosts []string) bool {
	at, err := url.Parse(address)
	if err != nil || at.Hostname() == "" || !isASCII(at.Hostname()) {
		return true
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return engine.MatchName(h, cleanHost(at.Hostname())) })
}

func cleanHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }
