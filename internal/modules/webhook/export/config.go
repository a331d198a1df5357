package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The settings of a webhook that says nothing else.
const (
	DefaultParallel = 4
	DefaultTries    = 10
	DefaultTimeout  = 10 * time.Second

	maxParallel = 64
	maxTries    = 100
	maxTimeout  = time.Minute
	maxSecrets  = 2
	maxName     = 32
)

// Webhook is what an operator declares of a receiver.
type Webhook struct {
	Name string
	URL  string
	// SecretFiles hold the secrets that sign messages: two while one takes the place of the other.
	SecretFiles []string
	// Headers are sent with each message. ${NAME} is a variable of gavel's environment.
	Headers map[string]string
	// PrivateNetwork lets the URL lead into private networks, and be http://.
	PrivateNetwork bool
	Filter         Filter
	// FromStart says that it gets what was recorded before it was declared, too.
	FromStart bool
	// Parallel is how many messages are on their way at once, Tries how often one is tried that is
	// not accepted while others are, Timeout how long a try may take.
	Parallel, Tries int
	Timeout         time.Duration

	// Command takes the place of URL: a program with its arguments, which reads each message from stdin.
	Command []string
	// Reviews says that it gets messages about reviews in the place of events.
	Reviews bool

	node *document.Node // where it was read from, for messages
}

// Filter selects events; an empty field selects all.
type Filter struct {
	Workflows []string        `json:"workflows,omitempty"`
	Kinds     []record.Kind   `json:"kinds,omitempty"`
	Outcomes  []judge.Outcome `json:"outcomes,omitempty"`
}

func (f Filter) selects(h header) bool {
	return (len(f.Workflows) == 0 || slices.Contains(f.Workflows, h.Workflow)) && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, h.Kind)) &&
		(len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, h.Decision.Outcome))
}

func (f Filter) String() string {
	text, err := json.Marshal(f)
	if err != nil || string(text) == "{}" {
		return "" // strings always encode
	}
	return string(text)
}

// CursorPrefix begins the names of the cursors of webhooks.
const CursorPrefix = "webhook:"

// Cursor is the name of the webhook's place in the log, and of the lease by which one process sends.
func (h Webhook) Cursor() string { return CursorPrefix + h.Name }

// To is where the webhook leads, without anything that may be secret.
func (h Webhook) To() string {
	if len(h.Command) > 0 {
		return h.Command[0]
	}
	return endpoint.Host(h.URL)
}

// ParseConfig reads the sections "webhooks" and "notify" of a configuration file, in the order of the
// file; nil is a section that is not there. The error is document.Errors, one issue for each mistake,
// with its line.
func ParseConfig(webhooks, notify *document.Node) ([]Webhook, error) {
	if webhooks == nil {
		o := document.NewObject(notify)
		return readNotify(o), o.Err()
	}
	o := document.NewObject(webhooks)
	all := append(readWebhooks(o), readNotify(o.Sub(notify))...)
	return all, o.Err()
}

func readWebhooks(o *document.ObjectReader) (all []Webhook) {
	section := o.Node()
	if section == nil {
		return nil
	}
	for _, m := range section.Members {
		if len(m.Key) > maxName || !hookName().MatchString(m.Key) {
			o.Fail(m.Value, "the name of a webhook is 1 to %d lower-case letters and digits with single dashes between them, and begins with a letter", maxName)
		}
		all = append(all, readWebhook(o, m.Key, filepath.Dir(section.Source())))
	}
	return all
}

