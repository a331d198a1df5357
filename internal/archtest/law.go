// Package archtest defines the module's architecture as data and checks the source tree against it: which package may
// import which, and which packages may import each heavy dependency. Imports follow the direction of calls. Its own
// test runs the check; no other package imports it.
//
// It reads only source text, of every Go file with any build tag, and builds nothing. So no tag can bypass a rule,
// and the check stays fast. It must never need the go command, the network or a clean work tree.
package archtest

import (
	"path"
	"slices"
)

// Module is the module path whose tree the law describes.
const Module = "github.com/gavel-mcp/gavel"

// Root is the folder of the package that has the module's own import path.
const Root = "."

// Ground is the package that every package may import, and that imports no other package of this module.
const Ground = "validators/document"

// Package is one row of the import law. Paths are relative to Module.
type Package struct {
	// Path is the package's folder.
	Path string
	// May lists the packages of this module that it may import.
	May []string
	// TestOnly marks test support code. It may also be imported by the tests of every package that may import
	// everything in its May.
	TestOnly bool
}

// Door lists the packages that may import a dependency.
type Door struct {
	// Name is the dependency's name in messages, and the name of the depguard rule that repeats this door for
	// editors.
	Name string
	// Deps are import paths. Each covers itself and the packages below it, including other major versions ("/v2").
	Deps []string
	// Doors are the packages that may import Deps, relative to Module. If empty, no package may.
	Doors []string
	// Tests reports that every test file may import Deps as well.
	Tests bool
	// Why is one sentence that explains the rule to its violator.
	Why string
}

// below5 is the engine and all packages below it. It excludes the sandbox's implementation, which only programs link,
// and test support code.
var below5 = []string{
	"prompts", "validators/schema", "validators/script", "judge/llm", "internal/fairshare", "internal/sharedcache",
	"validators", "judge/shown", "judge/content", "judge", "engine/workflow/layout", "engine/workflow", "engine/record", "engine/store", "engine/values", "engine",
}

// driver lists the packages that a store driver may import.
var driver = []string{"engine/store", "engine/record"}

// tableDriver lists the packages that a store driver with tables may import.
var tableDriver = []string{"engine/store", "engine/record", "engine/store/rows", "internal/sharedcache"}

// services are independent packages above the engine; faces are above both.
var services = []string{
	"internal/auth",
	"internal/telemetry", "internal/config", "internal/listen", "internal/egress", "internal/process", "internal/clientstate",
}

// shared lists the packages that only modules share: internal/evidence reads and fetches sources, internal/gate matches
// calls with gates, and internal/upstream holds sessions with other MCP servers. The core must not import them.
var shared = []string{"internal/evidence", "internal/gate", "internal/upstream"}

// moduleFolder contains a folder for each removable module.
const moduleFolder = "internal/modules/"

// moduleList is the only file outside of the modules, except tests, that may name them.
const moduleList = "cmd/gavel/modules/modules.go"

// programFolder is the program, whose tests may name modules.
const programFolder = "cmd/gavel"

// modules are the packages that moduleList names.
var modules = []string{"internal/modules/chain", "internal/modules/console", "internal/modules/demo", "internal/modules/evidence", "internal/modules/gateway", "internal/modules/hook", "internal/modules/measure", "internal/modules/postgres", "internal/modules/transfer", "internal/modules/webhook"}

// everything lists the packages that a program may import.
var everything = slices.Concat(below5, services, []string{
	"validators/script/worker",
	"engine/store/memory", "engine/store/sqlite", "engine/store/driver", "engine/store/rows", "engine/audit", "engine/suite", "engine/mcpgate",
	"internal/filelock", "internal/latecollect", "internal/operation", "internal/mcp/wire", "internal/mcp/face", "internal/rest", "internal/rest/client",
	"testdata",
})

// program lists the packages that a command of the program may import. slices.Clip lets rows append to it.
var program = slices.Clip(slices.Concat(everything, []string{Root, "internal/module", "internal/term"}))

// commands are the folders with the commands of the program, by subject, and what they share.
var commands = []string{
	"cmd/gavel/internal/admin", "cmd/gavel/internal/author", "cmd/gavel/internal/instance",
	"cmd/gavel/internal/review", "cmd/gavel/internal/serve", "internal/cli",
}

