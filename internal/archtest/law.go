// Package archtest holds the shape of the module as data and checks the tree
// against it: which package may import which (imports run the way calls run and
// the way a reader reads), and which one package is the door to each heavy
// dependency. Its own test is the check; nothing imports this package.
//
// It reads source text only: every Go file of every build tag, without building
// anything, so that a rule cannot be dodged by a tag and the check stays fast.
// It must never need the go command, the network or a clean work tree.
package archtest

import "slices"

// Module is the module path whose tree the law describes.
const Module = "github.com/gavel-mcp/gavel"

// Root is the folder of the package that has the module's own import path.
const Root = "."

// Ground is the package that everything may import and that imports nothing of this
// module.
const Ground = "validators/document"

// Package is one row of the import law. Paths are relative to Module.
type Package struct {
	// Path is where the package lives.
	Path string
	// May lists the packages of this module that it may import.
	May []string
	// TestOnly marks support code for tests. Beyond the rows that list it, the tests
	// of every package that may import all of its May may import it.
	TestOnly bool
}

// Door says who may import a dependency.
type Door struct {
	// Name is the dependency's name in messages, and the name of the depguard rule
	// that repeats this door for editors.
	Name string
	// Deps are import paths; each covers itself and everything below it, and other
	// major versions ("/v2") with it.
	Deps []string
	// Doors are the packages that may import Deps, relative to Module. None means
	// nobody may.
	Doors []string
	// Tests says that every test file may import Deps as well.
	Tests bool
	// Why is one sentence for whoever is refused.
	Why string
}

// below5 is "engine and below": everything that a call passes on its way down,
// without the sandbox's inside, which only a program links, and without support
// code for tests.
var below5 = []string{
	"prompts", "validators/schema", "validators/script", "judge/llm", "internal/fairshare", "internal/sharedcache",
	"validators", "judge/shown", "judge/content", "judge", "judge/eval", "engine/workflow", "engine/record", "engine/store", "engine/values", "engine",
}

// driver is all that a driver of a store knows.
var driver = []string{"engine/store", "engine/record"}

// tableDriver is what a driver knows that keeps rows in tables.
var tableDriver = []string{"engine/store", "engine/record", "engine/store/rows", "internal/sharedcache"}

// services stand beside each other over the engine; faces stand over both.
var services = []string{
	"internal/auth", "internal/shell", "internal/gate", "internal/upstream", "internal/evidence",
	"internal/telemetry", "internal/config", "internal/listen", "internal/egress", "internal/process", "internal/clientstate",
}

// moduleFolder has a folder for each module, which can be removed.
const moduleFolder = "internal/modules/"

// moduleList is the one file outside of the modules, tests apart, that may name them.
const moduleList = "cmd/gavel/modules.go"

// modules are the packages that moduleList names.
var modules = []string{"internal/modules/chain", "internal/modules/demo", "internal/modules/gateway", "internal/modules/hook", "internal/modules/measure", "internal/modules/postgres", "internal/modules/webhook"}

// everything is what a program may import.
var everything = slices.Concat(below5, services, []string{
	"validators/script/worker",
	"engine/memstore", "engine/sqlitestore", "engine/store/driver", "engine/store/rows", "engine/storecopy", "engine/audit", "engine/transfer", "engine/transfer/folder", "engine/suite", "engine/mcpgate",
	"internal/filelock", "internal/latecollect", "internal/operation", "internal/mcpwire", "internal/mcpface", "internal/httpapi", "internal/httpapi/client", "internal/console",
	"testdata",
})

