package pgtest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// OldServer returns the URL of a fake server that claims to be PostgreSQL 13 and answers nothing else.
func OldServer(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() {
					defer conn.Close()
					_ = serveOld(conn) // until the client disconnects
				}()
			}
		}
	}()
	return "postgres://gavel@" + l.Addr().String() + "/gavel?sslmode=disable"
}

func serveOld(conn net.Conn) error {
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return err //nolint:wrapcheck // no one reads it
	}
	server.Send(&pgproto3.AuthenticationOk{})
	server.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)})
	server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	status, query := byte('I'), ""
	answer := func() {
		value := "off" // transaction_read_only
		switch {
		case strings.Contains(query, "server_version_num"):
			value = strconv.Itoa(13)
		case strings.Contains(query, "pg_backend_pid"):
			value = strconv.Itoa(2) // as behind a proxy
		case strings.EqualFold(query, "begin"):
			status = 'T'
		case strings.EqualFold(query, "rollback"):
			status = 'I'
		}
		server.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(value)}})
		server.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
	columns := &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("value"), DataTypeOID: 23, DataTypeSize: 4}}}
	for {
		if err := server.Flush(); err != nil {
			return err //nolint:wrapcheck // no one reads it
		}
		message, err := server.Receive()
		if err != nil {
			return err //nolint:wrapcheck // no one reads it
		}
		switch m := message.(type) {
		case *pgproto3.Query:
			query = m.String
			server.Send(columns)
			answer()
			server.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		case *pgproto3.Parse:
			query = m.Query
			server.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			server.Send(&pgproto3.BindComplete{})
		case *pgproto3.Describe:
			server.Send(columns)
		case *pgproto3.Execute:
			answer()
		case *pgproto3.Sync:
			server.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		case *pgproto3.Terminate:
			return nil
		}
	}
}
