// Package evidence is the module for sources of evidence: commands, addresses, tools of other servers and what a user
// said. It provides section "evidence" of the configuration file, the judge's fetcher, the process that runs background commands, and
// gavel evidence.
package evidence

import (
	"context"
	_ "embed"
	"io"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed schema.json
var schemas []byte

func init() {
	module.Register(module.Module{
		Name: "evidence",
		Commands: []module.Command{{
			Name: "evidence", Group: "judge", Help: "Try the sources of evidence.",
			New: func() any { return &command{} },
		}},
		Sections: []module.Section{{
			Name:  evidence.Section,
			About: "Sources of evidence (commands, addresses, tools of the servers under `upstreams`, and the messages of an agent's user): [Evidence](../evidence.md#the-sources-file).",
			Show: func(section *document.Node) ([]module.Shown, error) {
				return []module.Shown{{Key: "sources", Value: append([]string{}, section.Get("sources").Keys()...)}}, nil
			},
		}},
		Schemas: schemas,
		Check: func(c module.Check) error {
			f, err := open(c.File, "")
			if err == nil {
				f.Close()
			}
			return err
		},
		// Changed sources take effect at the next start.
		Extend: func(module.Setup) *module.Extension {
			said := &transcripts{}
			return &module.Extension{
				Parts: []*module.Part{{Sections: []string{evidence.Section}}}, Provides: said,
				Connect: func(s module.System) error {
					said.engine = s.Engine
					return nil
				},
			}
		},
		OpenFetcher: open,
		Processes: map[string]module.Process{
			evidence.RunnerName: func(_ context.Context, _ []string, in io.Reader, out io.Writer) int {
				evidence.Run(in, out)
				return 0
			},
		},
	})
}

// transcripts reads what users said to the instances of an engine, which exists once all extensions do.
type transcripts struct{ engine *engine.Engine }

func (t *transcripts) read(ctx context.Context, instance string) (messages []string, omitted int, err error) {
	return t.engine.ReadTranscript(ctx, instance)
}

// fetcher implements module.Fetcher.
type fetcher struct{ *evidence.Manager }

// open opens the sources that a file declares.
func open(file *config.File, watcher string) (module.Fetcher, error) {
	declared, err := evidence.ParseConfig(file.Section(evidence.Section))
	if err != nil {
		return nil, err
	}
	manager, err := evidence.New(declared, evidence.Options{Watcher: watcher})
	if err != nil {
		return nil, err
	}
	return fetcher{manager}, nil
}

// Connect implements module.Fetcher.
func (f fetcher) Connect(all module.Extensions) {
	if tools, ok := module.Find[evidence.Tools](all); ok {
		f.UseTools(tools)
	}
	if said, ok := module.Find[*transcripts](all); ok {
		f.UseTranscript(said.read)
	}
}

// Sources implements module.Fetcher.
func (f fetcher) Sources() (list []operation.Source) {
	for _, i := range f.List() {
		list = append(list, operation.Source{Name: i.Name, Kind: i.Kind, Description: i.Description, ReadOnly: i.ReadOnly})
	}
	return list
}
