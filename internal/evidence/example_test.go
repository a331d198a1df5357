package evidence_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

func Example() {
	doc, err := document.Parse("gavel.yaml", []byte(`
evidence:
  sources:
    commit-exists:
      description: whether a commit is in the repository
      readOnly: true
      command: [git, cat-file, -e, "{{sha}}^{commit}"]
      arguments:
        sha: { pattern: "[0-9a-f]{7,40}" }
`), document.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg, err := evidence.ParseConfig(doc.Get("evidence"))
	if err != nil {
		fmt.Println(err)
		return
	}
	sources, err := evidence.New(cfg, evidence.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sources.Close()
	for _, sha := range []string{`"--help"`, `"HEAD; rm -rf /"`} {
		f, err := sources.Fetch(context.Background(), judge.EvidenceRequest{
			Source:    "commit-exists",
			Arguments: json.RawMessage(`{"sha":` + sha + `}`),
		}, true)
		fmt.Println(f.Failure, f.Detail, err)
	}
	// Output:
	// argument the argument "sha" does not match the pattern that the source declares <nil>
	// argument the argument "sha" does not match the pattern that the source declares <nil>
}