// Packages is the import law, bottom first. A package that is not listed may not
// exist: adding one is a decision about the shape of the house. A row whose
// package does not exist yet is fine.
var Packages = []Package{
	// Layer 0: knows nothing of this module but the ground.
	{Path: Ground},
	{Path: "internal/fairshare"},
	{Path: "internal/junit"},
	{Path: "internal/latecollect"},
	{Path: "internal/sharedcache"},
	{Path: "internal/term"},
	{Path: "prompts"},
	{Path: "validators/schema"},
	{Path: "validators/script", May: []string{"internal/fairshare"}},
	{Path: "judge/llm", May: []string{"internal/fairshare"}},
	{Path: "internal/archtest"},
	{Path: "testdata", TestOnly: true},
	{Path: "internal/costtest", TestOnly: true},
	{Path: "packaging", TestOnly: true}, // tests only: what gavel is shipped in
	{Path: "validators/script/worker", May: []string{"validators/schema", "validators/script"}},

	// Layer 1: checks without a model.
	{Path: "validators", May: []string{"validators/schema", "validators/script", "internal/sharedcache"}},
	{Path: "judge/llmtest", May: []string{"judge/llm"}, TestOnly: true},

	// Layer 2: the judgement.
	{Path: "judge/shown", May: []string{"prompts"}},
	{Path: "judge/content", May: []string{"judge/shown", "validators"}},
	// What validators.Checks and Set.RunScripts say of scripts is said in script's types,
	// here and in engine/workflow.
	{Path: "judge", May: []string{"validators", "validators/script", "prompts", "judge/llm", "judge/shown", "judge/content"}},

	// Layer 3: what is judged, and how good the judge is.
	{Path: "judge/eval", May: []string{"judge", "internal/junit"}},
	{Path: "engine/workflow", May: []string{"judge", "validators", "validators/script"}},

	// Layer 4: the state machine.
	{Path: "engine/record", May: []string{"judge", "engine/workflow"}},
	{Path: "engine/store", May: []string{"judge", "engine/workflow", "engine/record"}},
	{Path: "engine/values", May: []string{"engine/workflow", "engine/record", "engine/store"}},
	{Path: "engine", May: []string{"judge", "validators", "engine/workflow", "engine/record", "engine/store", "engine/values", "internal/fairshare", "internal/sharedcache"}},

	// Drivers keep rows and know nothing of the engine.
	{Path: "engine/store/rows", May: []string{"engine/store", "engine/record"}},
	{Path: "engine/memstore", May: driver},
	{Path: "engine/sqlitestore", May: tableDriver},
	{Path: "engine/store/driver", May: []string{"engine/store", "engine/store/rows"}},
	{Path: "engine/storecopy", May: []string{"engine/store/rows"}},
	{Path: "engine/storetest", May: driver, TestOnly: true},
	{Path: "internal/pgtest", TestOnly: true},

	// Layer 5: what stands over the engine, which imports none of it.
	{Path: "engine/audit", May: below5},
	{Path: "engine/transfer", May: below5},
	{Path: "engine/transfer/folder", May: slices.Concat(below5, []string{"engine/transfer"})},
	{Path: "engine/suite", May: slices.Concat(below5, []string{"internal/junit"})},
	{Path: "engine/mcpgate", May: below5},
	{Path: "engine/enginetest", May: slices.Concat(below5, []string{"engine/memstore", "validators/script/worker"}), TestOnly: true},

	// Layer 6a: services.
	{Path: "internal/egress"},
	{Path: "internal/filelock"},
	{Path: "internal/process"},
	{Path: "internal/worktree"},
	{Path: "internal/auth", May: slices.Concat(below5, []string{"internal/egress", "internal/filelock", "internal/listen"})},
	{Path: "internal/shell"},
	{Path: "internal/gate", May: slices.Concat(below5, []string{"internal/shell"})},
	{Path: "internal/upstream", May: slices.Concat(below5, []string{"internal/clientstate", "internal/egress", "internal/process", "internal/gate"})},
	{Path: "internal/evidence", May: slices.Concat(below5, []string{"internal/egress", "internal/filelock", "internal/process", "internal/worktree"})},
	{Path: "internal/clientstate", May: []string{"engine/store", "engine/memstore"}},
	{Path: "internal/telemetry", May: below5},
	{Path: "internal/config", May: below5},
	{Path: "internal/listen", May: []string{"internal/fairshare", "internal/egress"}},

	// Layer 6b: what can be asked, once for every face, and how MCP is spoken. A caller is an
	// identity of auth.
	{Path: "internal/operation", May: slices.Concat(below5, []string{"internal/auth"})},
	{Path: "internal/module", May: slices.Concat(below5, []string{"internal/auth", "internal/config", "internal/mcpwire", "internal/operation", "internal/telemetry", "internal/term"})},
	{Path: "internal/mcpwire", May: slices.Concat(below5, []string{"internal/auth", "internal/listen"})},

	// Layer 6c: faces, never one another.
	{Path: "internal/mcpface", May: slices.Concat(below5, services, []string{"internal/operation", "internal/mcpwire"})},
	{Path: "internal/httpapi", May: slices.Concat(below5, services, []string{"internal/operation"})},
	// The client of the REST face writes requests as the face reads them.
	{Path: "internal/httpapi/client", May: slices.Concat(below5, []string{"internal/egress", "internal/httpapi", "internal/operation"})},
	{Path: "internal/console", May: slices.Concat(below5, services, []string{"internal/operation"})},

	// Modules know the core without its faces, and never one another: checkOwn says so as well.
	{Path: "internal/modules/chain", May: slices.Concat(below5, []string{"engine/store/driver", "internal/auth", "internal/config", "internal/fairshare", "internal/gate", "internal/module", "internal/operation", "internal/telemetry", "internal/term", "internal/upstream"})},
	{Path: "internal/modules/demo", May: []string{"internal/module", "internal/term", "judge", "engine/workflow", "engine"}},
	{Path: "internal/modules/gateway", May: slices.Concat(below5, services, []string{"internal/filelock", "internal/mcpwire", "internal/module", "internal/operation", "internal/term", "internal/modules/gateway/expose", "internal/modules/gateway/foreign"})},
	{Path: "internal/modules/gateway/expose", May: slices.Concat(below5, []string{"internal/upstream", "internal/operation"})},
	{Path: "internal/modules/gateway/foreign", May: slices.Concat(below5, services, []string{"internal/mcpwire"})},
	{Path: "internal/modules/hook", May: slices.Concat(below5, []string{
		"engine/store/driver", "internal/auth", "internal/config", "internal/gate", "internal/listen", "internal/module", "internal/modules/hook/agent", "internal/telemetry", "internal/term",
	})},
	{Path: "internal/modules/hook/agent", May: slices.Concat(below5, []string{"internal/gate", "internal/shell"})},
	{Path: "internal/modules/measure", May: []string{"internal/module", "internal/term", "judge", "judge/eval"}},
	{Path: "internal/modules/postgres", May: slices.Concat(tableDriver, []string{"engine/store/driver", "internal/module"})},
	{Path: "internal/modules/webhook", May: slices.Concat(below5, []string{"internal/module", "internal/config", "internal/telemetry", "internal/term", "internal/modules/webhook/export"})},
	{Path: "internal/modules/webhook/endpoint", May: []string{"internal/egress"}},
	{Path: "internal/modules/webhook/export", May: slices.Concat(below5, []string{"internal/config", "internal/egress", "internal/evidence", "internal/modules/webhook/endpoint"})},

	// Layer 7: what wires: for every program the root package, and the command, one of them, what is its own.
	{Path: Root, May: append(everything, "internal/module")},
	{Path: "cmd/gavel/internal/earlyworker", May: []string{"validators/script", "validators/script/worker"}},
	{Path: "cmd/gavel", May: slices.Concat(everything, []string{Root, "internal/term", "cmd/gavel/internal/earlyworker", "internal/module", "internal/modules/hook/agent"}, modules)},
}