// Packages is the import law, bottom first. A package that is not listed may not exist, because adding one is a
// decision about the architecture. A row may name a package that does not exist yet.
var Packages = []Package{
	// Layer 0: packages that import only Ground and each other.
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
	{Path: "packaging", TestOnly: true}, // tests only: the packages that gavel is shipped in
	{Path: "validators/script/worker", May: []string{"validators/schema", "validators/script"}},

	// Layer 1: checks without a model.
	{Path: "validators", May: []string{"validators/schema", "validators/script", "internal/sharedcache"}},
	{Path: "judge/llmtest", May: []string{"judge/llm"}, TestOnly: true},

	// Layer 2: the judgement.
	{Path: "judge/shown", May: []string{"prompts"}},
	{Path: "judge/content", May: []string{"judge/shown", "validators"}},
	// judge and engine/workflow use script's types for the results of validators.Checks and Set.RunScripts.
	{Path: "judge", May: []string{"validators", "validators/script", "prompts", "judge/llm", "judge/shown", "judge/content"}},

	// Layer 3: the workflows that are judged.
	{Path: "engine/workflow/layout"},
	{Path: "engine/workflow", May: []string{"judge", "validators", "validators/script", "engine/workflow/layout"}},

	// Layer 4: the state machine.
	{Path: "engine/record", May: []string{"judge", "engine/workflow"}},
	{Path: "engine/store", May: []string{"judge", "engine/workflow", "engine/record"}},
	{Path: "engine/values", May: []string{"engine/workflow", "engine/record", "engine/store"}},
	{Path: "engine", May: []string{"judge", "validators", "engine/workflow", "engine/record", "engine/store", "engine/values", "internal/fairshare", "internal/sharedcache"}},

	// Drivers store rows and must not import the engine.
	{Path: "engine/store/rows", May: []string{"engine/store", "engine/record"}},
	{Path: "engine/store/memory", May: driver},
	{Path: "engine/store/sqlite", May: tableDriver},
	{Path: "engine/store/driver", May: []string{"engine/store", "engine/store/rows"}},
	{Path: "engine/storetest", May: driver, TestOnly: true},
	{Path: "internal/pgtest", TestOnly: true},

	// Layer 5: packages above the engine, which the engine must not import.
	{Path: "engine/audit", May: below5},
	{Path: "engine/suite", May: slices.Concat(below5, []string{"internal/junit"})},
	{Path: "engine/mcpgate", May: below5},
	{Path: "engine/enginetest", May: slices.Concat(below5, []string{"engine/store/memory", "validators/script/worker"}), TestOnly: true},

	// Layer 6a: services.
	{Path: "internal/egress"},
	{Path: "internal/filelock"},
	{Path: "internal/process"},
	{Path: "internal/evidence/worktree"},
	{Path: "internal/auth", May: slices.Concat(below5, []string{"internal/egress", "internal/filelock", "internal/listen"})},
	{Path: "internal/shell"},
	{Path: "internal/gate", May: slices.Concat(below5, []string{"internal/shell"})},
	{Path: "internal/upstream", May: slices.Concat(below5, []string{"internal/clientstate", "internal/egress", "internal/process", "internal/gate"})},
	{Path: "internal/evidence", May: slices.Concat(below5, []string{"internal/egress", "internal/filelock", "internal/process", "internal/evidence/worktree"})},
	{Path: "internal/clientstate", May: []string{"engine/store", "engine/store/memory"}},
	{Path: "internal/telemetry", May: below5},
	{Path: "internal/config", May: below5},
	{Path: "internal/listen", May: []string{"internal/fairshare", "internal/egress"}},

	// Layer 6b: the operations, shared by all faces, and the MCP protocol. A caller is an identity of auth.
	{Path: "internal/operation", May: slices.Concat(below5, []string{"internal/auth"})},
	{Path: "internal/module", May: slices.Concat(below5, []string{"internal/auth", "internal/config", "internal/mcp/wire", "internal/operation", "internal/telemetry", "internal/term"})},
	{Path: "internal/mcp/wire", May: slices.Concat(below5, []string{"internal/auth", "internal/listen"})},

	// Layer 6c: faces. They must not import one another.
	{Path: "internal/mcp/face", May: slices.Concat(below5, services, []string{"internal/operation", "internal/mcp/wire"})},
	{Path: "internal/rest", May: slices.Concat(below5, services, []string{"internal/operation"})},
	// The REST client encodes requests with the code of the REST face.
	{Path: "internal/rest/client", May: slices.Concat(below5, []string{"internal/egress", "internal/rest", "internal/operation"})},

	// What all commands share: flags, the opened system, output.
	{Path: "internal/cli", May: program},

	// Modules may import the core, but neither faces nor one another; checkOwn checks that too.
	{Path: "internal/modules/chain", May: slices.Concat(below5, []string{"internal/cli", "engine/store/driver", "internal/auth", "internal/config", "internal/fairshare", "internal/gate", "internal/module", "internal/operation", "internal/telemetry", "internal/term", "internal/upstream"})},
	{Path: "internal/modules/console", May: slices.Concat(below5, services, []string{Root, "internal/cli", "internal/fairshare", "internal/module", "internal/operation", "internal/term"})},
	{Path: "internal/modules/demo", May: []string{"internal/cli", "internal/module", "internal/term", "judge", "engine/workflow", "engine"}},
	{Path: "internal/modules/evidence", May: []string{Root, "engine", "internal/cli", "internal/config", "internal/evidence", "internal/module", "internal/operation", "internal/term", "judge"}},
	{Path: "internal/modules/gateway", May: slices.Concat(below5, services, shared, []string{"internal/cli", "internal/filelock", "internal/mcp/wire", "internal/module", "internal/operation", "internal/term", "internal/modules/gateway/expose", "internal/modules/gateway/foreign"})},
	{Path: "internal/modules/gateway/expose", May: slices.Concat(below5, []string{"internal/upstream", "internal/operation"})},
	{Path: "internal/modules/gateway/foreign", May: slices.Concat(below5, services, shared, []string{"internal/mcp/wire"})},
	{Path: "internal/modules/hook", May: slices.Concat(below5, []string{
		"engine/store/driver", "internal/auth", "internal/cli", "internal/config", "internal/gate", "internal/listen", "internal/module", "internal/modules/hook/agent", "internal/telemetry", "internal/term",
	})},
	{Path: "internal/modules/hook/agent", May: slices.Concat(below5, []string{"internal/gate", "internal/shell"})},
	{Path: "internal/modules/measure", May: slices.Concat(below5, []string{Root, "internal/cli", "internal/module", "internal/operation", "internal/telemetry", "internal/term", "internal/modules/measure/compare", "internal/modules/measure/eval", "internal/modules/measure/label", "internal/modules/measure/report", "internal/modules/measure/tune"})},
	{Path: "internal/modules/measure/eval", May: []string{"judge", "internal/junit"}},
	{Path: "internal/modules/measure/compare", May: []string{"internal/term", "judge", "internal/modules/measure/eval"}},
	{Path: "internal/modules/measure/report", May: []string{"judge", "internal/modules/measure/eval", "internal/modules/measure/compare"}},
	{Path: "internal/modules/measure/label", May: []string{"judge", "internal/modules/measure/eval"}},
	{Path: "internal/modules/measure/tune", May: []string{"judge", "internal/modules/measure/eval"}},
	{Path: "internal/modules/postgres", May: slices.Concat(tableDriver, []string{"engine/store/driver", "internal/module", "internal/modules/postgres/command"})},
	{Path: "internal/modules/postgres/command", May: slices.Concat(below5, []string{
		Root, "engine/audit", "engine/store/driver", "engine/store/rows", "engine/store/sqlite", "internal/auth", "internal/cli", "internal/filelock", "internal/module", "internal/modules/postgres/storecopy", "internal/term",
	})},
	{Path: "internal/modules/postgres/storecopy", May: []string{"engine/store", "engine/store/rows"}},
	{Path: "internal/modules/transfer", May: slices.Concat(below5, []string{Root, "internal/cli", "internal/module", "internal/term", "internal/modules/transfer/portable", "internal/modules/transfer/folder"})},
	{Path: "internal/modules/transfer/portable", May: below5},
	{Path: "internal/modules/transfer/folder", May: slices.Concat(below5, []string{"internal/modules/transfer/portable"})},
	{Path: "internal/modules/webhook", May: slices.Concat(below5, []string{"internal/cli", "internal/module", "internal/config", "internal/telemetry", "internal/term", "internal/modules/webhook/export"})},
	{Path: "internal/modules/webhook/endpoint", May: []string{"internal/egress"}},
	{Path: "internal/modules/webhook/export", May: slices.Concat(below5, []string{"internal/config", "internal/egress", "internal/process", "internal/modules/webhook/endpoint"})},

	// Layer 7: wiring. The root package is for any program; the command is one program and adds its own parts.
	{Path: Root, May: append(everything, "internal/module")},
	{Path: "cmd/gavel/internal/earlyworker", May: []string{"validators/script", "validators/script/worker"}},
	// The commands share internal/cli and must not import one another.
	{Path: "cmd/gavel/internal/admin", May: append(program, "internal/cli")},
	{Path: "cmd/gavel/internal/author", May: append(program, "internal/cli")},
	{Path: "cmd/gavel/internal/instance", May: append(program, "internal/cli")},
	{Path: "cmd/gavel/internal/review", May: append(program, "internal/cli")},
	{Path: "cmd/gavel/internal/serve", May: append(program, "internal/cli")},
	{Path: path.Dir(moduleList), May: modules},
	// Only tests of the command import the packages in shared, and those below modules.
	{Path: "cmd/gavel", May: slices.Concat(program, commands, modules, shared, []string{"cmd/gavel/internal/earlyworker", "internal/modules/hook/agent", "internal/modules/measure/compare", "internal/modules/measure/eval", "internal/modules/measure/report", path.Dir(moduleList)})},
}

// Doors lists the heavy dependencies and who may import them. .golangci.yml repeats it for editors, and a test keeps
// both equal.
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
		Doors: []string{"engine/store/sqlite"},
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
		Doors: []string{"internal/mcp/wire", "internal/mcp/face", "internal/upstream", "engine/mcpgate", "internal/modules/demo"},
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
		Doors: []string{"cmd/gavel/internal/author", "internal/modules/hook/agent"},
		Why:   "only the settings of other programs are edited with their comments",
	},
	{
		Name: "diff", Deps: []string{"github.com/rogpeppe/go-internal/diff"},
		Doors: []string{"internal/cli"},
		Why:   "what a person is asked to approve is shown in one way",
	},
	{
		Name: "kong", Deps: []string{"github.com/alecthomas/kong"},
		Doors: []string{"cmd/gavel", "cmd/gavel/internal/serve", "internal/cli"},
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
