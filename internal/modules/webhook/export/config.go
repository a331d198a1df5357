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

// Defaults and limits of a webhook's settings.
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

// Webhook is a receiver that an operator has configured.
type Webhook struct {
	Name string
	URL  string
	// SecretFiles hold the secrets that sign messages: two during a rotation.
	SecretFiles []string
	// Headers are sent with each message. ${NAME} is a variable of gavel's environment.
	Headers map[string]string
	// PrivateNetwork allows the URL to use http:// and to resolve to private networks.
	PrivateNetwork bool
	Filter         Filter
	// FromStart makes the webhook also receive events from before it was configured.
	FromStart bool
	// Parallel limits the messages in flight. Tries limits how often a message is tried while others are accepted,
	// and Timeout how long a try may take.
	Parallel, Tries int
	Timeout         time.Duration

	// Command replaces URL: a program with arguments that reads each message from stdin.
	Command []string
	// Reviews makes the webhook receive messages about reviews instead of events.
	Reviews bool
	// ReviewBase begins the address of the page of a review, whose id follows; "" if the server has none.
	ReviewBase string

	node *document.Node // where it was parsed, for messages
}

// Filter selects events; an empty field matches all.
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

// CursorPrefix is the name prefix of the cursors of webhooks.
const CursorPrefix = "webhook:"

// Cursor returns the name of the webhook's cursor, and of the lease that allows one process to send.
func (w Webhook) Cursor() string { return CursorPrefix + w.Name }

// To returns the destination of the webhook, without anything that may be secret.
func (w Webhook) To() string {
	if len(w.Command) > 0 {
		return w.Command[0]
	}
	return endpoint.Host(w.URL)
}

// ParseConfig reads sections "webhooks" and "notify" of a configuration file, in file order; nil is a missing
// section. The error is document.Errors, with one issue and line for each mistake.
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
			o.Fail(m.Value, "invalid name; a webhook's name is 1 to %d lower-case letters and digits with single hyphens between them, and begins with a letter", maxName)
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
			o.Fail(at, `the address must begin with https://, or set "privateNetwork": true`)
		}
	}
	if at := o.Value("secretFiles"); at != nil && (len(h.SecretFiles) == 0 || len(h.SecretFiles) > maxSecrets) {
		o.Fail(at, `"secretFiles" must name one file, or two during a rotation`)
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

// readWords reads a list of known words.
func readWords[T ~string](o *document.ObjectReader, key string, known []T) (list []T) {
	for _, n := range o.Items(key) {
		if n.Kind != document.String || !slices.Contains(known, T(n.Text)) {
			o.Fail(n, "%q must contain only these values: %s", key, joinWords(known))
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
		o.Fail(o.Value(key), "%q must be from 1 to %d", key, most)
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

// CheckSecrets returns an error for each secret file that cannot be read.
func (w Webhook) CheckSecrets() error {
	o := document.NewObject(w.node)
	for _, file := range w.SecretFiles {
		if err := config.CheckReadable(file); err != nil {
			o.Fail(cmp.Or(o.Value("secretFiles"), o.Value("secretFile")), "%s", err.Error())
		}
	}
	return o.Err()
}

// Open reads the secrets and variables that a webhook refers to, and returns its receiver.
func (w Webhook) Open() (Receiver, error) {
	if len(w.Command) > 0 {
		return program(w.Command), nil
	}
	o := document.NewObject(w.node)
	var secrets []string
	for _, file := range w.SecretFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			o.Fail(cmp.Or(o.Value("secretFiles"), o.Value("secretFile")), "%s", err.Error())
			continue
		}
		secrets = append(secrets, strings.TrimSpace(string(text)))
	}
	headers := egress.Headers(w.Headers, os.LookupEnv, func(name, message string) { o.Fail(o.Value("headers").Get(name), "%s", message) })
	if err := o.Err(); err != nil {
		return nil, err
	}
	end, err := endpoint.New(w.URL, w.PrivateNetwork, headers, secrets...)
	if err != nil {
		o.Fail(w.node, "%s", fmt.Sprintf("the webhook %s: %s", w.Name, err))
		return nil, o.Err()
	}
	return end, nil
}