// Doors is the one-door list. .golangci.yml repeats it for editors, and a test
// keeps the two alike.
var Doors = []Door{
	{
		Name: "goja", Deps: []string{"github.com/dop251/goja", "github.com/dop251/goja_nodejs"},
		Doors: []string{"validators/script/worker"},
		Why:   "a script is parsed and run in the worker process only",
	},
	{
		Name: "jsonschema", Deps: []string{"github.com/santhosh-tekuri/jsonschema"},
		Doors: []string{"validators/schema"},
		Why:   "one place sets the draft, the formats and the refusal of remote references",
	},
	{
		Name: "go-openai", Deps: []string{"github.com/sashabaranov/go-openai"},
		Doors: []string{"judge/llm"},
		Why:   "what a provider is stays behind Completer",
	},
	{
		Name: "gobreaker", Deps: []string{"github.com/sony/gobreaker"},
		Doors: []string{"judge/llm"},
		Why:   "resilience is a decorator of the model client",
	},
	{
		Name: "sqlite", Deps: []string{"modernc.org/sqlite"},
		Doors: []string{"engine/sqlitestore"},
		Why:   "the engine knows a Store, never a database",
	},
	{
		Name: "cgo-sqlite", Deps: []string{"github.com/mattn/go-sqlite3"},
		Why: "the release is one static binary without cgo",
	},
	{
		Name: "pgx", Deps: []string{"github.com/jackc", "github.com/lib/pq"},
		Doors: []string{"internal/modules/postgres", "internal/pgtest"},
		Why:   "the engine knows a Store, never a database",
	},
	{
		Name: "mcp-go", Deps: []string{"github.com/mark3labs/mcp-go"},
		Doors: []string{"internal/mcpwire", "internal/mcpface", "internal/upstream", "engine/mcpgate", "internal/modules/demo"},
		Why:   "the protocol library can be swapped only while few places know it",
	},
	{
		Name: "telemetry", Deps: []string{"go.opentelemetry.io"},
		Doors: []string{"internal/telemetry"},
		Why:   "the rest hands out Stats and observers and knows no exporter",
	},
	{
		Name: "dbos", Deps: []string{"github.com/dbos-inc"},
		Doors: []string{"internal/modules/chain"},
		Why:   "durable steps stay behind the chain's own interface",
	},
	{
		Name: "shell", Deps: []string{"mvdan.cc/sh"},
		Doors: []string{"internal/shell"},
		Why:   "what a line of shell runs is read in one place",
	},
	{
		Name: "glob", Deps: []string{"github.com/bmatcuk/doublestar"},
		Doors: []string{"internal/gate"},
		Why:   "patterns of paths mean the same everywhere",
	},
	{
		Name: "hujson", Deps: []string{"github.com/tailscale/hujson"},
		Doors: []string{"internal/modules/hook/agent"},
		Why:   "only the settings of other programs are edited with their comments",
	},
	{
		Name: "diff", Deps: []string{"github.com/rogpeppe/go-internal/diff"},
		Doors: []string{"internal/modules/hook"},
		Why:   "what a person is asked to approve is shown in one way",
	},
	{
		Name: "kong", Deps: []string{"github.com/alecthomas/kong"},
		Doors: []string{"cmd/gavel"},
		Why:   "flags are the command line's business",
	},
	{
		Name: "terminal", Deps: []string{"github.com/jedib0t/go-pretty", "github.com/mattn/go-isatty"},
		Doors: []string{"internal/term"},
		Why:   "what a person reads is cleaned in one place",
	},
	{
		Name: "yaml", Deps: []string{
			"github.com/goccy/go-yaml", "go.yaml.in/yaml", "gopkg.in/yaml.v2", "gopkg.in/yaml.v3",
			"sigs.k8s.io/yaml", "github.com/ghodss/yaml",
		},
		Doors: []string{Ground},
		Why:   "every document is read by the one strict decoder",
	},
	{
		Name: "prometheus", Deps: []string{"github.com/prometheus"},
		Doors: []string{"internal/telemetry"},
		Why:   "metrics have one list",
	},
	{
		Name: "testing", Deps: []string{
			"testing", "pgregory.net/rapid", "go.uber.org/goleak",
			"github.com/google/go-cmp", "github.com/rogpeppe/go-internal/testscript",
		},
		Doors: []string{"engine/storetest", "internal/pgtest", "engine/enginetest", "judge/llmtest"},
		Tests: true,
		Why:   "what only tests need must not reach a user's binary",
	},
}
