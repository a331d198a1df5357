package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/internal/term"
)

// shopCommand makes this program one of the servers that the chain demo runs behind gavel: shop, bank or post,
// according to its argument. It is not in the reference, because it has no other use.
const shopCommand = "__demo-shop"

// busyFor is how long the address book's first answer takes. It makes that answer the last of its parallel step,
// so that every run of the demo has the same order.
const busyFor = 200 * time.Millisecond

// receiptsFile holds the payments, one per line. It outlives the bank's processes.
const receiptsFile = "receipts.txt"

// serveShop is an MCP server. It ends when its input ends.
func serveShop(ctx context.Context, args []string, in io.Reader, out io.Writer) (code int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(args) != 1 {
		return term.ExitUsage
	}
	name := args[0]
	s := server.NewMCPServer(name, "1.0.0", server.WithToolCapabilities(false))
	s.SetTools(shopTools(name)...)
	stdio := server.NewStdioServer(s)
	stdio.SetErrorLogger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug))
	if err := stdio.Listen(ctx, in, out); err != nil && ctx.Err() == nil {
		return term.ExitUnknown
	}
	return term.ExitOK
}

func shopTools(name string) []server.ServerTool {
	tool := func(name, description string, answer server.ToolHandlerFunc, arguments ...mcp.ToolOption) server.ServerTool {
		return server.ServerTool{Tool: mcp.NewTool(name, append([]mcp.ToolOption{mcp.WithDescription(description)}, arguments...)...), Handler: answer}
	}
	order, amount, to := mcp.WithString("order", mcp.Required()), mcp.WithNumber("amount", mcp.Required()), mcp.WithString("to", mcp.Required())
	give := func(values map[string]any) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultStructuredOnly(values), nil
	}
	asked := false
	return map[string][]server.ServerTool{
		"shop": {
			tool("price", "Return the price of an order.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return give(map[string]any{"amount": 120})
			}, order),
			tool("address", "Return the address of an order.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if !asked {
					asked = true
					<-time.After(busyFor)
					return mcp.NewToolResultError("the address book is busy"), nil
				}
				return give(map[string]any{"address": "12 Main Street"})
			}, order),
		},
		"bank": {
			tool("pay", "Pay for an order.", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				receipt := fmt.Sprintf("R-%d", strings.Count(readReceipts(), "\n")+1)
				if err := addReceipt(fmt.Sprintf("%s %s %g\n", receipt, r.GetString("order", ""), r.GetFloat("amount", 0))); err != nil {
					return nil, err
				}
				if readMood(Sound) == Slow {
					<-ctx.Done() // paid, but no one receives the answer
				}
				return give(map[string]any{"receipt": receipt})
			}, order, amount),
			tool("receipts", "List all payments.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText("payments: " + strings.ReplaceAll(strings.TrimSpace(readReceipts()), "\n", "; ")), nil
			}),
		},
		"post": {tool("send", "Send a parcel.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return give(map[string]any{"parcel": "P-1"})
		}, to)},
	}[name]
}

func readReceipts() string {
	text, _ := os.ReadFile(receiptsFile) //nolint:errcheck // the file does not exist without payments
	return string(text)
}

func addReceipt(line string) error {
	f, err := os.OpenFile(receiptsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was written
	_, err = f.WriteString(line)
	return err
}