var hookName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`) })

func readWebhook(parent *document.ObjectReader, name, dir string) Webhook {
	o := parent.Object(name)
	o.Require("url", "secretFiles")
	h := Webhook{
		Name: name, URL: o.String("url"), SecretFiles: o.OneOrMore("secretFiles"), Headers: o.StringMap("headers"), PrivateNetwork: o.Bool("privateNetwork"),
		FromStart: o.Enum("from", "now", "start") == "start",
		Parallel:  readNumber(o, "parallel", DefaultParallel, maxParallel), Tries: readNumber(o, "tries", DefaultTries, maxTries),
		Timeout: readTimeout(o), Filter: readFilter(o), node: parent.Value(name),
	}
	o.Unknown()
	if at := o.Value("url"); at != nil {
		if err := endpoint.CheckAddress(h.URL); err != nil {
			o.Fail(at, "%s", err.Error())
		} else if strings.HasPrefix(h.URL, "http:") && !h.PrivateNetwork {
			o.Fail(at, `the address begins with https://; http:// needs "privateNetwork": true`)
		}
	}
	if at := o.Value("secretFiles"); at != nil && (len(h.SecretFiles) == 0 || len(h.SecretFiles) > maxSecrets) {
		o.Fail(at, `"secretFiles" names one file, or two while one secret takes the place of the other`)
	}
	for i, file := range h.SecretFiles {
		if !filepath.IsAbs(file) {
			h.SecretFiles[i] = filepath.Join(dir, file)
		}
	}
	egress.Headers(h.Headers, nil, func(name, message string) { o.Fail(o.Value("headers").Get(name), "%s", message) })
	return h
}

func readFilter(o *document.ObjectReader) (f Filter) {
	of := o.Object("filter")
	f.Workflows = of.Strings("workflows")
	f.Kinds = readWords(of, "kinds", record.Kinds())
	f.Outcomes = readWords(of, "outcomes", engine.Outcomes)
	of.Unknown()
	return f
}

// readWords reads a list of words that are among those that are known.
func readWords[T ~string](o *document.ObjectReader, key string, known []T) (list []T) {
	for _, n := range o.Items(key) {
		if n.Kind != document.String || !slices.Contains(known, T(n.Text)) {
			o.Fail(n, "%q has the values %s", key, joinWords(known))
		}
		list = append(list, T(n.Text))
	}
	return list
}

func joinWords[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

func readNumber(o *document.ObjectReader, key string, usual, most int) int {
	n := o.IntPtr(key)
	if n == nil {
		return usual
	}
	if *n < 1 || *n > most {
		o.Fail(o.Value(key), "%q is from 1 to %d", key, most)
	}
	return *n
}

func readTimeout(o *document.ObjectReader) time.Duration {
	text := o.StringPtr("timeout")
	if text == nil {
		return DefaultTimeout
	}
	d, err := time.ParseDuration(*text)
	if err != nil || d < time.Second || d > maxTimeout {
		o.Fail(o.Value("timeout"), `"timeout" is a duration from 1s to %s, such as 10s`, maxTimeout)
	}
	return d
}

// CheckSecrets says which of the secrets' files cannot be read.
func (h Webhook) CheckSecrets() error {
	o := document.NewObject(h.node)
	for _, file := range h.SecretFiles {
		if err := config.CheckReadable(file); err != nil {
			o.Fail(cmp.Or(o.Value("secretFiles"), o.Value("secretFile")), "%s", err.Error())
		}
	}
	return o.Err()
}

// Open reads the secrets and the variables that a webhook names.
func (h Webhook) Open() (Receiver, error) {
	if len(h.Command) > 0 {
		return program(h.Command), nil
	}
	o := document.NewObject(h.node)
	var secrets []string
	for _, file := range h.SecretFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			o.Fail(cmp.Or(o.Value("secretFiles"), o.Value("secretFile")), "%s", err.Error())
			continue
		}
		secrets = append(secrets, strings.TrimSpace(string(text)))
	}
	headers := egress.Headers(h.Headers, os.LookupEnv, func(name, message string) { o.Fail(o.Value("headers").Get(name), "%s", message) })
	if err := o.Err(); err != nil {
		return nil, err
	}
	end, err := endpoint.New(h.URL, h.PrivateNetwork, headers, secrets...)
	if err != nil {
		o.Fail(h.node, "%s", fmt.Sprintf("the webhook %s: %s", h.Name, err))
		return nil, o.Err()
	}
	return end, nil
}
