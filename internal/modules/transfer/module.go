// Package transfer is the module of gavel import and gavel export, which exchange folders of workflows with other
// programs and stores.
package transfer

import (
	"github.com/gavel-mcp/gavel/internal/module"
)

func init() {
	module.Register(module.Module{
		Name: "transfer",
		Commands: []module.Command{
			{Name: "import", Group: "store", Help: "Import a .workflows folder: definitions, instances, histories.", New: func() any { return &importCommand{} }},
			{Name: "export", Group: "store", Help: "Export definitions, instances and histories to a folder.", New: func() any { return &exportCommand{} }},
		},
	})
}
